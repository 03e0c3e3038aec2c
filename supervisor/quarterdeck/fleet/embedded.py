"""Run a server's session inside this process: no worker, no isolation, and `status()` says so.

What is driven is the worker's own code over an in-memory link, so that an endpoint cannot tell the difference; the
session itself is made by a `session_factory`, or here over a transport of the SDK, entered and left in one task as the
SDK demands.
"""

import asyncio
import secrets
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, TypeVar

import anyio
from mcp.client.session import ClientSession

from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.faults import FaultKind, FaultRecord, RemoteCause
from quarterdeck_protocol.identity import CLIENT_VERSION
from quarterdeck_protocol.io import LinkDriver
from quarterdeck_protocol.link.events import Side
from quarterdeck_protocol.link.frames import OpenOrder, StdioServer
from quarterdeck_protocol.link.session import Link
from quarterdeck_worker.remote.faults import root_cause
from quarterdeck_worker.remote.run import adopt_session, run_streams
from quarterdeck_worker.server import ServerFault, ServerRun
from quarterdeck_worker.worker import Worker

from .worker_session import ALL_CAPABILITIES, Session
from .workers.handle import WorkerHandle, WorkerListener

EXIT_S: Final = 10.0
"""How long the session may take to close; the SDK's own takes up to seven seconds over stdio."""

SessionFactory = Callable[[], AbstractAsyncContextManager[ClientSession]]
"""Yields an initialised or adopted session; entered once."""

Transport = Callable[[], AbstractAsyncContextManager[tuple[Any, Any]]]
"""Yields the client's read and write streams, as the SDK's transports do; entered once."""

Made = TypeVar("Made")


class MemoryWay:
    """One direction of an in-memory channel; a message arrives in the loop's next turn, as it would from a socket."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.receive: Callable[[Sequence[bytes]], None] = lambda _: None

    def send(self, parts: Sequence[bytes]) -> None:
        """See `Way`."""
        self._loop.call_soon(lambda: self.receive(parts))

    def drain(self) -> None:
        """See `Way`: nothing ever waits."""


class OwnSession(Session, Generic[Made]):
    """A session in this process, over what `make` yields."""

    isolated = False

    def __init__(self, config: ServerConfig, make: Callable[[], AbstractAsyncContextManager[Made]]) -> None:
        """Take no place yet.

        Raises:
            ValueError: the configuration asks for what only a worker can give.
        """
        for name in ("cwd", "restart", "sandbox"):
            if name in config.model_fields_set:
                raise ValueError(f"{name} does not apply to a session made in this process: leave it out")
        self._config = config
        self._make = make
        self._handle: WorkerHandle | None = None
        self._owner: asyncio.Task[None] | None = None

    async def start(self, listener: WorkerListener) -> WorkerHandle:
        """See `Session`."""
        loop = asyncio.get_running_loop()
        to_worker, to_supervisor = MemoryWay(), MemoryWay()
        token = secrets.token_bytes(32)
        handle = self._handle = WorkerHandle(self._config.id, listener)
        ours = Link(Side.SUPERVISOR, token=token, version=CLIENT_VERSION, now=loop.time())
        driver = LinkDriver(ours, to_worker, handle.on_event)
        to_supervisor.receive = driver.receive
        handle.attach(driver)
        owner = self._owner = asyncio.create_task(self._work(token, to_worker, to_supervisor))
        owner.add_done_callback(lambda task: handle.on_exit(0 if not task.cancelled() else 1))
        handle.kill = owner.cancel
        await handle.greeted
        return handle

    def order(self) -> OpenOrder:
        """See `Session`."""
        return OpenOrder(max_result_bytes=self._config.max_result_bytes)

    async def end(self) -> None:
        """See `Session`."""
        if self._owner is not None and self._handle is not None:
            self._owner.cancel()
            await asyncio.wait([self._owner], timeout=EXIT_S)
            self._handle.driver.close()

    async def _work(self, token: bytes, to_worker: MemoryWay, to_supervisor: MemoryWay) -> None:
        loop = asyncio.get_running_loop()
        theirs = Link(Side.WORKER, token=token, version=CLIENT_VERSION, now=loop.time())
        async with anyio.create_task_group() as tasks:
            worker = Worker(tasks, self._run, loop.time)
            driver = LinkDriver(theirs, to_supervisor, worker.on_event)
            to_worker.receive = driver.receive
            worker.attach(driver)
            try:
                await worker.finished.wait()
                # The last frames leave in the loop's next turns.
                await asyncio.sleep(0)
                tasks.cancel_scope.cancel()
            finally:
                driver.close()

    async def _run(self, order: OpenOrder, run: ServerRun) -> None:
        code, what = "spawn_failed", "the session could not be made"
        try:
            async with self._make() as made:
                code, what = "server_lost", "the session broke"
                await self._serve(made, order, run)
        except Exception as error:
            cause = root_cause(error)
            if isinstance(cause, ServerFault):
                raise cause from None
            message = f"{what}: {cause or type(cause).__name__}"
            raise ServerFault(FaultRecord(FaultKind.TRANSPORT, message, code, cause=RemoteCause.of(cause))) from error

    @abstractmethod
    async def _serve(self, made: Made, order: OpenOrder, run: ServerRun) -> None:
        """Serve on what was made until `run.stop`."""


class EmbeddedSession(OwnSession[ClientSession]):
    """A session that others made and greeted."""

    async def _serve(self, made: ClientSession, order: OpenOrder, run: ServerRun) -> None:
        await adopt_session(made, run, order.max_result_bytes)


class TransportSession(OwnSession[tuple[Any, Any]]):
    """A session over streams that others connected: greeted here, as a remote server is."""

    def order(self) -> OpenOrder:
        """See `Session`."""
        agreed = (self._config.protocol, self._config.max_result_bytes)
        return OpenOrder(StdioServer(), *agreed, capabilities=ALL_CAPABILITIES)

    async def _serve(self, made: tuple[Any, Any], order: OpenOrder, run: ServerRun) -> None:
        await run_streams(*made, order, run)
