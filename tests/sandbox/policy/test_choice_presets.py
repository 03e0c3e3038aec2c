"""What each preset does where; that the documentation says so is tested in `tests/docs`."""

from support.sandbox.preset_table import to_markdown


def test_each_preset_starts_where_it_was_decided() -> None:
    """A changed preset or rule would move all users of it, and the documentation along with it: it has to be meant."""
    rows = [row.strip("| ").split(" | ") for row in to_markdown().splitlines()[2:]]
    assert rows == [
        ["`strict`", "starts", "starts", "refused", "refused"],
        [
            "`standard`",
            "starts",
            "starts weaker, and reports it",
            "starts weaker, and reports it",
            "refused; with `--allow-unsandboxed` starts weaker",
        ],
        ["`trusted`", "starts", "starts", "starts", "starts"],
    ]
