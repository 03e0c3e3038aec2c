"""Inject faults into a running server: signal its processes, write junk to its stdout, kill its worker.

All of it acts on the real process, from outside of its sandbox, and without the product's knowledge.
"""

import asyncio
import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

from quarterdeck.common.watchers import wait_until
from quarterdeck.interop import ServerEndpointImpl, ServerFleetImpl
from quarterdeck_protocol.contract import EndpointPhase

from .wishes import WishError

NOTICED_S: Final = 30.0  # seconds to notice that a server is lost: a busy machine has to schedule its worker
JUNK: Final = b"this is no message of the protocol \xff\xfe{]\n"  # a line that is neither JSON nor UTF-8
LOOK_S: Final = 0.002  # seconds between checks for a server that starts, to stop it at once


async def kill(fleet: ServerFleetImpl, server: str) -> None:
    """Kill the server with SIGKILL, and wait until that is noticed."""
    endpoint, pid = running(fleet, server)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    await _until_lost(endpoint)


async def drop_connection(fleet: ServerFleetImpl, server: str) -> None:
    """Kill the worker, which closes all pipes of the server, and wait until that is noticed."""
    endpoint, _ = running(fleet, server)
    worker = endpoint.status().worker_pid
    if worker is not None:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    await _until_lost(endpoint)


def stop(fleet: ServerFleetImpl, server: str) -> None:
    """Stop all processes of the server (SIGSTOP): it neither reads nor answers."""
    _signal_tree(running(fleet, server)[1], signal.SIGSTOP)


def resume(fleet: ServerFleetImpl, server: str) -> None:
    """Resume a stopped server; nothing where it is gone."""
    status = fleet.status_of(server)
    if status is not None and status.pid is not None:
        _signal_tree(status.pid, signal.SIGCONT)


@contextmanager
def stopped(fleet: ServerFleetImpl, server: str) -> Iterator[None]:
    """Stop the server within the block."""
    stop(fleet, server)
    try:
        yield
    finally:
        resume(fleet, server)


async def write_junk(fleet: ServerFleetImpl, server: str, size_bytes: int) -> None:
    """Write about so many bytes of junk lines, at least one, to the server's stdout. Raise `WishError` without one."""
    _, pid = running(fleet, server)
    count = max(1, size_bytes // len(JUNK))
    try:
        await asyncio.to_thread(_write, Path(f"/proc/{pid}/fd/1"), count)
    except BrokenPipeError:
        pass  # whoever read it had enough
    except OSError as error:
        why = error.strerror or error
        raise WishError(f"{server}: nothing can be written into its output from outside here: {why}") from None


async def start_slowly(fleet: ServerFleetImpl, server: str, seconds: float) -> None:
    """Restart the server, and stop it for so long as soon as its process exists. Returns when it is resumed."""
    before = fleet.endpoint(server)
    await fleet.restart(server)
    while (endpoint := fleet.endpoint(server)) is before or endpoint is None or endpoint.confined is None:
        if endpoint is not before and endpoint is not None and endpoint.phase is EndpointPhase.FAULTED:
            return
        await asyncio.sleep(LOOK_S)
    pid = endpoint.confined.start.pid
    _signal_tree(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        _signal_tree(pid, signal.SIGCONT)


def running(fleet: ServerFleetImpl, server: str) -> tuple[ServerEndpointImpl, int]:
    """Return the endpoint and the process of a server. Raise `WishError` unless it is ready and has a process."""
    endpoint = fleet.endpoint(server)
    status = endpoint.status() if endpoint is not None else None
    if endpoint is None or status is None or status.phase is not EndpointPhase.READY:
        phase = status.phase if status is not None else "not there"
        raise WishError(f"{server} is {phase}: only a server that is ready can be harmed")
    if status.pid is None:
        raise WishError(f"{server} is no process of this machine: only one that is can be harmed")
    return endpoint, status.pid


async def _until_lost(endpoint: ServerEndpointImpl) -> None:
    await wait_until(endpoint.watch, lambda: endpoint.phase is not EndpointPhase.READY, NOTICED_S)


def _signal_tree(pid: int, signal_number: int) -> None:
    """Signal a process and its descendants."""
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        for process in (top, *top.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal_number)


def _write(pipe: Path, count: int) -> None:
    """Write in pieces that are atomic in a pipe; blocks until they are read, or the reader ends."""
    with pipe.open("wb", buffering=0) as output:
        while count > 0:
            lines = min(count, select.PIPE_BUF // len(JUNK))
            output.write(JUNK * lines)
            count -= lines
