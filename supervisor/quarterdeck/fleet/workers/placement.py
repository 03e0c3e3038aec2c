"""Start worker processes, as forks of the zygote or, where fork does not serve, as fresh interpreters."""

import asyncio
import logging
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

import msgspec

from quarterdeck_protocol.spawn_orders import Died, Forked, Report, SpawnOrder
from quarterdeck_sandbox import Machine, is_stopped

from .interpreters import isolated, take_zygote
from .zygote_silence import LOOK_S, ZygoteSilence

EXIT_S: Final = 3.0
"""Seconds that a zygote may take to kill its workers once its socket is closed."""

REPORT_S: Final = 2.0
"""Seconds that a zygote may take to report how a worker ended, once its end was noticed."""

OnExit = Callable[[int | None], None]
"""Takes a worker's return code: a status, or minus the signal; None when unknown."""

_log = logging.getLogger("quarterdeck.fleet")


class SpawnedWorker(msgspec.Struct, frozen=True):
    """A worker's process; `kill` ends that very process, or nothing when it is gone."""

    pid: int
    kill: Callable[[], None]


class Placement(Protocol):
    """Starts workers.  `machine` is what can be enforced where they run, as far as that has been told."""

    machine: Machine | None

    @property
    def is_idle(self) -> bool:
        """Whether no worker runs or is being started."""

    async def spawn(self, order: SpawnOrder, on_exit: OnExit) -> SpawnedWorker:
        """Start a worker; call `on_exit` once, from the loop, when it is gone. Raise OSError if none can be started."""

    async def close(self) -> None:
        """End every worker that is left, and everything that they left."""


class PidHandle:
    """A process that is not our child, by a descriptor that no later process of the same id can take over. On a system
    without such descriptors it is known by its id, and its end is not noticed.
    """

    def __init__(self, pid: int, on_end: Callable[[], None]) -> None:
        """Call `on_end` once, from the running loop, unless closed before or the process is already gone."""
        self._pid = pid
        self._fd = -1
        self._is_gone = False
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        if hasattr(os, "pidfd_open"):
            try:
                self._fd = os.pidfd_open(pid)
            except ProcessLookupError:
                self._is_gone = True
                return
            self._loop.add_reader(self._fd, self._see_end)

    def kill(self) -> None:
        """Kill that very process."""
        with suppress(ProcessLookupError):
            if self._fd >= 0:
                signal.pidfd_send_signal(self._fd, signal.SIGKILL)
            elif not self._is_gone:
                os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """Give the descriptor back: the process is gone.  Repeatable; a `kill` does nothing from here on."""
        self._is_gone = True
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _see_end(self) -> None:
        # The descriptor stays: until the process is waited for, its id is its own, and a kill harms no other.
        self._loop.remove_reader(self._fd)
        self._on_end()


