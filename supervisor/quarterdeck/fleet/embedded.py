"""Run a server's session inside this process: no worker, no isolation, and `status()` says so.

It runs the worker's own code over an in-memory link. The session is made by a `session_factory`, or here over a
transport of the SDK, entered and left in one task as the SDK demands.
"""

import asyncio
import secrets
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, TypeVar

import anyio
import anyio.abc
from mcp.client.session import ClientSession

from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.faults import FaultKind, FaultRecord, RemoteCause
from quarterdeck_protocol.identity import CLIENT_VERSION
from quarterdeck_protocol.io import LinkDriver
from quarterdeck_protocol.link.events import Side
from quarterdeck_protocol.link.frames import OpenOrder, StdioServer
from quarterdeck_protocol.link.session import Link
from quarterdeck_protocol.mcp.client.events import GreetingFailed
from quarterdeck_worker.connection import Connection
from quarterdeck_worker.server import ServerFault, ServerRun, be_open
from quarterdeck_worker.worker import Worker

from .sdk_carriers import SessionCarrier, StreamsCarrier
from .worker_session import ALL_CAPABILITIES, Session
from .workers.handle import WorkerHandle, WorkerListener

EXIT_S: Final = 10.0
"""Seconds that the session may take to close; the SDK's own takes up to seven over stdio."""

SessionFactory = Callable[[], AbstractAsyncContextManager[ClientSession]]
"""Yields an initialised or adopted session; entered once."""

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
        """Raise ValueError if the configuration asks for what only a worker can give."""
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
        connection = Connection(order, run.notifier, run.on_end)
        try:
            async with self._make() as made, anyio.create_task_group() as tasks:
                code, what = "server_lost", "the session broke"
                self._carrier(connection, tasks, made).start()
                await _serve(connection, run)
                tasks.cancel_scope.cancel()
        except Exception as error:
            cause: BaseException = error
            while isinstance(cause, BaseExceptionGroup):
                cause = cause.exceptions[0]
            if isinstance(cause, ServerFault):
                raise cause from None
            message = f"{what}: {cause or type(cause).__name__}"
            raise ServerFault(FaultRecord(FaultKind.TRANSPORT, message, code, cause=RemoteCause.of(cause))) from error
        finally:
            connection.close()

    @abstractmethod
    def _carrier(
        self, connection: Connection, tasks: anyio.abc.TaskGroup, made: Made
    ) -> SessionCarrier | StreamsCarrier: ...


async def _serve(connection: Connection, run: ServerRun) -> None:
    outcome = await connection.greeted()
    if outcome is None or isinstance(outcome, GreetingFailed):
        raise RuntimeError("its connection is closed" if outcome is None else outcome.message)

    async def lost() -> FaultRecord:
        await connection.ended.wait()
        return FaultRecord(FaultKind.TRANSPORT, "the session's connection is closed", "server_lost")

    await be_open(connection, run, lost)


class EmbeddedSession(OwnSession[ClientSession]):
    """A session that was made and greeted elsewhere."""

    def _carrier(self, connection: Connection, tasks: anyio.abc.TaskGroup, made: ClientSession) -> SessionCarrier:
        return SessionCarrier(connection, tasks, made)


class TransportSession(OwnSession[tuple[Any, Any]]):
    """A session over streams that were connected elsewhere: greeted here, as a remote server is."""

    def order(self) -> OpenOrder:
        """See `Session`."""
        agreed = (self._config.protocol, self._config.max_result_bytes)
        return OpenOrder(StdioServer(), *agreed, capabilities=ALL_CAPABILITIES)

    def _carrier(self, connection: Connection, tasks: anyio.abc.TaskGroup, made: tuple[Any, Any]) -> StreamsCarrier:
        return StreamsCarrier(connection, tasks, *made)
