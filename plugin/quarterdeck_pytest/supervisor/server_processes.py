"""Find the processes that outlive a server which is stopped, and those that outlive its sandbox.

A sandbox ends all that its server has started, at the moment in which the server ends: nobody would see that a server
leaves processes behind, which it does where nothing confines it.  So what keeps the tree (the first process of the PID
namespace, or the reaper) is stopped while the server ends, and what still runs then is named.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import psutil

from quarterdeck.common.words import flat
from quarterdeck_protocol.contract import EndpointStatus

GONE_S: Final = 20.0
"""How long a process of a stopped server may still be on its way out, on a busy machine, before it counts as left."""

ENDING_S: Final = 1.4
"""How long a server may take to end once its stdin is closed: one that is slower is not judged.

With `OUTLIVING_S` less than the two seconds after which its worker sends SIGTERM to all of its group.
"""

OUTLIVING_S: Final = 0.5
"""How long after its server a process may still be on its way out: a browser closes when its pipe does."""


@dataclass(frozen=True, slots=True)
class EndWatch:
    """The end of one server, whose tree is kept until `outlived` was awaited.

    Attributes:
        program: the server's first process.
        keeper: its parent, which ends the rest of the tree; stopped.
    """

    server: str
    program: psutil.Process
    keeper: psutil.Process

    async def outlived(self) -> list[str]:
        """Wait until the server has ended, `ENDING_S` at most; the processes that outlive it, one line each."""
        try:
            with anyio.move_on_after(ENDING_S) as waiting:
                await _ended(self.program.pid)
            if waiting.cancelled_caught:
                return []
            with anyio.move_on_after(OUTLIVING_S):
                while others := self._others():
                    for each in others:
                        await _ended(each.pid)
            return [
                f"{describe_process(each)} of server {self.server!r}, which outlived it: its sandbox ended it"
                for each in self._others()
            ]
        finally:
            with suppress(psutil.Error):
                self.keeper.resume()

    def _others(self) -> list[psutil.Process]:
        """The processes of the tree that run, except the server's first one."""
        found = []
        with suppress(psutil.Error):
            found = self.keeper.children(recursive=True)
        return [each for each in found if each != self.program and _runs(each)]


def watch_ends(servers: Iterable[EndpointStatus]) -> list[EndWatch]:
    """Keep the trees of the servers that run, each until its watch was awaited; to be called before they are stopped.

    Empty where the system tells no end of a process that is another's child.
    """
    watches: list[EndWatch] = []
    for status in servers if hasattr(os, "pidfd_open") else ():
        with suppress(psutil.Error):
            if status.pid is not None:
                program = psutil.Process(status.pid)
                keeper = program.parent()
                if keeper is not None and keeper.pid != status.worker_pid:
                    keeper.suspend()
                    watches.append(EndWatch(status.server, program, keeper))
    return watches


def processes_of(servers: Iterable[EndpointStatus]) -> list[psutil.Process]:
    """All processes of the servers and their workers."""
    found: dict[int, psutil.Process] = {}
    for status in servers:
        if status.worker_pid is not None:
            try:
                worker = psutil.Process(status.worker_pid)
                found |= {process.pid: process for process in (worker, *worker.children(recursive=True))}
            except psutil.NoSuchProcess:
                continue
    return list(found.values())


def processes_left(known: Iterable[psutil.Process], homes: Path) -> list[psutil.Process]:
    """Of the processes that were known, and of those whose home is below `homes`, those that do not end.  Blocking.

    A server that did not start, or what has forked away from one, is known by its home alone.
    """
    processes = {process.pid: process for process in (*known, *_living_below(homes))}
    left: list[psutil.Process] = psutil.wait_procs([*processes.values()], GONE_S if processes else 0)[1]
    return left


def describe_process(process: psutil.Process) -> str:
    """The process by its id and its command line."""
    try:
        name = " ".join(process.cmdline())[:200] or process.name()
    except psutil.Error:
        name = "whose command line cannot be read"
    return f"process {process.pid} ({flat(name)})"


async def _ended(pid: int) -> None:
    """Wait until a process has ended, whether or not its parent has noticed."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await anyio.wait_readable(fd)
    finally:
        os.close(fd)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _living_below(folder: Path) -> list[psutil.Process]:
    """The processes whose home is below this folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("HOME", "").startswith(f"{folder}/"):
                found.append(process)
    return found
