"""What all endpoints of one event loop share: the runtime directory, the ROUTER socket, the source of workers.

Started with the first endpoint that needs it and stopped by the last release; embedding programs see no signal handler,
no subreaper and no foreign `waitpid` of ours.
"""

import asyncio
import logging
import os
import secrets
import weakref
from collections.abc import Coroutine
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from quarterdeck.common.imports import imported
from quarterdeck.common.shielding import made_in_thread
from quarterdeck.config.places.paths import RUNTIME_DIR_VARIABLE, configuration_digest, writing_below
from quarterdeck.config.places.runtime_directory import RuntimeDirectory, sweep_stale
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.identity import CLIENT_VERSION
from quarterdeck_protocol.io import LinkDriver
from quarterdeck_protocol.link.events import Side
from quarterdeck_protocol.link.frames import MAX_RESULT_BYTES, OpenOrder, ServerStart
from quarterdeck_protocol.link.session import Link
from quarterdeck_protocol.spawn_orders import SpawnOrder
from quarterdeck_sandbox import TreeMonitor, sweep_cgroups, try_cgroups, waited_s

from .handle import WorkerHandle, WorkerListener
from .interpreters import forks_workers, has_early_zygote
from .placement import FreshPlacement, OnExit, Placement, SpawnedWorker, ZygotePlacement
from .router import SOCKET_NAME, Router

if TYPE_CHECKING:
    from .prepared_launches import PreparedLaunches

IDLE_S: Final = 20.0
"""Seconds after which a zygote without workers is ended: with all servers asleep it would hold 40 MiB for nothing."""

_log = logging.getLogger("quarterdeck.fleet")


