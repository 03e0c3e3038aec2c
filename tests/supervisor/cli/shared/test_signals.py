"""Signals before, in and after a command: a code that is documented, and never a traceback."""

import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from quarterdeck.cli.shared.signals import exit_code, is_serve

BEGIN = "import os, sys; from quarterdeck.cli.shared import signals; "


def end_of(code: str) -> tuple[int, str]:
    """Its status, and what it said."""
    done = subprocess.run(  # noqa: PLW1510 - it is what is returned
        [sys.executable, "-c", BEGIN + code], capture_output=True, text=True, timeout=30
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "serves"),
    [
        (["serve"], True),
        (["--state-dir", "d", "serve", "--http"], True),
        (["--state-dir=d", "serve"], True),
        (["call", "serve"], False),
        (["--state-dir", "serve", "ps"], False),
        ([], False),
        (["--help"], False),
    ],
)
def test_a_serve_is_known_by_its_command_line(arguments: Sequence[str], serves: bool) -> None:
    """SIGTERM, by which a service manager ends it, would be a failure; or that of another command none."""
    assert is_serve(arguments) is serves


@pytest.mark.parametrize("serves", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_everything_is_imported_ends_with_its_code(number: signal.Signals, serves: bool) -> None:
    """Ctrl-C at once would print a page of imports."""
    code = f"signals.end_at_once(serves={serves}); os.kill(os.getpid(), {int(number)}); print('goes on')"
    outlives = serves and number == signal.SIGHUP
    assert end_of(code) == ((0, "goes on\n") if outlives else (exit_code(number, serves=serves), ""))


def test_a_signal_after_the_end_changes_nothing() -> None:
    """A command that has done its work would look interrupted, or end in a traceback."""
    code = "signals.end_at_once(serves=False, code=7); os.kill(os.getpid(), 2); print('goes on')"
    assert end_of(code) == (7, "")


def test_a_signal_in_a_command_unwinds_it_past_those_who_catch_exceptions() -> None:
    """A library would take it for a failure of its own and go on."""
    code = """exec('''
signals.unwind(serves=False)
try:
    try:
        os.kill(os.getpid(), 15)
    except Exception:
        print("swallowed")
    finally:
        print("tidied up")
except signals.InterruptedBySignal as end:
    print(end.number)
''')"""
    assert end_of(code) == (0, "tidied up\n15\n")


def test_who_asked_for_no_hangups_gets_none() -> None:
    """`nohup quarterdeck …` would end with its terminal."""
    code = "import signal; signal.signal(1, signal.SIG_IGN); signals.end_at_once(serves=False); "
    assert end_of(f"{code} os.kill(os.getpid(), 1); print(signals.hears_hangup())") == (0, "False\n")
