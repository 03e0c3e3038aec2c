"""Errors become a line and an exit code; nobody sees a traceback."""

import errno
import signal
from pathlib import Path

import pytest

from quarterdeck.cli import tools
from quarterdeck.cli.exits import MEANINGS, CommandError, ExitCode
from quarterdeck.cli.program import hoist_state_dir, make_program, run
from quarterdeck.cli.signals import InterruptedBySignal
from quarterdeck.cli.streams import OutputError

COMMANDS = ("serve", "tools", "call", "ps", "inspect", "logs", "restart", "trust", "ledger", "lock", "config", "secret")
COMMANDS += ("link", "unlink", "purge", "sandbox", "token", "checkpoint", "doctor", "demo")


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def ask(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(tools, "ask", ask)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (CommandError(ExitCode.NOT_FOUND, "no such \x1b tool", "look again"), 3, "no such \\x1b tool\n  look again\n"),
        (InterruptedBySignal(signal.SIGINT), 130, ""),
        (InterruptedBySignal(signal.SIGTERM), 143, ""),
        (InterruptedBySignal(signal.SIGHUP), 129, ""),
        (KeyboardInterrupt(), 130, ""),
        (ExceptionGroup("g", [OutputError(errno.ENOSPC)]), 74, ""),
        (LookupError("lost"), 70, "LookupError: lost"),
        (ExceptionGroup("g", [ExceptionGroup("h", [LookupError("lost")])]), 70, "LookupError: lost"),
    ],
)
def test_every_ending_has_its_code_and_its_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, said: str
) -> None:
    """A script could not tell what happened, or a user would see a traceback."""
    fail_with(monkeypatch, error)
    assert run(["tools", "--config", "mcp.json"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["ps", "--nonsense"],
        ["call"],
        ["ps", "--log-level", "loud"],
        ["logs", "fs", "-n", "-1"],
        ["serve", "--config", "mcp.json", "127.0.0.1:1"],
        ["serve", "--config", "mcp.json", "--no-token"],
        ["serve", "--config", "mcp.json", "--json"],
    ],
)
def test_a_wrong_command_line_is_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A script would take a typing error for a broken server."""
    assert run(arguments) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err


@pytest.mark.parametrize("arguments", [["ps"], ["tools"], ["call", "a__b"], ["restart", "a"], ["logs", "a"], ["serve"]])
def test_a_command_without_a_configuration_says_how_to_name_one(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new user would not know what to do."""
    monkeypatch.delenv("QUARTERDECK_CONFIG", raising=False)
    assert run(arguments) == ExitCode.USAGE
    assert "--config FILE" in capsys.readouterr().err


def test_the_help_names_every_command_and_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """What is not documented does not exist."""
    assert run(["--help"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert all(command in out for command in COMMANDS)
    assert all(f"{code:d}  {meaning[:20]}" in out for code, meaning in MEANINGS.items())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A user would have to read the source."""
    assert run([command, "-h"]) == ExitCode.OK
    assert "Usage: quarterdeck" in capsys.readouterr().out


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A report could not say what it is about."""
    assert run(["--version"]) == ExitCode.OK
    assert capsys.readouterr().out == f"quarterdeck {program_version()}\n"


def program_version() -> str:
    from quarterdeck.identity import CLIENT_VERSION

    return CLIENT_VERSION


def test_the_command_line_is_made_anew_for_each_run() -> None:
    """State of one run would leak into the next of an embedding program."""
    assert make_program() is not make_program()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ([], []),
        (["serve"], ["serve"]),
        (["--state-dir", "/s", "serve"], ["--state-dir", "/s", "serve"]),
        (["serve", "--state-dir", "/s", "--http"], ["--state-dir", "/s", "serve", "--http"]),
        (["ledger", "log", "--state-dir=/s"], ["--state-dir=/s", "ledger", "log"]),
        (["sandbox", "run", "--", "x", "--state-dir", "/s"], ["sandbox", "run", "--", "x", "--state-dir", "/s"]),
        (["ps", "--state-dir"], ["--state-dir", "ps"]),
        (["ps", "--state-dir", "/a", "--state-dir", "/b"], ["--state-dir", "/a", "--state-dir", "/b", "ps"]),
    ],
)
def test_a_state_directory_may_be_named_anywhere(typed: list[str], meant: list[str]) -> None:
    """A user would have to know on which side of which word it goes; or a sandboxed program would lose its own."""
    assert hoist_state_dir(typed) == meant


def test_a_state_directory_that_is_named_is_the_one_that_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who keeps two decks apart would write into the other one's record."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "first"))
    assert run(["ledger", "log", "--state-dir", str(tmp_path / "second")]) == ExitCode.NOT_FOUND
    assert str(tmp_path / "second") in capsys.readouterr().err
