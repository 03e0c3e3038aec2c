"""Nothing may be left behind: which processes live below this test, and waiting for things to become true.

Zombies do not count: they hold nothing, and reaping them is the business of PID 1.  But those of this very process do:
whoever started them has forgotten them.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import psutil

from .terminals import fork_server

POLL_S: Final = 0.01

PATIENCE_S: Final = 30.0
"""Long enough for a loaded machine; a wait that succeeds ends at once."""

T = TypeVar("T")


def eventually(predicate: Callable[[], T], within_s: float = PATIENCE_S, what: str = "") -> T:
    """Ask until the answer is true, and return it.  Blocks: inside an event loop use `eventually_async`.

    Raises:
        AssertionError: it was not within `within_s` seconds; says `what` was waited for.
    """
    deadline = time.monotonic() + within_s
    asked = time.monotonic()
    while not (answer := predicate()):
        _check(deadline, within_s, what, predicate)
        time.sleep(_pause(asked))
        asked = time.monotonic()
    return answer


async def eventually_async(predicate: Callable[[], T], within_s: float = PATIENCE_S, what: str = "") -> T:
    """Ask until the answer is true, and return it, while the loop runs on.

    Raises:
        AssertionError: it was not within `within_s` seconds; says `what` was waited for.
    """
    deadline = time.monotonic() + within_s
    asked = time.monotonic()
    while not (answer := predicate()):
        _check(deadline, within_s, what, predicate)
        await asyncio.sleep(_pause(asked))
        asked = time.monotonic()
    return answer


def _pause(asked: float) -> float:
    """Until the next question: a dear one is asked less often, not to take the time of what is waited for."""
    return max(POLL_S, 3 * (time.monotonic() - asked))


def _check(deadline: float, within_s: float, what: str, predicate: Callable[[], object]) -> None:
    if time.monotonic() > deadline:
        raise AssertionError(f"not within {within_s} s: {what or predicate}")


def is_running(pid: int) -> bool:
    """Whether a process of this id exists and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def descendants(pid: int | None = None) -> dict[int, str]:
    """The running processes below `pid` (None: below this one), as pid -> command line.

    Our own zombies are among them.  Those whose parent died are below PID 1 and not in here: watch them by their pids.
    """
    found = {}
    for process in psutil.Process(pid).children(recursive=True):
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = " ".join(process.cmdline())
            elif process.ppid() == os.getpid():
                found[process.pid] = f"{process.name()}, which nobody waits for"
        except psutil.NoSuchProcess:
            continue
    return found


def running_with(text: str) -> dict[int, str]:
    """All running processes with `text` in their command line, as pid -> command line; finds orphans too."""
    found = {}
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or ())
        if text in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found[process.pid] = line
    return found


def assert_gone(pids: Iterable[int], within_s: float = PATIENCE_S) -> None:
    """Wait until none of these processes runs.

    Raises:
        AssertionError: one still does after `within_s` seconds.
    """
    watched = tuple(pids)
    eventually(lambda: not any(map(is_running, watched)), within_s, f"the end of the processes {watched}")


@contextmanager
def no_leftovers(within_s: float = PATIENCE_S) -> Iterator[None]:
    """Require that what the body started below this process is gone soon after the body.

    Raises:
        AssertionError: a process that was not there before still runs `within_s` seconds after the body.
    """
    # It forks for all tests, and is not taken for something that the first of them left.
    fork_server()
    before = descendants()
    yield
    left: dict[int, str] = {}

    def none_left() -> bool:
        nonlocal left
        left = {pid: line for pid, line in descendants().items() if pid not in before}
        return not left

    try:
        eventually(none_left, within_s)
    except AssertionError:
        raise AssertionError(f"left behind: {left}") from None