class Runtime:
    """The endpoints' common runtime; made by `acquire` only."""

    def __init__(self, directory: RuntimeDirectory) -> None:
        self.directory = directory
        self._users = 0
        self._generation = 0
        self._router = Router(directory.socket_path(SOCKET_NAME))
        self._source: Placement | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._monitor: TreeMonitor | None = None
        self._watching: asyncio.Task[None] | None = None
        self._launches: PreparedLaunches | None = None
        self._idle: asyncio.TimerHandle | None = None

    @classmethod
    async def acquire(cls, digest: str | None = None) -> "Runtime":
        """Return the loop's runtime, with one more user. `digest` names the configuration of the first user; servers'
        private directories are kept by it. Raise UnsafePathError if a directory is not ours alone, or cannot be written
        to.
        """
        loop = asyncio.get_running_loop()
        async with _locks.setdefault(loop, asyncio.Lock()):
            runtime = _runtimes.get(loop)
            if runtime is None:
                directory = await _make_directory(digest or configuration_digest(()))
                try:
                    with writing_below(directory.path, RUNTIME_DIR_VARIABLE):
                        runtime = _runtimes[loop] = cls(directory)
                except BaseException:
                    directory.close()
                    raise
            runtime._users += 1
            if has_early_zygote():
                runtime.warm_up()  # takes it, so that it is ended with us
            return runtime

    async def release(self) -> None:
        """Give up one use; the last one ends the workers and removes the directory."""
        loop = asyncio.get_running_loop()
        async with _locks[loop]:
            self._users -= 1
            if self._users:
                return
            del _runtimes[loop]
            if self._idle is not None:
                self._idle.cancel()
            if self._source is not None:
                await self._source.close()
            if self._watching is not None:
                self._watching.cancel()
            if self._launches is not None:
                self._launches.close()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._router.close()
            await asyncio.to_thread(self.directory.close)

    async def start_worker(
        self, name: str, listener: WorkerListener, max_result_bytes: int = MAX_RESULT_BYTES, *, is_remote: bool = False
    ) -> WorkerHandle:
        """Return a new worker that has proved itself, and may send results of at most `max_result_bytes`; `is_remote`
        for a server behind a URL. Raise ProtocolFault (`spawn_failed`) if none could be started or it died first.
        """
        self._generation += 1
        handle = WorkerHandle(name, listener)
        token = secrets.token_bytes(32)
        # How long its start may take is the placement's to judge: on a busy machine a zygote starts for half a minute.
        link = Link(Side.SUPERVISOR, token=token, version=CLIENT_VERSION, now=inf)
        way = self._router.expect(token, handle.violated, max_result_bytes)
        driver = LinkDriver(link, way, handle.on_event)
        way.receive = driver.receive
        handle.attach(driver)
        handle.forget = lambda: self._router.forget(token, way)
        try:
            order = SpawnOrder(self._generation, self._router.address, token.hex(), is_remote)
            worker = await self._spawn(order, partial(self._exited, handle.on_exit))
            self._look_when_idle()
            handle.pid, handle.kill = worker.pid, worker.kill
            driver.expect(partial(waited_s, worker.pid))
            await handle.greeted
        except OSError as error:
            driver.close()
            handle.forget()
            why = f"no worker can be started: {error}"
            raise ProtocolFault.not_sent(FaultKind.SPAWN_FAILED, why, "worker_lost", error) from error
        except BaseException:
            handle.kill()
            driver.close()
            handle.forget()
            raise
        return handle

    async def _spawn(self, order: SpawnOrder, on_exit: OnExit) -> SpawnedWorker:
        try:
            return await self._workers().spawn(order, on_exit)
        except OSError as error:
            # The zygote died since it was last needed: nothing was started, and another one is.
            _log.debug("starting another zygote: %s", error)
            return await self._workers().spawn(order, on_exit)

    def _workers(self) -> Placement:
        if self._source is None:
            self._source = ZygotePlacement(self._zygote_lost) if forks_workers() else FreshPlacement()
            self._start(imported(f"{__package__}.prepared_launches"))  # while the zygote imports
        return self._source

    def _exited(self, on_exit: OnExit, returncode: int | None) -> None:
        on_exit(returncode)
        self._look_when_idle()

    def _look_when_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        if self._users:
            self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end_idle)

    def _end_idle(self) -> None:
        """End the zygote if it has no worker; the next start makes another."""
        self._idle = None
        if self._source is not None and self._source.is_idle:
            source, self._source = self._source, None
            self._start(source.close())

    def _zygote_lost(self, workers: int) -> None:
        _log.error("the zygote died, and its %d workers with it; another one is started for the next", workers)
        lost, self._source = self._source, None
        assert lost is not None
        self._start(lost.close())
        if workers:  # which are wanted again; a zygote that died before it had any might do so for ever
            self._workers()

    async def prepare(self, order: OpenOrder) -> OpenOrder:
        """Return the order with what its worker need not find out; after `start_worker`."""
        if self._launches is None:
            machine = self._source.machine if self._source is not None else None
            if machine is None:
                return order
            from .prepared_launches import PreparedLaunches  # which servers that sleep do without

            self._launches = PreparedLaunches(machine)
        return await self._launches.add_to(order)

    def note_start(self, start: ServerStart) -> None:
        """Note a server's start; if it differed from the preparation, nothing that was prepared is used again."""
        if start.changed and self._launches is not None:
            _log.debug("%s has changed since sandboxes were laid out: doing it anew", start.changed)
            self._launches.forget()

    @property
    def monitor(self) -> TreeMonitor:
        """The monitor that holds confined servers to their limits; it starts with the first of them."""
        if self._monitor is None:
            self._monitor = TreeMonitor()
            self._watching = self._start(self._monitor.run())
        return self._monitor

    def warm_up(self) -> None:
        """Start the zygote now, so that it imports while we do; harmless after the last user has left."""
        if self._users:
            self._workers()
            self._look_when_idle()

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _make_directory(digest: str) -> RuntimeDirectory:
    def make() -> RuntimeDirectory:
        sweep_stale()
        # What a worker that was killed could not remove: groups outlive even their last process.
        sweep_cgroups(try_cgroups(os.geteuid()))
        return RuntimeDirectory.create(digest)

    return await made_in_thread(make, RuntimeDirectory.close)


_runtimes: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Runtime]] = weakref.WeakKeyDictionary()
_locks: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]] = weakref.WeakKeyDictionary()
