"""What the bridge's parts hand to one another: endpoints and their life, fleets, and the values that they return.

Declares shapes, and an endpoint's life as a table; `quarterdeck.fleet` and `quarterdeck.route` implement them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Final, Protocol

import msgspec

from .configs import ServerConfig
from .faults import ProtocolFault
from .mcp.tasks import TaskSupport
from .names import RemoteToolRef
from .offers import Listing, News, Offered, RawRequest
from .tools import Client, Deliver, PendingCall, RawCall, ToolBox, ToolDescriptor, WireResult


class EndpointPhase(StrEnum):
    """Where an endpoint is in its single life."""

    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    CLOSING = "closing"
    CLOSED = "closed"
    FAULTED = "faulted"


class PhaseStep(StrEnum):
    """What moves an endpoint."""

    OPEN = "open"
    CONNECTED = "connected"
    FAILED = "failed"
    LOST = "lost"
    CLOSE = "close"
    RELEASED = "released"


TRANSITIONS: Final[Mapping[tuple[EndpointPhase, PhaseStep], EndpointPhase]] = MappingProxyType(
    {
        (EndpointPhase.IDLE, PhaseStep.OPEN): EndpointPhase.CONNECTING,
        (EndpointPhase.IDLE, PhaseStep.CLOSE): EndpointPhase.CLOSED,
        (EndpointPhase.CONNECTING, PhaseStep.CONNECTED): EndpointPhase.READY,
        (EndpointPhase.CONNECTING, PhaseStep.FAILED): EndpointPhase.FAULTED,
        (EndpointPhase.CONNECTING, PhaseStep.CLOSE): EndpointPhase.CLOSED,
        (EndpointPhase.READY, PhaseStep.LOST): EndpointPhase.FAULTED,
        (EndpointPhase.READY, PhaseStep.CLOSE): EndpointPhase.CLOSING,
        (EndpointPhase.CLOSING, PhaseStep.LOST): EndpointPhase.CLOSING,
        (EndpointPhase.CLOSING, PhaseStep.RELEASED): EndpointPhase.CLOSED,
    }
)
"""Every legal step; any other is a KeyError: our bug. Closing a faulted endpoint releases it, but moves it nowhere."""


def is_usable_phase(phase: EndpointPhase) -> bool:
    """Whether an endpoint in `phase` takes calls."""
    return phase == EndpointPhase.READY


def is_terminal_phase(phase: EndpointPhase) -> bool:
    """Whether `phase` is never left."""
    return phase in (EndpointPhase.CLOSED, EndpointPhase.FAULTED)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class RemoteTool:
    """A tool of a server: whose it is, and how a model sees it."""

    ref: RemoteToolRef
    descriptor: ToolDescriptor


@dataclass(frozen=True)
class RemoteCallResult:
    """A server's answer to one call, decoded only when asked for."""

    wire: WireResult

    @property
    def is_error(self) -> bool:
        """The server's own word: a result, never a fault."""
        return self.wire.is_error

    @property
    def body(self) -> bytes:
        """The result's JSON object as the server wrote it, without the era's envelope keys."""
        return self.wire.body

    @cached_property
    def value(self) -> Mapping[str, object]:
        """The whole result, decoded."""
        return _object.decode(self.body)

    @property
    def content(self) -> tuple[object, ...]:
        """The content blocks as JSON values; empty when the server sent no list."""
        blocks = self.value.get("content")
        return tuple(blocks) if isinstance(blocks, list) else ()

    @property
    def text(self) -> str:
        """What its text blocks say, a block a line; empty when there are none."""
        blocks = (block for block in self.content if isinstance(block, dict) and block.get("type") == "text")
        return "\n".join(str(block.get("text", "")) for block in blocks)

    @property
    def structured_content(self) -> object:
        """`structuredContent`, None when absent."""
        return self.value.get("structuredContent")

    @property
    def meta(self) -> object:
        """`_meta` without envelope keys, None when absent."""
        return self.value.get("_meta")


@dataclass(frozen=True, slots=True)
class SandboxStatus:
    """An endpoint's confinement, in short.

    Attributes:
        tier: its enforcement, by the policy's name.
        network: what it can reach, in words for people.
        gaps: one line for each way in which it is weaker than wanted.
        caught: one line for each file that it created and that the quarantine took away from other programs.
        hint: the last path that a call could not use and that its user may grant; empty for none.
    """

    tier: str
    network: str
    gaps: tuple[str, ...] = ()
    caught: tuple[str, ...] = ()
    hint: str = ""


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """One endpoint at one moment.

    Attributes:
        tool_count: tools of the last list, 0 before the first.
        pid, worker_pid: the server's and its worker's on this machine; None if remote, dead or in this process.
        uptime_s: since it became ready.
        isolated: False if its session runs inside the supervisor (`session_factory`).
        era: the protocol revision spoken.
        sandbox: None while no process of ours is confined.
        installing: whether it is connecting, and its command has to fetch the program first.
        list_fault: why it has no tools although it is ready: it never listed them.
        is_asleep: whether it is idle until it is called; `fault` says why the last call could not start it.
        seal: the digest of the package tree that it runs from; None for a server that runs as its row says.
    """

    server: str
    phase: EndpointPhase
    tool_count: int
    fault: ProtocolFault | None = None
    pid: int | None = None
    worker_pid: int | None = None
    uptime_s: float | None = None
    restarts: int = 0
    isolated: bool = True
    era: str | None = None
    sandbox: SandboxStatus | None = None
    installing: bool = False
    list_fault: ProtocolFault | None = None
    is_asleep: bool = False
    seal: str | None = None


