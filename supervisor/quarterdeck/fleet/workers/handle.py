"""The supervisor's side of one worker: requests, replies, unasked messages, and its loss.

Callbacks run in the loop, in the order of arrival. A worker is lost at most once; from then on every request is
answered with that loss.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import msgspec

from quarterdeck.fleet.core.linked_uris import LinkedUris
from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord
from quarterdeck_protocol.io import LinkDriver
from quarterdeck_protocol.link import events, frames
from quarterdeck_protocol.offers import RawRequest
from quarterdeck_protocol.tools import ProgressNote, RawCall
from quarterdeck_sandbox import Receipt

_log = logging.getLogger("quarterdeck.fleet")

KILL_S: Final = 5.0
"""Seconds that a killed process may take to be reaped."""

KILLED_CODES: Final = frozenset({"worker_unresponsive", "protocol_violation"})
"""Losses that we made by a kill: there is nothing to wait for."""

_LATE: Final = FaultRecord(
    FaultKind.TIMEOUT,
    "the call's deadline passed: the worker is running, but was too busy to answer in time",
    "call_timeout",
    Delivery.UNKNOWN,
)

_NEVER_SENT: Final = FaultRecord(
    FaultKind.TIMEOUT, "its deadline passed while it waited for others to end", "busy", Delivery.NOT_SENT
)

OnReply = Callable[[frames.Reply, bytes], None]


Asker = RawCall | RawRequest
"""The client's request that a frame is sent for."""


class WorkerListener(Protocol):
    """The owner of a handle."""

    def on_list_changed(self, kind: str) -> None:
        """A list of the server's has changed: see `ListChanged`."""

    def on_news(self, news: frames.Log | frames.Note | frames.Updated | frames.Listening, body: bytes) -> None:
        """The server said something for clients; the body is not checked."""

    def on_asked(self, asked: frames.Asked, params: bytes) -> None:
        """The server asks something, and waits; the params are not checked."""

    def on_ask_ended(self, ask_id: int) -> None:
        """A question needs no answer any longer."""

    def on_unauthorized(self, scopes: tuple[str, ...] | None) -> None:
        """The server refused the access token: see `Unauthorized`."""

    def on_hinted(self, frame: frames.Hinted) -> None:
        """Report a path that a call could not use, and that its user may grant."""

    def on_quarantined(self, frame: frames.Quarantined) -> None:
        """Report that the server created a file for other programs to run, and that its worker quarantined it."""

    def on_started(self, start: frames.ServerStart, receipt: Receipt) -> None:
        """The server's process was started, confined; not yet greeted."""

    def on_lost(self, fault: FaultRecord) -> None:
        """The worker or its server is gone."""


