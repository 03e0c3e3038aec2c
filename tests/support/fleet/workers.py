"""Workers that a test plays by hand: the far end of a handle's link, without a process, a socket or a server."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

import anyio
import msgspec

from quarterdeck.fleet.embedded import MemoryWay
from quarterdeck.fleet.worker_session import Session
from quarterdeck.fleet.workers.handle import WorkerHandle, WorkerListener
from quarterdeck_protocol.faults import Dossier, FaultRecord, ProtocolFault
from quarterdeck_protocol.io import LinkDriver
from quarterdeck_protocol.link import frames
from quarterdeck_protocol.link.events import Arrived, Expired, Greeted, LinkEvent, LinkTerms, Side
from quarterdeck_protocol.link.session import Link
from support.waiting import PATIENCE_S

TOKEN: Final = b"a token of a test's"

CARD: Final = frames.ServerCard("2025-11-25", pid=4711, name="played", announces=("tools",))
"""What a played server says of itself."""

Asked = TypeVar("Asked", frames.Open, frames.List, frames.Call, frames.Forward, frames.Close)

Rule = Callable[["PlayedWorker", Any, bytes], None]
"""Answers one kind of request: the worker, the request, its body."""


class PlayedWorker:
    """The worker's end of one link.  Requests without a rule wait in `asked` for the test's answer."""

    def __init__(self, *, terms: LinkTerms | None = None) -> None:
        self.rules: dict[type, Rule] = {}
        self.asked: asyncio.Queue[tuple[frames.Request, bytes]] = asyncio.Queue()
        self.cancelled: asyncio.Queue[frames.Cancel] = asyncio.Queue()
        self.condemned: asyncio.Queue[frames.Condemn] = asyncio.Queue()
        self.told: asyncio.Queue[tuple[frames.Told, bytes]] = asyncio.Queue()
        self.greeted = asyncio.Event()
        self.kills = 0
        self.terms = terms
        self.to_worker, self.to_supervisor = MemoryWay(), MemoryWay()
        self._handle: WorkerHandle | None = None
        self._driver: LinkDriver | None = None

    @property
    def handle(self) -> WorkerHandle:
        """The supervisor's side of it, once hired."""
        assert self._handle is not None
        return self._handle

    @property
    def driver(self) -> LinkDriver:
        """Its own end of the link, once it was born."""
        assert self._driver is not None
        return self._driver

    def hired(self, name: str, listener: WorkerListener, *, is_born: bool = True) -> WorkerHandle:
        """The handle on it; without `is_born` it never says hello."""
        loop = asyncio.get_running_loop()
        handle = self._handle = WorkerHandle(name, listener)
        link = Link(Side.SUPERVISOR, token=TOKEN, version="1", now=loop.time(), terms=self.terms)
        driver = LinkDriver(link, self.to_worker, handle.on_event)
        self.to_supervisor.receive = driver.receive
        handle.attach(driver)
        handle.kill = self._on_kill
        handle.pid = 42
        if is_born:
            theirs = Link(Side.WORKER, token=TOKEN, version="1", now=loop.time(), terms=self.terms, pid=42)
            self._driver = LinkDriver(theirs, self.to_supervisor, self._on_event)
            self.to_worker.receive = self._driver.receive
        return handle

    def dies(self, returncode: int | None = -9) -> None:
        """Its process is gone."""
        self.handle.on_exit(returncode)
        if self._driver is not None:
            self._driver.close()

    def leaves(self) -> None:
        """Stop both ends' timers, at a test's end."""
        self.handle.driver.close()
        if self._driver is not None:
            self._driver.close()

    async def next(self, kind: type[Asked]) -> tuple[Asked, bytes]:
        """The next request, which must be of this kind."""
        with anyio.fail_after(PATIENCE_S):
            frame, body = await self.asked.get()
        assert isinstance(frame, kind), f"asked {frame} instead"
        return frame, body

    async def next_told(self) -> tuple[frames.Told, bytes]:
        """The next of what has no reply."""
        with anyio.fail_after(PATIENCE_S):
            return await self.told.get()

    async def next_cancel(self) -> frames.Cancel:
        with anyio.fail_after(PATIENCE_S):
            return await self.cancelled.get()

    def answer(self, request: frames.Request, body: bytes = b"", **members: Any) -> None:
        self.driver.reply(frames.Answer(request.request_id, **members), body)

    def fail(self, request: frames.Request, fault: FaultRecord) -> None:
        self.driver.reply(frames.Failed(request.request_id, fault))

    def says(self, news: frames.News, body: bytes = b"") -> None:
        assert self.driver.post(news, body)

    def _on_kill(self) -> None:
        self.kills += 1
        asyncio.get_running_loop().call_soon(self.dies)

    def _on_event(self, event: LinkEvent) -> None:
        match event:
            case Greeted():
                self.greeted.set()
            case Arrived(frame=frames.Cancel() as cancel):
                self.cancelled.put_nowait(cancel)
            case Arrived(frame=frames.Condemn() as order):
                self.condemned.put_nowait(order)
            case Arrived(frame=frames.AskAnswer() | frames.Tell() | frames.Listen() as told, body=body):
                self.told.put_nowait((told, body))
            case Arrived(frame=frame, body=body):
                assert isinstance(frame, frames.Request)
                rule = self.rules.get(type(frame))
                if rule is None:
                    self.asked.put_nowait((frame, body))
                else:
                    rule(self, frame, body)
            case Expired():
                # On a busy machine a request with a short deadline is read after it; its sender has its own clock.
                pass
            case _:
                raise AssertionError(f"the played worker heard {event}")


