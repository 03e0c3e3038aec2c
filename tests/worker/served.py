"""A worker over a server that a test plays: its run, its calls and its lists."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
from support.fleet.workers import CARD
from support.waiting import PATIENCE_S, turns

from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord
from quarterdeck_protocol.link import frames
from quarterdeck_protocol.link.events import Arrived
from quarterdeck_protocol.mcp.jsonrpc import SplitResult
from quarterdeck_worker.server import ServerRun
from quarterdeck_worker.worker import Worker

EXITED = FaultRecord(FaultKind.TRANSPORT, "it exited", "exited", dossier=Dossier(exit_status=3))
NO_COMMAND = FaultRecord(FaultKind.SPAWN_FAILED, "no such command", "command_not_found", Delivery.NOT_SENT)
ORDER = frames.OpenOrder(env={"A": "1"}, home="/home")


class PlayedServer:
    """A server whose run, calls and lists a test plays by hand."""

    def __init__(self) -> None:
        self.card = CARD
        self.orders: list[frames.OpenOrder] = []
        self.begun: dict[int, tuple[frames.Call | frames.Forward, bytes]] = {}
        self.listed: list[str] = []
        self.told: list[object] = []
        self.cancelled: list[tuple[int, str]] = []
        self.opens_by_itself = True
        self.unfit: FaultRecord | None = None
        self.tools: bytes | FaultRecord | None = b"[]"
        self.is_dying = anyio.Event()
        self.fault: Exception | None = None
        self.ended: list[str] = []
        self._run: ServerRun | None = None

    @property
    def run(self) -> ServerRun:
        assert self._run is not None
        return self._run

    async def live(self, order: frames.OpenOrder, run: ServerRun) -> None:
        self.orders.append(order)
        self._run = run
        run.diagnose = lambda: Dossier(uptime_s=1.0)
        try:
            if self.opens_by_itself:
                self.open()
            async with anyio.create_task_group() as tasks:

                async def until(event: anyio.Event) -> None:
                    await event.wait()
                    tasks.cancel_scope.cancel()

                tasks.start_soon(until, run.stop)
                tasks.start_soon(until, self.is_dying)
            if self.fault is not None:
                raise self.fault
        except anyio.get_cancelled_exc_class():
            self.ended.append("cancelled")
            raise
        self.ended.append("stopped")

    def open(self) -> None:
        self.run.on_open(self)  # type: ignore[arg-type]

    def ask(self, request: frames.Call | frames.Forward | frames.List, body: bytes) -> FaultRecord | None:
        if self.unfit is not None:
            return self.unfit
        if not isinstance(request, frames.List):
            self.begun[request.request_id] = request, body
            return None
        self.listed.append(request.kind)
        if self.tools is not None:
            outcome = SplitResult(self.tools) if isinstance(self.tools, bytes) else self.tools
            self.run.on_end(request.request_id, outcome)
        return None

    def answer(self, answer: frames.AskAnswer, body: bytes) -> None:
        self.told.append((answer, body))

    def tell(self, method: str, params: bytes) -> None:
        self.told.append((method, params))

    def listen(self, uris: tuple[str, ...]) -> None:
        self.told.append(uris)

    def cancel(self, request_id: int, reason: str) -> None:
        self.cancelled.append((request_id, reason))

    def answers(self, request_id: int, outcome: SplitResult | FaultRecord) -> None:
        self.run.on_end(request_id, outcome)


class Stage:
    """A worker, its server, and what it said."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.server = PlayedServer()
        self.replies: dict[int, tuple[frames.Reply, bytes]] = {}
        self.posted: list[frames.News] = []
        self.pauses: list[str] = []
        self.worker = Worker(tasks, self.server.live, lambda: 0.0)
        self.worker.attach(self)

    def reply(self, frame: frames.Reply, body: bytes = b"") -> None:
        assert frame.request_id not in self.replies, "a request was answered twice"
        self.replies[frame.request_id] = frame, body

    def post(self, frame: frames.News, body: bytes = b"") -> bool:
        self.posted.append(frame)
        return True

    def pause(self) -> None:
        self.pauses.append("pause")

    def resume(self) -> None:
        self.pauses.append("resume")

    async def hears(self, frame: frames.Request | frames.Cancel | frames.Told, body: bytes = b"") -> None:
        """Something arrives; what follows from it happens."""
        self.worker.on_event(Arrived(frame, body))
        await turns()

    async def opens(self) -> None:
        await self.hears(frames.Open(1, 60.0), msgspec.json.encode(ORDER))

    def fault(self, request_id: int) -> FaultRecord:
        """The fault that a request was answered with."""
        reply, body = self.replies[request_id]
        assert isinstance(reply, frames.Failed)
        assert body == b""
        return reply.fault


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """A worker that has been asked nothing; nothing of it is left at the end."""
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            yield Stage(tasks)
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def opened() -> AsyncIterator[Stage]:
    async with stage() as played:
        await played.opens()
        yield played
