"""One request of a client at one server, from its asking to its end: it waits for its turn, and for the server."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from quarterdeck.fleet.call_queue import CallQueue
from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.fleet.workers.requests import refuse
from quarterdeck.trust.judge.questions import judge_input_required
from quarterdeck.trust.judge.requests import NOTHING, Wish, to_call
from quarterdeck_protocol.configs import ServerScope
from quarterdeck_protocol.faults import Delivery, ProtocolFault
from quarterdeck_protocol.offers import RawRequest
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall, ProgressNote, RawCall, WireResult

if TYPE_CHECKING:
    from .deck_server import DeckServer

LOSSES: Final = frozenset(
    {"server_lost", "worker_lost", "network_lost", "worker_unresponsive", "exited", "not_connected"}
)
"""Fault codes that end all calls of a lost server."""

LIVES: Final = 3
"""How many lost servers a call survives: it begins again if it was not sent yet."""

AGAIN_S: Final = 0.25
"""Seconds that each further beginning of a call waits longer than the one before; the first waits for none."""

SUBSCRIBE: Final = "resources/subscribe"

_INPUT_REQUIRED: Final = "input_required"
"""What the result of a server of 2026-07-28 is called that asks its caller."""


class ServerCall(Struct, eq=False):
    """A `QueuedCall` and a `PendingCall`.

    Attributes:
        queue: the one that it is in.
        request: by the server's own names; a plain call of a tool, or another request.
        asked_at: monotonic, seconds.
        noted: what the table of calls has of it.
        tool: the name of the tool that it calls; None of any other request.
        other: what another request is for, as trust knows it.
        turn_at: when it began to wait for its server; None of a call whose server was ready.
        began: when an endpoint took it; None before that and once it has been noted.
    """

    _server: "DeckServer"
    queue: CallQueue
    request: RawCall | RawRequest
    deliver: Deliver
    asked_at: float
    noted: str
    tool: str | None = None
    other: Wish = NOTHING
    turn_at: float | None = None
    began: float | None = None
    _pending: PendingCall | None = None
    _waiting: asyncio.Task[None] | None = None
    _again: asyncio.Handle | None = None
    _lives: int = LIVES
    _is_over: bool = False

    @property
    def wish(self) -> Wish:
        """What it is for, as trust knows it."""
        return to_call(self.tool) if self.tool is not None else self.other

    @property
    def is_subscription(self) -> bool:
        """Whether it subscribes to a resource."""
        return isinstance(self.request, RawRequest) and self.request.method == SUBSCRIBE

    @property
    def left_s(self) -> float | None:
        """How long its caller still wishes to wait; None for no wish."""
        wish_s = self.request.timeout_s
        return None if wish_s is None else wish_s - (monotonic() - self.asked_at)

    @property
    def patience_s(self) -> float:
        """How long it may still wait for its server: until its own deadline, or else that of the server's row."""
        left_s = self.left_s
        return left_s if left_s is not None else self._server.config.call_timeout_s - (monotonic() - self.asked_at)

    # See `CallWay`

    @property
    def method(self) -> str:
        """The MCP method."""
        return self.request.method if isinstance(self.request, RawRequest) else "tools/call"

    @property
    def is_modern(self) -> bool:
        """Whether its client speaks 2026-07-28."""
        return self.request.is_modern

    @property
    def queued_s(self) -> float:
        """How long it waited for its turn."""
        return (self.turn_at or self.began or monotonic()) - self.asked_at

    @property
    def woke_s(self) -> float:
        """How long it then waited for its server."""
        return (self.began or monotonic()) - self.turn_at if self.turn_at is not None else 0.0

    # On its way

    def start(self) -> None:
        """See `QueuedCall`: begin it on the endpoint of this moment, or once there is one."""
        server = self._server
        found = server.find(self.tool, self.other)
        if found is None:
            self.wait(partial(server.awaited, self), partial(server.start_on, self))
        elif isinstance(found, ProtocolFault):
            self.fail(found)
        else:
            server.start_on(self, found)

    def fail(self, fault: ProtocolFault) -> None:
        """See `QueuedCall`; later than this returns."""
        self._pending = refuse(self.settle, fault)

    def wait(
        self,
        find: Callable[[], Awaitable[ServerEndpointImpl | ProtocolFault]],
        then: Callable[[ServerEndpointImpl], None],
    ) -> None:
        """Wait in a task of its own until its server is found, and go on there; the wait has an end in any case."""
        self.queue.wait_for_start(self)
        if self.turn_at is None:
            self.turn_at = monotonic()

        async def wait() -> None:
            found = await find()
            self._waiting = None
            if isinstance(found, ProtocolFault):
                self.settle(found)
            else:
                then(found)

        self._waiting = asyncio.get_running_loop().create_task(wait())

    def tell_start(self, server: str) -> None:
        """Report to a client that asked for progress that its server is being started."""
        if self.request.on_progress is not None:
            self.request.on_progress(ProgressNote(0.0, None, f"starting {server}"))

    def begin_on(self, endpoint: ServerEndpointImpl) -> None:
        """Hand it to this endpoint; its deadline counts from now."""
        self.queue.has_started(self)
        self.began, due = monotonic(), self.request
        if due.timeout_s is not None:
            due = replace(due, timeout_s=self.left_s)
        if due.trace is not None:
            due = replace(due, meta=due.trace.sent(due.meta))
        if due.answerer is not None:
            due = replace(due, answerer=self._server.judged(due.answerer))
        if isinstance(due, RawCall):
            pending = endpoint.begin(due, self.settle)
            self._pending = pending if pending is not None else refuse(self.settle, self._server.unknown(due.tool))
        else:
            self._pending = endpoint.forward(due, self.settle)

    def settle(self, end: CallEnd) -> None:
        """End it.  Its caller is told first, so that the caller works during the bookkeeping.

        A request that was not sent before its server was lost begins again: it waits for the server's next start.
        """
        if isinstance(end, ProtocolFault) and self._was_never_sent(end):
            self._begin_again()
            return
        told = end
        try:
            if isinstance(end, ProtocolFault):
                told = self._server.with_words(end)
                if self.began is not None and self._server.config.scope is ServerScope.CLIENT:
                    told.client = self.request.client.user
            elif end.result_type == _INPUT_REQUIRED or (self.tool is None and self._is_state_of_task):
                told = self._asking(end)
            self.deliver(told)
        finally:
            self._pending, self._is_over = None, True  # each has the other: garbage that a collector would have to find
            self._leave(end)

    def cancel(self, reason: str = "") -> Delivery:
        """See `PendingCall`."""
        self._leave(None)
        if self._again is not None:
            self._again.cancel()
        if self._waiting is not None:
            self._waiting.cancel()
            return Delivery.NOT_SENT
        if self._pending is not None:
            return self._pending.cancel(reason)
        return Delivery.UNKNOWN if self._is_over else Delivery.NOT_SENT

    def _leave(self, end: CallEnd | None) -> None:
        """Give its place away, and note how it ended; None where it was given up."""
        now = monotonic()
        self.queue.leave(self, now if isinstance(end, WireResult) else None)
        if (trace := self.request.trace) is not None:
            trace.left(self._server.config, self.tool, self.asked_at, self.turn_at, self.began, end)
        if self.began is not None:
            self._server.note(self.noted, now - self.began, end, self.request.client, self)
            self.began = None
        elif isinstance(end, ProtocolFault):
            self._server.note(self.noted, None, end, self.request.client, self)

    @property
    def _is_state_of_task(self) -> bool:
        return isinstance(self.request, RawRequest) and self.request.method == "tasks/get"

    def _begin_again(self) -> None:
        self._lives -= 1
        # Later: the end of its calls comes before the server is known to be lost, and its worker may take a while.
        pause_s = AGAIN_S * (LIVES - 1 - self._lives)
        self._again = asyncio.get_running_loop().call_later(pause_s, self.start)

    def _was_never_sent(self, fault: ProtocolFault) -> bool:
        is_lost = fault.code in LOSSES and fault.delivery is Delivery.NOT_SENT
        return is_lost and self.began is not None and self._lives > 0 and self.patience_s > 0

    def _asking(self, end: WireResult) -> CallEnd:
        """A result that asks its caller, as far as the server may."""
        body = judge_input_required(self._server.config.id, end.body, self._server.config.ask)
        if isinstance(body, ProtocolFault):
            return self._server.with_words(body)
        return replace(end, body=body, members=None)
