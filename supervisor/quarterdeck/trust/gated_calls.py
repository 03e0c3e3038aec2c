"""Calls and requests behind a server's gate, from their asking to their end: they wait for a turn, and a server."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from time import monotonic
from typing import Final, Protocol, TypeVar

import msgspec

from quarterdeck.fleet.call_queue import CallQueue
from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.faults import Delivery, ProtocolFault
from quarterdeck_protocol.mcp.tasks import TaskSupport
from quarterdeck_protocol.offers import RawRequest
from quarterdeck_protocol.tools import CallEnd, Client, Deliver, PendingCall, RawCall, WireResult

from .judge.questions import judge_input_required
from .judge.requests import Wish
from .questions import JudgedAnswerer

T = TypeVar("T", RawCall, RawRequest)

LOSSES: Final = frozenset(
    {"server_lost", "worker_lost", "network_lost", "worker_unresponsive", "exited", "not_connected"}
)
"""Fault codes that end all calls of a lost server."""

LIVES: Final = 3
"""How many lost servers a call survives: it begins again if it was not sent yet."""

AGAIN_S: Final = 0.25
"""Seconds that each further beginning of a call waits longer than the one before; the first waits for none."""

_INPUT_REQUIRED: Final = "input_required"
"""What the result of a server of 2026-07-28 is called that asks its caller."""


class CallGate(Protocol):
    """What a call needs of the gate that it goes through."""

    @property
    def config(self) -> ServerConfig:
        """Of the server."""
        ...

    def find(self, tool: str) -> ServerEndpointImpl | ProtocolFault | None:
        """See `GatedCall.find`."""
        ...

    def find_for(self, wish: Wish) -> ServerEndpointImpl | ProtocolFault | None:
        """The same for what is wished beside plain calls."""
        ...

    def start(self, call: "GatedCall") -> PendingCall:
        """Begin a call that has its turn."""
        ...

    def ended(self, call: "GatedCall", end: CallEnd | None) -> None:
        """A call has ended; None when it was cancelled."""
        ...

    def task_support(self) -> TaskSupport:
        """What of tasks is trusted of the server."""
        ...

    def with_words(self, fault: ProtocolFault) -> ProtocolFault:
        """The fault, with a remedy whose commands find the server."""
        ...


class GatedCall:
    """A call from its asking to its end.

    Attributes:
        tool: the server's own name for it.
        queue: the one that it is in.
        asked_at: monotonic, seconds.
        began: when an endpoint took it; None before that and once it has been noted.
    """

    __slots__ = ("_again", "_call", "_deliver", "_gate", "_lives", "_pending", "asked_at", "began", "queue", "tool")

    def __init__(self, gate: CallGate, queue: CallQueue, call: RawCall, deliver: Deliver) -> None:
        self._gate = gate
        self._call = self._judged(call)
        self._deliver = deliver
        self._pending: PendingCall | None = None
        self._again: asyncio.Handle | None = None
        self._lives = LIVES
        self.tool = call.tool
        self.queue = queue
        self.asked_at = monotonic()
        self.began: float | None = None

    @property
    def caller(self) -> Client:
        """Who asked, in which session."""
        return self._call.client

    @property
    def is_modern(self) -> bool:
        """Whether its client speaks 2026-07-28."""
        return self._call.is_modern

    @property
    def can_be_asked(self) -> bool:
        """Whether its client can be asked anything."""
        return self._call.answerer is not None

    @property
    def left_s(self) -> float | None:
        """How long its caller still wishes to wait; None for no wish."""
        wish_s = self._call.timeout_s
        return None if wish_s is None else wish_s - (monotonic() - self.asked_at)

    @property
    def patience_s(self) -> float:
        """How long it may still wait for its server: until its own deadline, or else that of the server's row."""
        left_s = self.left_s
        return left_s if left_s is not None else self._gate.config.call_timeout_s - (monotonic() - self.asked_at)

    def due(self) -> RawCall:
        """The call for an endpoint, whose deadline counts from now."""
        if self._call.timeout_s is None:
            return self._call
        return msgspec.structs.replace(self._call, timeout_s=self.left_s)

    def start(self) -> None:
        """See `QueuedCall`."""
        self._pending = self._gate.start(self)

    def fail(self, fault: ProtocolFault) -> None:
        """See `QueuedCall`."""
        self.settle(fault)

    def settle(self, end: CallEnd) -> None:
        """End the call.  Its caller is told first, so that the caller works during the bookkeeping.

        A call that was not sent before its server was lost begins again: it waits for the server's next start.
        """
        if isinstance(end, ProtocolFault) and self._was_never_sent(end):
            self._lives -= 1
            # Later: the end of its calls comes before the server is known to be lost, and its worker may take a while.
            pause_s = AGAIN_S * (LIVES - 1 - self._lives)
            self._again = asyncio.get_running_loop().call_later(pause_s, self.start)
            return
        try:
            self.tell(end)
        finally:
            self._gate.ended(self, end)

    def find(self) -> ServerEndpointImpl | ProtocolFault | None:
        """Where it may be made at this moment, or why not; None while that is not known yet, but will be."""
        return self._gate.find(self.tool)

    def begin_on(self, endpoint: ServerEndpointImpl) -> PendingCall | None:
        """Begin it on this endpoint; None where that offers no such tool."""
        return endpoint.begin(self.due(), self.settle)

    def _was_never_sent(self, fault: ProtocolFault) -> bool:
        is_lost = fault.code in LOSSES and fault.delivery is Delivery.NOT_SENT
        return is_lost and self.began is not None and self._lives > 0 and self.patience_s > 0

    def tell(self, end: CallEnd) -> None:
        """Deliver its end."""
        if isinstance(end, WireResult) and end.result_type == _INPUT_REQUIRED:
            end = self._asking(end)
        self._deliver(self._gate.with_words(end) if isinstance(end, ProtocolFault) else end)

    def _asking(self, end: WireResult) -> CallEnd:
        """A result that asks its caller, as far as the server may."""
        body = judge_input_required(self._gate.config.id, end.body, self._gate.config.ask)
        if isinstance(body, ProtocolFault):
            return body
        return replace(end, body=body, members=None)

    def _judged(self, request: T) -> T:
        """The same, whose answerer answers what its server may ask."""
        if request.answerer is None:
            return request
        gate = self._gate
        judged = JudgedAnswerer(request.answerer, gate.config.ask, lambda: gate.task_support().is_for(is_modern=True))
        return msgspec.structs.replace(request, answerer=judged)

    def cancel(self, reason: str = "") -> Delivery:
        """See `PendingCall`."""
        self._gate.ended(self, None)
        if self._again is not None:
            self._again.cancel()
        return self._pending.cancel(reason) if self._pending is not None else Delivery.NOT_SENT


