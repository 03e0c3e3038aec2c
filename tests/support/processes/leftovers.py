"""Nothing may be left behind: which processes live below this test.

Zombies do not count: they hold nothing, and reaping them is the business of PID 1.  But those of this very process do:
whoever started them has forgotten them.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import glob

import psutil

from support.processes.commands import fork_server
from support.waiting import PATIENCE_S, eventually


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def descendants(pid: int | None = None, besides: frozenset[int] = frozenset()) -> dict[int, str]:
    """The running processes below `pid` (None: below this one) but those of `besides`, as pid -> command line.

    Our own zombies are among them.  Those whose parent died are below PID 1 and not in here: watch them by their pids.
    """
    found = {}
    for one in _below(pid or os.getpid()) - besides:
        try:
            process = psutil.Process(one)
            if process.status() != psutil.STATUS_ZOMBIE:
                found[one] = " ".join(process.cmdline())
            elif process.ppid() == os.getpid():
                found[one] = f"{process.name()}, which nobody waits for"
        except psutil.NoSuchProcess:
            continue
    return found


def _below(pid: int) -> set[int]:
    """By the kernel's lists of children, where it has them: a look at all processes takes fifty times as long."""
    if not glob(f"/proc/{os.getpid()}/task/*/children"):
        return {process.pid for process in psutil.Process(pid).children(recursive=True)}
    found = [pid, pid]  # looked for twice: a list may lack one while another of it ends
    for one in found:
        for children in glob(f"/proc/{one}/task/*/children"):
            with suppress(OSError), open(children) as file:
                found += map(int, file.read().split())
    return {*found} - {pid}


def running_with(text: str) -> dict[int, str]:
    """All running processes with `text` in their command line, as pid -> command line; finds orphans too."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if text in line and is_running(process.pid):
            found[process.pid] = line
    return found


class Newcomers:
    """The processes below this one that were not there when this was made: `left` are those that were found last."""

    def __init__(self) -> None:
        self._before = frozenset(_below(os.getpid()))
        self.left: dict[int, str] = {}

    def are_gone(self) -> bool:
        self.left = descendants(besides=self._before)
        return not self.left


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
    newcomers = Newcomers()
    yield
    try:
        eventually(newcomers.are_gone, within_s)
    except AssertionError:
        raise AssertionError(f"left behind: {newcomers.left}") from None
