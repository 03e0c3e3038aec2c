"""Exit codes."""

import re
from pathlib import Path
from typing import Final

from quarterdeck.cli.exits import MEANINGS, CommandError, ExitCode

README: Final = Path(__file__).parents[3] / "README.md"


def test_the_readme_says_the_same_as_the_help() -> None:
    """One of the two would be wrong about what a script is told."""
    table = README.read_text().partition("| exit code | meaning |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| (\d+) \| (.*) \|$", table.replace("`", ""), re.MULTILINE))
    assert rows == {str(int(code)): meaning for code, meaning in MEANINGS.items()}


def test_every_exit_code_is_explained() -> None:
    """A script's author would look in vain."""
    assert set(MEANINGS) == set(ExitCode)
    assert all(MEANINGS.values())


def test_codes_are_distinct_and_fit_a_shell() -> None:
    """Two endings could not be told apart."""
    assert len({int(code) for code in ExitCode}) == len(ExitCode)
    assert all(0 <= code < 256 for code in ExitCode)


def test_an_error_reads_as_its_message() -> None:
    """A log line about it would be empty."""
    assert str(CommandError(ExitCode.USAGE, "wrong", "do right")) == "wrong"