FleetStatus = Mapping[str, EndpointStatus]
"""Endpoint states by server id, in configuration order; a snapshot."""


class ServerEndpoint(Protocol):
    """One live connection to one server; single-shot: a terminal phase is never left."""

    @property
    def config(self) -> ServerConfig:
        """What it was made from."""

    @property
    def phase(self) -> EndpointPhase:
        """Where it is in its life."""

    async def open(self) -> None:
        """Connect; callers that come meanwhile join the one attempt.

        Raises:
            ProtocolFault: the attempt failed (the same object to all), or the endpoint is closing or closed.
        """

    async def list_tools(self) -> Sequence[RemoteTool]:
        """Return the tools: one round trip for all pages, then the cached tuple until the server reports a change.

        Raises:
            ProtocolFault: `not_connected`, `protocol` or `timeout`.
        """

    async def invoke(self, name: str, args: object = None) -> RemoteCallResult:
        """Call the tool of this server-side name; `args` that are no dict become `{}`.

        Cancelling the awaiting task tells the server and raises nothing of ours.

        Raises:
            ProtocolFault: `not_connected`, `tool_error` or `timeout`, with its `delivery`.
        """

    def status(self) -> EndpointStatus:
        """A snapshot."""

    async def close(self) -> None:
        """Stop the server and release everything; never raises a fault."""


class ServerFleet(Protocol):
    """Endpoints by server id; one that fails disturbs no other."""

    async def spin_up(self) -> None:
        """Restart from the last configuration, the old generation closed first; raises `not_connected` if there is
        none.
        """

    async def tear_down(self) -> None:
        """Close every endpoint in parallel."""

    def endpoint(self, server: str) -> ServerEndpoint | None:
        """The present endpoint of this id."""

    def endpoints(self) -> tuple[ServerEndpoint, ...]:
        """The present endpoints in configuration order."""

    def status(self) -> FleetStatus:
        """A snapshot in configuration order."""


class LiveEndpoint(Protocol):
    """A server whose tools, prompts and resources are used by whoever offers them to clients."""

    @property
    def config(self) -> ServerConfig:
        """What it was made from."""

    def offered(self) -> tuple[RemoteTool, ...]:
        """The tools that are there to be called now, the same tuple until they change; () when there are none."""

    def refusal(self, tool: str) -> ProtocolFault | None:
        """Why a call of this server-side name is not even tried; None when it is."""

    def begin(self, call: RawCall, deliver: Deliver) -> PendingCall | None:
        """Start a call by the server's own name for the tool; None when not ready or the tool is not offered."""

    def offers(self, listing: Listing) -> tuple[Offered, ...]:
        """What of a list but the tools' is there now, the same tuple until it changes; `public` is the key."""

    def has_linked(self, uri: str) -> bool:
        """Whether one of its results has lately linked to this resource."""

    def task_support(self) -> TaskSupport:
        """What of tasks it has now."""

    def forward(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """Start a request by the server's own names and URIs, or deliver its fault; subscriptions outlive restarts."""

    def unsubscribe(self, client: Client, uri: str) -> None:
        """Hear of it no more; harmless when it was not subscribed."""

    def set_level(self, client: Client, level: str) -> None:
        """From which level on this client wants log lines; the server is told the lowest that anybody wants."""

    def leave(self, client: Client) -> None:
        """A client's session has ended: its subscriptions and its level end with it."""

    def tell(self, method: str, params: bytes = b"{}") -> None:
        """Send a ready server of an older era a notification."""


class LiveFleet(Protocol):
    """Servers whose tools, prompts and resources are offered to clients as they change."""

    def endpoint(self, server: str) -> LiveEndpoint | None:
        """The present endpoint of this id."""

    def endpoints(self) -> tuple[LiveEndpoint, ...]:
        """The present endpoints in configuration order."""

    def watch_each(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """Call `callback` after any change of a phase or of a list, with its server; returns what unregisters it."""

    def watch_news(self, callback: Callable[[News], None]) -> Callable[[], None]:
        """Call `callback` with what servers say unasked; returns what unregisters it."""


@dataclass(frozen=True, slots=True)
class MountedBridge:
    """The contract's own name for a mounted fleet."""

    fleet: ServerFleet
    tool_box: ToolBox
    tool_count: int


_object: Final = msgspec.json.Decoder(dict[str, object])
"""Made once: a decoder costs more to make than a small result to decode."""