def opens(worker: PlayedWorker, request: frames.Open, body: bytes) -> None:
    msgspec.json.decode(body, type=frames.OpenOrder)
    worker.answer(request, msgspec.json.encode(CARD), era=CARD.era)


def opens_as(card: frames.ServerCard) -> Rule:
    def rule(worker: PlayedWorker, request: frames.Open, _: bytes) -> None:
        worker.answer(request, msgspec.json.encode(card), era=card.era)

    return rule


def lists_of(**items: list[dict[str, object]]) -> Rule:
    """A rule: these items of each kind, none of the others."""

    def rule(worker: PlayedWorker, request: frames.List, _: bytes) -> None:
        worker.answer(request, msgspec.json.encode(items.get(request.kind, [])))

    return rule


def lists(*names: str) -> Rule:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]

    def rule(worker: PlayedWorker, request: frames.List, _: bytes) -> None:
        worker.answer(request, msgspec.json.encode(tools))

    return rule


def closes(worker: PlayedWorker, request: frames.Close, _: bytes) -> None:
    worker.answer(request, msgspec.json.encode(Dossier()))
    asyncio.get_running_loop().call_soon(worker.dies, 0)


class PlayedSession(Session):
    """A session whose worker a test plays: it opens, lists nothing and closes by itself unless told otherwise."""

    isolated = True

    def __init__(self, *, fault: ProtocolFault | None = None) -> None:
        self.worker = PlayedWorker()
        self.worker.rules = {frames.Open: opens, frames.List: lists(), frames.Close: closes}
        self.limited: list[frames.ServerStart] = []
        self.ended = 0
        self.may_end = asyncio.Event()
        self.may_end.set()
        self._fault = fault

    async def start(self, listener: WorkerListener) -> WorkerHandle:
        if self._fault is not None:
            raise self._fault
        handle = self.worker.hired("played", listener)
        await handle.greeted
        return handle

    def order(self) -> frames.OpenOrder:
        return frames.OpenOrder()

    def enforce_limits(self, start: frames.ServerStart) -> None:
        """See `Session`: nobody looks."""
        self.limited.append(start)

    async def end(self) -> None:
        self.ended += 1
        await self.may_end.wait()
        if self.worker._handle is not None:
            self.worker.leaves()
