"""The runtime contract of callable tools: what is offered, what is called, what comes back.

Deck and bridge both speak it; the host publishes it.  Pure: no tool is run here.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from msgspec import Raw, Struct

from .faults import Delivery, ProtocolFault
from .questions import Answerer

if TYPE_CHECKING:
    from .configs import ServerConfig


@dataclass(frozen=True, slots=True)
class ToolHints:
    """What a client may assume about a native tool, before it asks its user (MCP's `ToolAnnotations`).

    Attributes:
        read_only: it changes nothing.
        destructive: it may overwrite or end something; meaningless if read-only.
        idempotent: the same call again changes nothing more.
        open_world: it reaches beyond this machine, or runs what may.
    """

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True


@dataclass(frozen=True, slots=True)
class ToolDescriptor:
    """A tool as a model sees it.

    Attributes:
        name: the qualified name of a server's tool, the wire name of a native one.
        parameters: the portable JSON Schema of the input.
        definition: the server's whole tool object as JSON bytes, unknown fields included; None for a native tool.
        title: for people; empty for the name.
        hints: None for a server's tool, whose definition has them.
        output_schema: of the object that a native tool returns besides its text; None for text alone.
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    definition: bytes | None = None
    title: str = ""
    hints: ToolHints | None = None
    output_schema: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class ProgressNote:
    """How far a running call is: `progress` grows, `total` is its end when known."""

    progress: float
    total: float | None = None
    message: str | None = None


Report = Callable[[ProgressNote], None]
"""Takes progress notes, from the event loop; one that comes too fast may be dropped."""


class Allowance(Protocol):
    """What a client may use."""

    @property
    def max_result_bytes(self) -> int | None:
        """Of one result; None for what the servers' own limits let through."""

    @property
    def words(self) -> str:
        """What it is, for messages: `the token 'ci'`."""

    def allows(self, name: str, listing: str = "tools") -> bool:
        """Whether the tool `server__tool`, or a native one, may be listed and requested; elsewhere `server__` and a
        prompt or URI.
        """

    def allows_some_of(self, server: str) -> bool:
        """Whether there is a name of this server's, of whatever it may offer, that is allowed."""


class Client(Struct, frozen=True):
    """Who asks.

    Attributes:
        name: for people and the ledger: a token's name, or a program; empty if there is only one client.
        key: tells clients apart: the admitted party (a token, a door), then perhaps a slash and one of its sessions.
        allowance: what it may use; None for everything.
        part: a part of it that shares its bounds, such as a stream on which it hears of changes, or a program by its
            own word; empty for the whole.
        is_local: whether it is known to be a program of this machine, whose person has a browser here.
        is_searched: whether it is shown two tools that find and call its tools, instead of them.
        user: whose process it uses of a server that each client has for itself; empty for the owner's.
    """

    name: str = ""
    key: str = ""
    allowance: Allowance | None = None
    part: str = ""
    is_local: bool = False
    is_searched: bool = False
    user: str = ""

    @property
    def address(self) -> str:
        """Where news for it go: its key, and its part."""
        return f"{self.key} {self.part}" if self.part else self.key

    def allows(self, name: str, listing: str = "tools") -> bool:
        """See `Allowance`."""
        return self.allowance is None or self.allowance.allows(name, listing)

    def refusal(self, what: str) -> str:
        """Why it may not use `what`."""
        return f"{self.allowance.words if self.allowance is not None else self.name} does not allow {what}"

    def allows_some_of(self, server: str) -> bool:
        """See `Allowance`."""
        return self.allowance is None or self.allowance.allows_some_of(server)


ANONYMOUS: Final = Client()
"""The one client of a process that serves nobody else, and whoever shows nothing."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a descriptor's `name`, by the caller's `id`, with any JSON `input`; `report` is None if no progress
    is wanted.
    """

    id: str
    name: str
    input: object
    report: Report | None = field(default=None, compare=False)
    client: Client = ANONYMOUS


class WireResult(Struct, frozen=True, gc=False):
    """A server's own result, whole: one JSON object without the era's envelope keys, and its era.

    Attributes:
        is_error: the body's own `isError`, for those who have not read it.
        result_type: "input_required" if it asks for more, else "complete", or an extension's word.
        members: the result of `check_object` for the body, if we checked it already: it costs milliseconds.
        denied: `read` or `write` and the path, or `network` and the host, that an erring tool lacked; empty for none.
    """

    body: bytes
    era: str
    is_error: bool = False
    result_type: str = "complete"
    members: Mapping[str, Raw] | None = None
    denied: str = ""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """How a call ended.

    Attributes:
        output: the one JSON value that all blocks of the result project to.
        wire: shown to a client instead of a projection of `output`.
        parts: each block's text or JSON value, if there are several.
        structured: for programs, as the descriptor's `output_schema` describes it.
    """

    id: str
    output: object
    is_error: bool = False
    wire: WireResult | None = None
    parts: tuple[object, ...] = field(default=(), compare=False, repr=False)
    structured: Mapping[str, object] | None = None


class CancelToken:
    """A one-way switch that tells a running call to stop.

    Attributes:
        cancelled: whether `cancel` was called.
    """

    def __init__(self) -> None:
        self.cancelled = False
        self._callbacks: dict[object, Callable[[], None]] = {}

    def cancel(self) -> None:
        """Switch; runs every callback once, in order; raises an ExceptionGroup of what they raised at the end."""
        self.cancelled = True
        errors: list[Exception] = []
        while self._callbacks:
            callback = self._callbacks.pop(next(iter(self._callbacks)))
            try:
                callback()
            except Exception as error:
                errors.append(error)
        if errors:
            raise ExceptionGroup("callbacks of a cancellation failed", errors)

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Run `callback` at cancellation, at once when that is past; returns what unregisters it."""
        if self.cancelled:
            callback()
            return lambda: None
        registration = object()
        self._callbacks[registration] = callback

        def forget() -> None:
            self._callbacks.pop(registration, None)

        return forget


class ToolRunner(Protocol):
    """Runs calls."""

    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        """Run one call to its end; a failure is an outcome with `is_error`, only cancellation raises."""


class ToolBox(Protocol):
    """What a session may call."""

    def descriptors(self) -> Sequence[ToolDescriptor]:
        """The tools of this moment, in a stable order."""

    @property
    def runner(self) -> ToolRunner:
        """What runs them."""


@runtime_checkable
class WatchableToolBox(ToolBox, Protocol):
    """A box whose tools may change; a box without `watch` is static."""

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change; returns what unregisters it."""


class CallTrace(Protocol):
    """The trace of a client's request, of which a call at a server is a part."""

    def sent(self, meta: bytes) -> bytes:
        """Begin the part at a server; return the `_meta` that tells the server of it."""

    def left(
        self,
        config: "ServerConfig",
        tool: str | None,
        asked_at: float,
        turn_at: float | None,
        began: float | None,
        end: "CallEnd | None",
    ) -> None:
        """End the part at a server.

        Args:
            config: of the server.
            tool: by the server's own name; None for another request.
            asked_at: when it was asked for, monotonic as the others.
            turn_at: when it had its turn; None if it waited for no start.
            began: when it was sent; None if it never was.
            end: how it ended; None if the client gave it up.
        """

    def ended(self, end: "CallEnd | None") -> None:
        """End the request; None if the client gave it up."""


class RawCall(Struct, frozen=True):
    """A call of a server's tool, JSON bytes in and JSON bytes out; a struct costs a fifth of a dataclass.

    Attributes:
        tool: the qualified name for a source, the server's own name for its endpoint.
        arguments: one JSON object, untouched on its way to the server.
        meta: the caller's own `_meta`, one JSON object without envelope keys and progress token; empty for none.
        timeout_s: the caller's limit, seconds; the server's own deadline wins if shorter.
        on_progress: takes the server's progress notes; None asks for none.
        answerer: answers the server's questions meanwhile; None refuses them.
        log_level: lowest level wanted of a server of 2026-07-28; empty for none.
        is_modern: whether the caller speaks 2026-07-28.
        task: the task that a caller of 2025-11-25 wants for a result, as JSON; empty for none.
        answers: `inputResponses` and `requestState` of a call made again, one JSON object.
        progress_token: the caller's, as JSON, which may outlive a call that becomes a task; empty for none.
        trace: None where nobody traces it.
    """

    tool: str
    arguments: bytes
    meta: bytes = b""
    timeout_s: float | None = None
    on_progress: Report | None = None
    client: Client = ANONYMOUS
    answerer: Answerer | None = None
    log_level: str = ""
    is_modern: bool = False
    task: bytes = b""
    answers: bytes = b""
    progress_token: bytes = b""
    trace: CallTrace | None = None


CallEnd = WireResult | ProtocolFault
Deliver = Callable[[CallEnd], None]
"""Takes the end of a raw call: called once, from the event loop, never before the call's `begin` has returned."""


class PendingCall(Protocol):
    """A raw call under way."""

    def cancel(self, reason: str = "") -> Delivery:
        """Give up: nothing is delivered any more. `NOT_SENT` if nothing of the call can have reached the server, else
        `UNKNOWN`.
        """


class ToolSource(ABC):
    """A host's tools, which may change and of which servers' tools take raw calls; `as_source` makes one of any box."""

    native_names: Collection[str] = frozenset()
    """Of tools that are known to take no raw call; there may be others."""

    @property
    def can_change(self) -> bool:
        """Whether there may be other tools later, which `watch` tells."""
        return True

    @abstractmethod
    def descriptors(self) -> Sequence[ToolDescriptor]:
        """See `ToolBox`."""

    @property
    def runner(self) -> "ToolSource":
        """The source itself."""
        return self

    @abstractmethod
    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        """See `ToolRunner`."""

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002 - nothing changes
        """Call `callback` after each change; returns what unregisters it."""
        return lambda: None

    def public(self, name: str) -> str:
        """What the tool is called before clients that is called `name`, before them or here."""
        return name

    def own(self, name: str) -> str:
        """What the tool is called here that is called `name`, before clients or here."""
        return name

    def begin(self, call: RawCall, deliver: Deliver) -> PendingCall | None:  # noqa: ARG002 - for those that can
        """Start a raw call; None when it has to be `run`: no server's tool has the name, or the source says so."""
        return None


def as_source(box: ToolBox) -> ToolSource:
    """`box` itself when it is a source, else a source over it, which is watched when it can be."""
    return box if isinstance(box, ToolSource) else _BoxSource(box)


class _BoxSource(ToolSource):
    def __init__(self, box: ToolBox) -> None:
        self._box = box

    @property
    def can_change(self) -> bool:
        return isinstance(self._box, WatchableToolBox)

    def descriptors(self) -> Sequence[ToolDescriptor]:
        return self._box.descriptors()

    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        return await self._box.runner.run(call, cancel)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        return self._box.watch(callback) if isinstance(self._box, WatchableToolBox) else super().watch(callback)