class WorkerHandle:
    """One worker; made by a runtime or for an embedded session, which supply `kill` and `forget`."""

    def __init__(self, name: str, listener: WorkerListener) -> None:
        self._name = name
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._asks: set[int] = set()
        self.lost: FaultRecord | None = None
        self._dismissed = False
        self._started = False
        self.linked: Final = LinkedUris()
        self.greeted: asyncio.Future[None] = self._loop.create_future()
        self.exited = asyncio.Event()
        self.pid: int | None = None
        self.kill: Callable[[], object] = lambda: None
        self.forget: Callable[[], None] = lambda: None

    def attach(self, driver: LinkDriver) -> None:
        """Take the link's driver; before anything else."""
        self.driver = driver
        self.next_id = driver.link.next_id

    def ask(
        self, frame: frames.Request, body: bytes, on_reply: OnReply, asker: Asker | None = None
    ) -> events.Refusal | None:
        """Send a request, perhaps for a client's; `on_reply` is called once unless it was refused or is cancelled."""
        if self.lost is not None:
            return events.Refusal.DEAD
        return self.driver.request(frame, body, (on_reply, asker))

    def under_way(self) -> Iterator[tuple[int, Asker]]:
        """Return the clients' pending requests, the oldest first."""
        awaited = self.driver.link.awaited() if self.lost is None else {}
        return ((key, asker) for key, (_, asker) in awaited.items() if isinstance(asker, Asker))

    def cancel(self, request_id: int, reason: str = "") -> None:
        """Give up a request; its `on_reply` is not called any more."""
        if self.lost is None:
            self.driver.cancel(request_id, reason)

    def on_event(self, event: events.LinkEvent) -> None:
        """Take what the link says."""
        match event:
            case events.Replied(reply=reply, body=body, requester=(on_reply, _)):
                on_reply(reply, body)
            case events.Arrived(frame=frames.Progress() as note, requester=(_, RawCall() | RawRequest() as asker)):
                if asker.on_progress is not None:
                    asker.on_progress(ProgressNote(note.progress, note.total, note.message))
            case events.Arrived(frame=frames.ListChanged(kind=kind)):
                self._listener.on_list_changed(kind)
            case events.Arrived(
                frame=frames.Log() | frames.Note() | frames.Updated() | frames.Listening() as news, body=body
            ):
                self._listener.on_news(news, body)
            case events.Arrived(frame=frames.Asked() as asked, body=body):
                self._asks.add(asked.ask_id)
                self.driver.pause()
                self._listener.on_asked(asked, body)
            case events.Arrived(frame=frames.AskEnded(ask_id=ask_id)):
                self._ask_over(ask_id)
                self._listener.on_ask_ended(ask_id)
            case events.Arrived(frame=frames.Unauthorized(scopes=scopes)):
                self._listener.on_unauthorized(scopes)
            case events.Arrived(frame=frames.Quarantined() as frame):
                self._listener.on_quarantined(frame)
            case events.Arrived(frame=frames.Hinted() as frame):
                self._listener.on_hinted(frame)
            case events.Arrived(frame=frames.Lost(fault=fault)):
                self.lose(fault)
            case events.Arrived(frame=frames.Started(), body=body):
                self._take_start(body)
            case events.Greeted():
                if not self.greeted.done():
                    self.greeted.set_result(None)
            case events.Silent(silence_s=silence_s):
                self._kill_as(FaultKind.TIMEOUT, "worker_unresponsive", f"the worker was silent for {silence_s:.1f} s")
            case events.Late(request_id, (on_reply, _)):
                on_reply(frames.Failed(request_id, _LATE), b"")
            case events.Overdue(request_id, False, (on_reply, _)):
                on_reply(frames.Failed(request_id, _NEVER_SENT), b"")
            case events.Overdue():
                why = "the worker did not answer before a deadline"
                self._kill_as(FaultKind.TIMEOUT, "worker_unresponsive", why, event)
            case events.Violated(reason=reason):
                self.violated(reason)
            case events.Arrived() | events.Expired() | events.Replied() | events.Late():
                pass  # the link admits no other frame on this side and serves nothing, and we send no other request

    def post(self, told: frames.Told, body: bytes = b"") -> bool:
        """Tell the worker something that has no reply; False when it was dropped."""
        if isinstance(told, frames.AskAnswer):
            self._ask_over(told.ask_id)
        return self.lost is None and self.driver.post(told, body)

    def _ask_over(self, ask_id: int) -> None:
        if ask_id in self._asks:
            self._asks.remove(ask_id)
            if not self._asks:
                self.driver.resume()

    def condemn(self, limit: str, detail: str) -> None:
        """Have the worker kill its server's tree, which exceeded a limit; the loss that follows names it."""
        if self.lost is None:
            self.driver.post(frames.Condemn(limit, detail))

    def violated(self, reason: str) -> None:
        """The worker broke the rules: it is killed, and lost."""
        self._kill_as(FaultKind.TRANSPORT, "protocol_violation", f"the worker broke the protocol of its link: {reason}")

    def on_exit(self, returncode: int | None) -> None:
        """Take the end of the worker's process; `returncode` is a status, or minus a signal, or None when unknown. A
        worker that left in good order has said why: its words are in our socket.
        """
        if not self._dismissed:
            self.driver.catch_up()
        self.exited.set()
        if returncode is None:
            how, dossier = "ended", Dossier()
        elif returncode < 0:
            how, dossier = f"was killed by signal {-returncode}", Dossier(signal=-returncode)
        else:
            how, dossier = f"exited with status {returncode}", Dossier(exit_status=returncode)
        self.lose(
            FaultRecord(
                FaultKind.TRANSPORT, f"the worker process {how}", "worker_lost", Delivery.UNKNOWN, None, dossier
            )
        )

    def lose(self, fault: FaultRecord, overdue: events.Overdue | None = None) -> None:
        """End every request with `fault`, from its own view, the one that is `overdue` too; then tell the owner."""
        if self.lost is not None:
            return
        self.lost = fault
        if not self.greeted.done():
            self.greeted.set_result(None)
        # A deadline that passed is a timeout wherever it was.
        kind = fault.kind if fault.kind is FaultKind.TIMEOUT else FaultKind.TOOL_ERROR
        awaited = self.driver.link.awaited()
        if overdue is not None and overdue.requester is not None:
            awaited[overdue.request_id] = overdue.requester
        for request_id, (on_reply, _) in awaited.items():
            delivery = Delivery.NOT_SENT if self.driver.cancel(request_id) else Delivery.UNKNOWN
            at_site = FaultRecord(kind, fault.message, fault.code, delivery, None, fault.dossier)
            on_reply(frames.Failed(request_id, at_site), b"")
        if not self._dismissed:
            self._listener.on_lost(fault)

    async def dismiss(self, within_s: float) -> None:
        """Wait for the worker's end, at most so long; then kill it and wait for that.  The owner hears no more."""
        self._dismissed = True
        if self.lost is not None and self.lost.code in KILLED_CODES:
            within_s = 0
        try:
            async with asyncio.timeout(within_s):
                await self.exited.wait()
        except TimeoutError:
            self.kill()
            try:
                async with asyncio.timeout(KILL_S):
                    await self.exited.wait()
            except TimeoutError:
                _log.error("the worker of %s (pid %s) does not end", self._name, self.pid)
        self.driver.close()
        self.forget()

    def _take_start(self, body: bytes) -> None:
        if self._started:
            self.violated("a server starts once")
            return
        self._started = True
        if len(body) > frames.MAX_START_BYTES:
            self.violated(f"a start of {len(body):,} bytes; at most {frames.MAX_START_BYTES:,} are allowed")
            return
        try:
            start = msgspec.json.decode(body, type=frames.ServerStart)
            receipt = msgspec.json.decode(start.receipt, type=Receipt)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self.violated(f"not a valid start of a server: {error}")
            return
        if self.lost is None and not self._dismissed:
            self._listener.on_started(start, receipt)

    def _kill_as(self, kind: FaultKind, code: str, message: str, overdue: events.Overdue | None = None) -> None:
        if self.lost is None:
            self.kill()
            self.lose(FaultRecord(kind, message, code), overdue)
