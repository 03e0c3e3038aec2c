"""Find the processes that outlive a stopped server, and those that outlive its sandbox.

When a server ends, its sandbox ends all processes that the server started.  This hides a server that leaves processes
behind when it runs unconfined.  So the keeper of the tree (the first process of the PID namespace, or the reaper) is
suspended while the server ends.  The processes that still run then are reported.
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

GONE_S: Final = 20.0  # seconds for a process of a stopped server to exit on a busy machine, before it counts as left
ENDING_S: Final = 1.4
"""Seconds that a server may take to end once its stdin is closed; a slower server is not judged.

The sum with `OUTLIVING_S` stays below two seconds: then the worker sends SIGTERM to the server's whole group.
"""

OUTLIVING_S: Final = 0.5  # seconds that a process may take to exit after its server: a browser closes as its pipe does


@dataclass(frozen=True, slots=True)
class EndWatch:
    """The end of one server's `program`; its tree is kept until `outlived` was awaited, then `keeper` ends the rest."""

    server: str
    program: psutil.Process
    keeper: psutil.Process

    async def outlived(self) -> list[str]:
        """Wait at most `ENDING_S` for the server to end. Return one line for each process that outlives it."""
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
        """Return the running processes of the tree, except the server's first one."""
        found = []
        with suppress(psutil.Error):
            found = self.keeper.children(recursive=True)
        return [each for each in found if each != self.program and _runs(each)]


def watch_ends(servers: Iterable[EndpointStatus]) -> list[EndWatch]:
    """Keep the process tree of each running server until its watch was awaited. Call this before stopping the servers.

    Return no watches if the system does not report the end of another process's child.
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
    """Return all processes of the servers and their workers."""
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
    """Return the processes that do not end, among `known` and those with a home below `homes`.  Blocking.

    Only the home identifies a server that did not start, or a process that has forked away from its server.
    """
    processes = {process.pid: process for process in (*known, *_living_below(homes))}
    left: list[psutil.Process] = psutil.wait_procs([*processes.values()], GONE_S if processes else 0)[1]
    return left


def describe_process(process: psutil.Process) -> str:
    """Describe the process by its id and its command line."""
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
    """Return the processes with a home below this folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("HOME", "").startswith(f"{folder}/"):
                found.append(process)
    return found
