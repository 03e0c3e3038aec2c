"""What happens while the product runs, told once by its owner to those who listen: metrics, traces, pages, logs.

State that can be looked up (phases, queues, what is held) is in no event: an event only says that it changed.
Nothing waits for a listener; one that is too slow loses its oldest events, and can tell how many.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING, Final, Protocol, Self

from msgspec import Struct, field

if TYPE_CHECKING:
    from quarterdeck_protocol.mcp.server.requests import Request
    from quarterdeck_protocol.tools import CallTrace, Client

BOUND: Final = 1024
"""Default number of events that wait for one listener."""


class CallEnded(Struct, frozen=True, gc=False):
    """A client's request to a server or a native tool has ended.

    Attributes:
        deck: key of the deck in the daemon; empty outside of one.
        server: empty for a native tool.
        tool: the server's own name, or a method and its target, as the ledger names a call; empty for a name of no
            native tool.
        outcome: "ok", "error" (the tool's), "fault" or "cancelled".
        delivery: "answered", "not_sent" or "unknown".
        code: of the fault; empty for other outcomes.
        queued_s: until its turn.
        woke_s: from its turn until its server could take it.
        took_s: at the server.
        client, program: as the ledger names them.
        era: of the client, "legacy" or "modern".
        transport: of the client, "pipe" or "tcp".
        denied: what the tool lacked; empty for none.
        bytes: size of the result.
        at: when it ended, seconds since the epoch.
    """

    deck: str
    server: str
    tool: str
    method: str
    outcome: str
    delivery: str
    code: str = ""
    queued_s: float = 0.0
    woke_s: float = 0.0
    took_s: float = 0.0
    client: str = ""
    program: str = ""
    era: str = "legacy"
    transport: str = "pipe"
    denied: str = ""
    bytes: int = 0
    at: float = field(default_factory=time)


class ServerChanged(Struct, frozen=True, gc=False):
    """A server has another phase, or other lists."""

    deck: str
    server: str
    phase: str
    restarts: int


class TrustChanged(Struct, frozen=True, gc=False):
    """What is held, approved or blocked of a server may have changed: look it up."""

    deck: str
    server: str


class SessionEnded(Struct, frozen=True, gc=False):
    """A client's session has ended; see `CallEnded` for its transport."""

    deck: str
    transport: str
    took_s: float


class CallWay(Protocol):
    """How a call went, read once it has ended and only if somebody listens; see `CallEnded`."""

    @property
    def method(self) -> str:
        """The MCP method."""

    @property
    def is_modern(self) -> bool:
        """Whether the client speaks 2026-07-28."""

    @property
    def queued_s(self) -> float:
        """Seconds until its turn."""

    @property
    def woke_s(self) -> float:
        """Seconds from its turn until its server could take it."""


class DirectWay(Struct, frozen=True, gc=False):
    """A `CallWay` that waits for nothing."""

    method: str
    is_modern: bool
    queued_s: float = 0.0
    woke_s: float = 0.0


Event = CallEnded | ServerChanged | TrustChanged | SessionEnded


class Tracer(Protocol):
    """Follows clients' requests."""

    def begin(self, request: "Request", client: "Client", redact: Callable[[str], str]) -> "CallTrace | None":
        """Begin the trace of a request; None for one that is not followed."""


class Bus:
    """Hand events to subscriptions, on the event loop.

    Attributes:
        is_heard: whether there is a subscription; without one, make no event.
        tracer: follows single requests; None if requests are not traced.
    """

    def __init__(self) -> None:
        self.tracer: Tracer | None = None
        self.is_heard = False
        self._subscriptions: set[Subscription] = set()

    def tell(self, event: Event) -> None:
        """Hand on an event; never blocks."""
        for each in self._subscriptions:
            each.put(event)

    def subscribe(self, bound: int = BOUND) -> "Subscription":
        """Return a subscription, which receives events inside its `with` block."""
        return Subscription(self, bound)

    def add(self, subscription: "Subscription") -> None:
        """Begin to hand events to a subscription."""
        self._subscriptions.add(subscription)
        self.is_heard = True

    def remove(self, subscription: "Subscription") -> None:
        """Hand it no more events; harmless when repeated."""
        self._subscriptions.discard(subscription)
        self.is_heard = bool(self._subscriptions)


class Subscription:
    """The events for one listener: iterate, or `take` them by lots, which wakes no task for each.

    Attributes:
        dropped: events lost because `bound` others waited.
    """

    def __init__(self, bus: Bus, bound: int) -> None:
        self.dropped = 0
        self._bus = bus
        self._bound = bound
        self._events: deque[Event] = deque()
        self._waiting: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        self._bus.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._bus.remove(self)

    def put(self, event: Event) -> None:
        """Take one more event, in place of the oldest if too many wait."""
        if len(self._events) >= self._bound:
            self._events.popleft()
            self.dropped += 1
        self._events.append(event)
        if self._waiting is not None:
            if not self._waiting.done():
                self._waiting.set_result(None)
            self._waiting = None

    def take(self) -> list[Event]:
        """Return the events that wait, and forget them."""
        events = list(self._events)
        self._events.clear()
        return events

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._events.popleft()
