"""Work that a signal ends in order."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from quarterdeck.cli.shared.running import run
from quarterdeck.cli.shared.signals import InterruptedBySignal


async def signalled(number: int, cleaned: list[str]) -> None:
    try:
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()
    finally:
        cleaned.append("cleaned")


def test_the_result_is_given_back() -> None:
    """Nothing else would work."""

    async def work() -> int:
        return 7

    assert run(work) == 7


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


def test_a_cancellation_that_no_signal_caused_stays_one() -> None:
    """A bug would look like a user's wish."""

    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(work)


def test_a_second_signal_ends_the_process_at_once() -> None:
    """A cleaning up that hangs could only be ended by SIGKILL."""
    program = """
import asyncio, os, signal
from quarterdeck.cli.shared.running import run
async def work():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()
run(work)
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGTERM, "")
