"""The README tells what each preset does where, as the code decides it."""

from pathlib import Path

from quarterdeck_sandbox.preset_table import to_markdown

README = Path(__file__).parents[2] / "README.md"


def test_the_readme_has_the_table_of_the_code() -> None:
    """A user would choose a preset by what it did once."""
    assert to_markdown() in README.read_text()


def test_each_preset_starts_where_it_was_decided() -> None:
    """A changed preset or rule would move all users of it, and the README along with it: it has to be meant."""
    rows = [row.strip("| ").split(" | ") for row in to_markdown().splitlines()[2:]]
    assert rows == [
        ["`strict`", "starts", "starts", "refused", "refused"],
        [
            "`standard`",
            "starts",
            "starts weaker, and says so",
            "starts weaker, and says so",
            "refused; with `--allow-unsandboxed` starts weaker",
        ],
        ["`trusted`", "starts", "starts", "starts", "starts"],
    ]
