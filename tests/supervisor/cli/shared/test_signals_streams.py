"""Standard streams that are closed, full or left: no traceback, no file of ours in their place, said once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.machine_facts import FULL_DEVICE_ONLY

from quarterdeck.cli.shared.signals import output_failure

FULL = Path("/dev/full")
NEEDS_FULL = FULL_DEVICE_ONLY

BEGIN = "import os, sys; from quarterdeck.cli.shared.signals import *; secure_streams(); "


def run(code: str, redirections: str) -> "subprocess.CompletedProcess[str]":
    """Python code behind `secure_streams`, started by a shell with its streams as it says."""
    command = f'exec "$0" -c "$1" {redirections}'
    return subprocess.run(  # noqa: PLW1510 - asserted by the caller
        ["/bin/sh", "-c", command, sys.executable, BEGIN + code], capture_output=True, text=True, timeout=30
    )


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_closed_stream_is_nothing_and_nobody_elses(closed: str, tmp_path: Path) -> None:
    """A ledger opened in its place would be written what was meant for people."""
    told = tmp_path / "told"
    done = run(
        f"fd = os.open({str(told)!r}, os.O_CREAT | os.O_WRONLY); print('out'); print('err', file=sys.stderr); "
        "assert sys.stdin.read() == ''; os.write(fd, str((fd > 2, sorted(closed_streams()))).encode()); "
        "sys.exit(7 if output_failure() is None else 8)",
        f"{closed} {'</dev/null' if '0<&-' not in closed else ''}",
    )
    assert done.returncode == 7
    assert told.read_text() == str((True, [int(one[0]) for one in closed.split()]))
    assert "Traceback" not in done.stderr


@NEEDS_FULL
def test_a_full_stderr_is_no_failure() -> None:
    """A command that did its work would end with 120, or with a traceback that nobody sees."""
    done = run("print('oops', file=sys.stderr, flush=True); print('out'); sys.exit(7)", "2>/dev/full")
    assert (done.returncode, done.stdout) == (7, "out\n")


@NEEDS_FULL
@pytest.mark.parametrize("text", ["'x'", "'x' * 1_000_000"])
def test_a_full_stdout_is_told_once_and_not_again_at_the_end(text: str) -> None:
    """A script would take half an answer for a whole one; the interpreter would end with 120."""
    code = f"exec('''try:\n print({text})\nexcept OutputError:\n pass'''); failure = output_failure(); print('more'); "
    done = run(f"{code} print(failure, output_failure() is failure, file=sys.stderr); sys.exit(7)", ">/dev/full")
    assert (done.returncode, done.stderr) == (7, "No space left on device True\n")


def test_text_that_the_locale_cannot_say_is_escaped() -> None:
    """A server's text would be an exception."""
    done = run("print('ä' + chr(0xdc80)); print('ö', file=sys.stderr)", "")
    assert done.stdout.encode(errors="backslashreplace") in {b"\xc3\xa4\\udc80\n", b"\\xe4\\udc80\n"}
    assert done.returncode == 0, done.stderr


def test_what_is_terminated_stays_in_the_order_of_its_lines() -> None:
    """A message on stderr would come after what explains it."""
    done = run("print('one', file=sys.stderr); os.write(2, b'two\\n'); print('three', file=sys.stderr)", "")
    assert done.stderr == "one\ntwo\nthree\n"


def test_streams_that_were_never_secured_are_asked_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever embeds us would lose streams of their own."""
    print("out")
    assert output_failure() is None
    assert capsys.readouterr().out == "out\n"
    os.fstat(1)