class ZygotePlacement:
    """One zygote process and its forks."""

    def __init__(self, on_lost: Callable[[int], None]) -> None:
        """Start the zygote; do not wait. `on_lost` gets its number of workers if it dies unasked and owes a `close`."""
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._process, ours = take_zygote()
        self._control = ours
        self._starting: dict[int, tuple[asyncio.Future[SpawnedWorker], OnExit]] = {}
        self._exits: dict[int, tuple[OnExit, PidHandle]] = {}
        self._ended: set[int] = set()
        """Generations whose worker is gone, and of which no report has come."""
        self._is_late = False
        """Whether it owes such a report for longer than `REPORT_S`."""
        self._silence = ZygoteSilence()
        self._next_look: asyncio.TimerHandle | None = None
        self._pending = b""
        self._closed = False
        self._is_ready = False
        self.machine: Machine | None = None
        self._decoder = msgspec.json.Decoder(Report)
        self._loop.add_reader(ours, self._readable)

    @property
    def is_idle(self) -> bool:
        """See `Placement`."""
        return not (self._starting or self._exits)

    async def spawn(self, order: SpawnOrder, on_exit: OnExit) -> SpawnedWorker:
        """See `Placement`."""
        if self._closed:
            raise OSError("the zygote is gone")
        start: asyncio.Future[SpawnedWorker] = self._loop.create_future()
        self._starting[order.generation] = start, on_exit
        self._expect_answer()
        try:
            await self._loop.sock_sendall(self._control, msgspec.json.encode(order) + b"\n")
            return await start
        except OSError:
            start.cancel()
            self._lose()
            raise
        except asyncio.CancelledError:
            if start.done() and not start.cancelled() and start.exception() is None:
                start.result().kill()  # started in the very moment in which it was given up
            raise
        finally:
            self._starting.pop(order.generation, None)

    async def close(self) -> None:
        """Close the socket, which is the order to end; kill a zygote that does not obey. One that still imports would
        notice only afterwards; it has forked nothing, but may be probing the machine, and has to tidy up.
        """
        self._hang_up()
        if not self._is_ready:
            self._process.terminate()
        # Not a task, and shielded: the process is waited for whether or not the caller is.
        within_s = 0 if self._is_late else EXIT_S
        await asyncio.shield(self._loop.run_in_executor(None, _wait_or_kill, self._process, within_s))

    def _readable(self) -> None:
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        *lines, self._pending = (self._pending + data).split(b"\n")
        self._silence.answered()
        self._is_late = False
        for line in lines:
            match self._decoder.decode(line):
                case Forked(generation=0, machine=machine):
                    self._is_ready = True
                    self.machine = msgspec.json.decode(machine, type=Machine) if machine else None
                case Forked(generation=generation, pid=pid):
                    self._report_start(generation, pid)
                case Died(generation=generation, returncode=returncode):
                    self._report_exit(generation, returncode)

    def _report_start(self, generation: int, pid: int) -> None:
        start, on_exit = self._starting.get(generation, (None, None))
        if start is None or on_exit is None or start.done():
            # Its order was cancelled; it may have ended by itself.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        else:
            worker = PidHandle(pid, partial(self._see_end, generation))
            self._exits[generation] = on_exit, worker
            start.set_result(SpawnedWorker(pid, worker.kill))

    def _see_end(self, generation: int) -> None:
        """Note that the worker is gone; the zygote reports how, if it does not hang."""
        self._ended.add(generation)
        self._expect_answer()
        self._loop.call_later(REPORT_S, self._miss_report, generation)

    def _miss_report(self, generation: int) -> None:
        if generation in self._ended:
            self._is_late = True
            self._report_exit(generation, None)

    def _expect_answer(self) -> None:
        if self._next_look is None and not self._closed:
            self._silence = ZygoteSilence()
            self._next_look = self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._next_look = None
        if self._closed or not (self._starting or self._ended):
            return
        why = self._silence.look(is_ready=self._is_ready, is_stopped=is_stopped(self._process.pid))
        if why:
            _log.error("the zygote hangs (%s): it is killed", why)
            self._process.kill()  # its socket closes, which is told as any death of it
        else:
            self._next_look = self._loop.call_later(LOOK_S, self._look)

    def _lose(self) -> None:
        if not self._closed:
            # First of all: the next one imports while the ends of this one's workers are dealt with.
            self._on_lost(len(self._exits))
            self._hang_up()

    def _hang_up(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._next_look is not None:
            self._next_look.cancel()
        self._ended.clear()
        self._loop.remove_reader(self._control)
        self._control.close()
        for start, _ in self._starting.values():
            if not start.done():
                start.set_exception(OSError("the zygote died"))
        for generation in list(self._exits):
            self._report_exit(generation, -signal.SIGKILL)

    def _report_exit(self, generation: int, returncode: int | None) -> None:
        if returncode is not None:
            self._ended.discard(generation)
        on_exit, worker = self._exits.pop(generation, (None, None))
        if on_exit is not None and worker is not None:
            worker.close()
            on_exit(returncode)


class FreshPlacement:
    """A fresh interpreter for each worker: about two seconds and fifty megabytes more than a fork."""

    machine: Machine | None = None

    def __init__(self) -> None:
        self._workers: dict[int, tuple[subprocess.Popen[bytes], asyncio.Task[None]]] = {}

    @property
    def is_idle(self) -> bool:
        """See `Placement`."""
        return not self._workers

    async def spawn(self, order: SpawnOrder, on_exit: OnExit) -> SpawnedWorker:
        """See `Placement`."""
        # Not in a thread: cancelled there, an unknown process would be started.
        process = isolated("quarterdeck_worker.main", stdin=subprocess.PIPE)
        assert process.stdin is not None
        # Left open: it closes when we die, and the worker hears of that.
        owner = process.stdin
        owner.write(msgspec.json.encode(order) + b"\n")
        owner.flush()

        async def watch() -> None:
            returncode = await asyncio.to_thread(process.wait)
            owner.close()
            del self._workers[process.pid]
            on_exit(returncode)

        self._workers[process.pid] = (process, asyncio.create_task(watch()))
        return SpawnedWorker(process.pid, process.kill)

    async def close(self) -> None:
        """See `Placement`."""
        for process, _ in self._workers.values():
            process.kill()
        if self._workers:
            await asyncio.wait([task for _, task in self._workers.values()])


def _wait_or_kill(process: subprocess.Popen[bytes], within_s: float) -> None:
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
