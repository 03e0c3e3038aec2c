"""A handle on a worker that a test plays, its owner, and the ends of what was asked."""

import asyncio
from dataclasses import dataclass, field

import anyio
from support.fleet.workers import PlayedWorker
from support.waiting import PATIENCE_S

from quarterdeck.fleet.workers.handle import WorkerHandle
from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord
from quarterdeck_protocol.link.events import LinkTerms, Refusal
from quarterdeck_protocol.link.frames import Asked, AskEnded, Call, Failed, Log, Note, Reply, ServerStart, Updated
from quarterdeck_protocol.tools import ProgressNote, RawCall
from quarterdeck_sandbox.policy.promises import Receipt

REFUSED = FaultRecord(FaultKind.TOOL_ERROR, "no", "reply_error", Delivery.ANSWERED)
EXITED = FaultRecord(FaultKind.TRANSPORT, "it exited", "exited", dossier=Dossier(exit_status=3))


@dataclass
class Owner:
    """Hears of a handle; notes all of it in order."""

    heard: list[object] = field(default_factory=list)

    def on_list_changed(self, kind: str) -> None:
        """See `Listener`."""
        self.heard.append(kind)

    def on_news(self, news: Log | Note | Updated, body: bytes) -> None:
        """See `Listener`."""
        self.heard.append((news, body))

    def on_asked(self, asked: Asked, params: bytes) -> None:
        """See `Listener`."""
        self.heard.append((asked, params))

    def on_ask_ended(self, ask_id: int) -> None:
        """See `Listener`."""
        self.heard.append(AskEnded(ask_id))

    def on_started(self, start: ServerStart, receipt: Receipt) -> None:
        """See `Listener`."""
        self.heard.append((start, receipt))

    def on_lost(self, fault: FaultRecord) -> None:
        """See `Listener`."""
        self.heard.append(fault)

    @property
    def losses(self) -> list[FaultRecord]:
        return [word for word in self.heard if isinstance(word, FaultRecord)]


class Desk:
    """A handle on a played worker, its owner, and the ends of what was asked."""

    def __init__(self, terms: LinkTerms | None = None, *, is_born: bool = True) -> None:
        self.owner = Owner()
        self.worker = PlayedWorker(terms=terms)
        self.handle: WorkerHandle = self.worker.hired("a", self.owner, is_born=is_born)
        self.ended: dict[int, tuple[Reply, bytes]] = {}
        self.notes: list[ProgressNote] = []

    def call(
        self, timeout_s: float = 30.0, body: bytes = b"{}", *, progress: bool = False
    ) -> tuple[int, Refusal | None]:
        frame = Call(self.handle.next_id(), timeout_s, "echo", progress)

        def on_reply(reply: Reply, answer: bytes) -> None:
            assert frame.request_id not in self.ended, "a request ended twice"
            self.ended[frame.request_id] = reply, answer

        asker = RawCall("echo", body, on_progress=self.notes.append if progress else None)
        refusal = self.handle.ask(frame, body, on_reply, asker)
        return frame.request_id, refusal

    def pass_time(self, seconds: float, waited_s: float = 0.0) -> None:
        """Judge the deadlines as if it were so much later, and the worker had waited for a processor for `waited_s`."""
        later = asyncio.get_running_loop().time() + seconds
        for event in self.handle.driver.link.tick(later, waited_s):
            self.handle.on_event(event)

    def fault(self, request_id: int) -> FaultRecord:
        reply, _ = self.ended[request_id]
        assert isinstance(reply, Failed)
        return reply.fault


async def greeted(terms: LinkTerms | None = None) -> Desk:
    desk = Desk(terms)
    with anyio.fail_after(PATIENCE_S):
        await desk.handle.greeted
    return desk
