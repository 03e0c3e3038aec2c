"""Run a server's session inside this process: no worker, no isolation, and `status()` says so.

What is driven is the worker's own code over an in-memory link, so that an endpoint cannot tell the difference; the
session itself is made by a `session_factory`, entered and left in one task as the SDK demands.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

import anyio
from mcp.client.session import ClientSession

from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.faults import FaultKind, FaultRecord, RemoteCause
from quarterdeck_protocol.identity import CLIENT_VERSION
from quarterdeck_protocol.io import LinkDriver
from quarterdeck_protocol.link.events import Side
from quarterdeck_protocol.link.frames import OpenOrder
from quarterdeck_protocol.link.session import Link
from quarterdeck_worker.remote.faults import root_cause
from quarterdeck_worker.remote.run import adopt_session
from quarterdeck_worker.server import ServerFault, ServerRun
from quarterdeck_worker.worker import Worker

from .handle import WorkerHandle, WorkerListener
from .worker_session import Session

EXIT_S: Final = 10.0
"""How long the session may take to close; the SDK's own takes up to seven seconds over stdio."""

SessionFactory = Callable[[], AbstractAsyncContextManager[ClientSession]]
"""Yields an initialised or adopted session; entered once."""


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


class EmbeddedSession(Session):
    """A session in this process."""

    isolated = False

    def __init__(self, config: ServerConfig, session_factory: SessionFactory) -> None:
        """Take no place yet.

        Raises:
            ValueError: the configuration asks for what only a worker can give.
        """
        for name in ("cwd", "restart", "sandbox"):
            if name in config.model_fields_set:
                raise ValueError(f"{name} does not apply to a session made in this process: leave it out")
        self._config = config
        self._factory = session_factory
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

    async def _run(self, _: OpenOrder, run: ServerRun) -> None:
        code, what = "spawn_failed", "the session could not be made"
        try:
            async with self._factory() as session:
                code, what = "server_lost", "the session broke"
                await adopt_session(session, run, self._config.max_result_bytes)
        except Exception as error:
            cause = root_cause(error)
            if isinstance(cause, ServerFault):
                raise cause from None
            message = f"{what}: {cause or type(cause).__name__}"
            raise ServerFault(FaultRecord(FaultKind.TRANSPORT, message, code, cause=RemoteCause.of(cause))) from error
