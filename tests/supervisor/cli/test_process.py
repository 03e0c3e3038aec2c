"""Signals and standard streams of a command, from its first instruction to its last."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.processes import running
from support.sandbox.machine_facts import FULL_DEVICE_ONLY

from quarterdeck.cli.process import InterruptedBySignal, exit_code, is_serve, output_failure, run

pytestmark = pytest.mark.process

BEGIN = "import os, sys; from quarterdeck.cli import process as signals; "


@pytest.fixture(autouse=True)
def hears_hangups() -> Iterator[None]:
    """As on a terminal: a run of the tests by `nohup`, or by a service, has SIGHUP ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def end_of(code: str) -> tuple[int, str]:
    done = running.run(sys.executable, "-c", BEGIN + code)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "serves"),
    [
        (["serve"], True),
        (["--state-dir", "d", "serve", "--http"], True),
        (["--state-dir=d", "serve"], True),
        (["run", "--", "serve"], True),
        (["call", "serve"], False),
        (["sandbox", "run", "--", "serve"], False),
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


def test_a_signal_after_the_end_and_a_hangup_that_nobody_wants_change_nothing() -> None:
    """A command that has done its work would look interrupted; `nohup` would end with its terminal."""
    code = "signals.end_at_once(serves=False, code=7); os.kill(os.getpid(), 2); print('goes on')"
    assert end_of(code) == (7, "")
    code = "import signal; signal.signal(1, signal.SIG_IGN); signals.end_at_once(serves=False); "
    assert end_of(f"{code} os.kill(os.getpid(), 1); print(signals.handles_sighup())") == (0, "False\n")


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


SECURED = "import os, sys; from quarterdeck.cli.process import *; secure_streams(); "


def secured(code: str, redirections: str) -> "subprocess.CompletedProcess[str]":
    """Python code behind `secure_streams`, started by a shell with its streams as it says."""
    command = f'exec "$0" -c "$1" {redirections}'
    return running.run("/bin/sh", "-c", command, sys.executable, SECURED + code)


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_closed_stream_is_nothing_and_nobody_elses(closed: str, tmp_path: Path) -> None:
    """A ledger opened in its place would be written what was meant for people."""
    told = tmp_path / "told"
    done = secured(
        f"fd = os.open({str(told)!r}, os.O_CREAT | os.O_WRONLY); print('out'); print('err', file=sys.stderr); "
        "assert sys.stdin.read() == ''; os.write(fd, str((fd > 2, sorted(closed_streams()))).encode()); "
        "sys.exit(7 if output_failure() is None else 8)",
        f"{closed} {'</dev/null' if '0<&-' not in closed else ''}",
    )
    assert done.returncode == 7
    assert told.read_text() == str((True, [int(one[0]) for one in closed.split()]))
    assert "Traceback" not in done.stderr


@FULL_DEVICE_ONLY
def test_a_full_stderr_is_no_failure() -> None:
    """A command that did its work would end with 120, or with a traceback that nobody sees."""
    done = secured("print('oops', file=sys.stderr, flush=True); print('out'); sys.exit(7)", "2>/dev/full")
    assert (done.returncode, done.stdout) == (7, "out\n")


@FULL_DEVICE_ONLY
@pytest.mark.parametrize("text", ["'x'", "'x' * 1_000_000"])
def test_a_full_stdout_is_told_once_and_not_again_at_the_end(text: str) -> None:
    """A script would take half an answer for a whole one; the interpreter would end with 120."""
    code = f"exec('''try:\n print({text})\nexcept OutputError:\n pass'''); failure = output_failure(); print('more'); "
    done = secured(f"{code} print(failure, output_failure() is failure, file=sys.stderr); sys.exit(7)", ">/dev/full")
    assert (done.returncode, done.stderr) == (7, "No space left on device True\n")


def test_text_that_the_locale_cannot_say_is_escaped() -> None:
    """A server's text would be an exception."""
    done = secured("print('ä' + chr(0xdc80)); print('ö', file=sys.stderr)", "")
    assert done.stdout.encode(errors="backslashreplace") in {b"\xc3\xa4\\udc80\n", b"\\xe4\\udc80\n"}
    assert done.returncode == 0, done.stderr


def test_what_is_terminated_stays_in_the_order_of_its_lines() -> None:
    """A message on stderr would come after what explains it."""
    done = secured("print('one', file=sys.stderr); os.write(2, b'two\\n'); print('three', file=sys.stderr)", "")
    assert done.stderr == "one\ntwo\nthree\n"


def test_streams_that_were_never_secured_are_asked_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever embeds us would lose streams of their own."""
    print("out")
    assert output_failure() is None
    assert capsys.readouterr().out == "out\n"
    os.fstat(1)


async def signalled(number: int, cleaned: list[str]) -> None:
    try:
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()
    finally:
        cleaned.append("cleaned")


def test_the_result_is_given_back_and_a_cancellation_without_a_signal_stays_one() -> None:
    """Nothing else would work, or a bug look like a user's wish."""

    async def work() -> int:
        return 7

    assert run(work) == 7

    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(work)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_work_after_its_cleaning_up(number: signal.Signals) -> None:
    """Servers and directories would be left behind."""
    before = signal.getsignal(number)
    cleaned: list[str] = []
    with pytest.raises(InterruptedBySignal) as ended:
        run(lambda: signalled(number, cleaned))
    assert ended.value.number == number
    assert cleaned == ["cleaned"]
    assert signal.getsignal(number) == before


def test_a_closed_terminal_does_not_end_it() -> None:
    """A serve whose client holds its pipes would die with a terminal that it does not need."""
    cleaned: list[str] = []

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        await signalled(signal.SIGTERM, cleaned)

    with pytest.raises(InterruptedBySignal) as ended:
        run(work, outlives_terminal=True)
    assert ended.value.number == signal.SIGTERM


def test_a_second_signal_hurries_what_can_be_hurried() -> None:
    """A person who does not want to wait for calls would lose their answers with the process."""
    hurried = asyncio.Event()

    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            await hurried.wait()

    with pytest.raises(InterruptedBySignal) as ended:
        run(work, hurry=hurried.set)
    assert ended.value.number == signal.SIGTERM


def test_a_second_signal_ends_the_process_at_once() -> None:
    """A cleaning up that hangs could only be ended by SIGKILL."""
    program = """
import asyncio, os, signal
from quarterdeck.cli.process import run
async def work():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()
run(work)
"""
    ended = running.run(sys.executable, "-c", program)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGTERM, "")
