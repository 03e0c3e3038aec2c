"""Exit codes."""

from quarterdeck.cli.exits import MEANINGS, CommandError, ExitCode


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