class GatedRequest(GatedCall):
    """A request for what a server has beside plain calls, likewise; `tool` is what the table of calls has of it.

    Attributes:
        wish: what it is for.
        is_subscription: whether it subscribes to a resource.
    """

    __slots__ = ("_request", "is_subscription", "wish")

    def __init__(
        self,
        gate: CallGate,
        queue: CallQueue,
        request: RawRequest,
        wish: Wish,
        deliver: Deliver,
        *,
        noted: str,
        is_subscription: bool,
    ) -> None:
        asked = RawCall(noted, b"", timeout_s=request.timeout_s, client=request.client, is_modern=request.is_modern)
        super().__init__(gate, queue, asked, deliver)
        self.wish = wish
        self._request = self._judged(request)
        self.is_subscription = is_subscription

    def find(self) -> ServerEndpointImpl | ProtocolFault | None:
        """See `GatedCall`."""
        return self._gate.find_for(self.wish)

    def tell(self, end: CallEnd) -> None:
        """See `GatedCall`; a task's state may hold questions."""
        if isinstance(end, WireResult) and self._request.method == "tasks/get":
            end = self._asking(end)
        super().tell(end)

    def begin_on(self, endpoint: ServerEndpointImpl) -> PendingCall:
        """See `GatedCall`."""
        left_s = self.left_s
        due = self._request if left_s is None else msgspec.structs.replace(self._request, timeout_s=left_s)
        return (endpoint.subscribe if self.is_subscription else endpoint.forward)(due, self.settle)


class WaitingCall:
    """A call whose server is being started: it waits in a task of its own, and then begins as any other."""

    __slots__ = ("_call", "_pending", "_start", "_waiting")

    def __init__(
        self,
        find: Callable[[], Awaitable[ServerEndpointImpl | ProtocolFault]],
        start: Callable[[ServerEndpointImpl], PendingCall],
        call: GatedCall,
    ) -> None:
        self._start = start
        self._call = call
        self._pending: PendingCall | None = None
        # Held by this, and this by whoever began the call; the wait has an end in any case.
        self._waiting = asyncio.get_running_loop().create_task(self._wait(find))

    def cancel(self, reason: str = "") -> Delivery:
        """See `PendingCall`."""
        if self._pending is not None:
            return self._pending.cancel(reason)
        self._waiting.cancel()
        return Delivery.NOT_SENT

    async def _wait(self, find: Callable[[], Awaitable[ServerEndpointImpl | ProtocolFault]]) -> None:
        found = await find()
        if isinstance(found, ProtocolFault):
            self._call.settle(found)
        else:
            self._pending = self._start(found)
