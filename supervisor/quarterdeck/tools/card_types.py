"""The types of a deck: cards, the rows that build them, their context, and the handles that a host lends. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NewType, Protocol, TypeVar

from quarterdeck.common.tool_names import Profile
from quarterdeck_protocol.tools import ToolHints

from .context import ToolContext
from .results import ToolResult

CapabilityId = NewType("CapabilityId", str)
"""A tool's wire name as the deck knows it (`read`, `bash`, `server__tool`); minted by `capability_id` alone."""


JsonSchema = Mapping[str, object]


def capability_id(name: str) -> CapabilityId:
    """Return the id of the tool called `name`. Raise `ValueError` if it is empty."""
    if not name:
        raise ValueError("a capability needs a name")
    return CapabilityId(name)


class Card(Protocol):
    """A callable tool of a deck."""

    @property
    def name(self) -> str:
        """The name that a model calls it by."""

    @property
    def label(self) -> str:
        """The name that a person is shown."""

    @property
    def description(self) -> str:
        """The description for a model."""

    @property
    def parameters(self) -> JsonSchema:
        """The JSON Schema of its input, an object's."""

    @property
    def read_only(self) -> bool:
        """Whether it changes nothing, so that no permission is needed."""

    @property
    def hints(self) -> ToolHints | None:
        """The assumptions that a client may make; None for a server's tool, whose definition has them."""

    @property
    def definition(self) -> bytes | None:
        """A server's whole tool object, JSON; None for a native tool."""

    @property
    def output_schema(self) -> JsonSchema | None:
        """The JSON Schema of a result's `structured`, an object's; None for results without it."""

    async def run(self, value: object, ctx: ToolContext) -> ToolResult:
        """Run one call. A failure is a result with `is_error`; only cancellation of the task raises."""


Capability = Card
"""The members of a deck."""


class WrappedCard:
    """A card that describes itself and runs as another one does."""

    def __init__(self, inner: Card) -> None:
        self._inner = inner
        self.name = inner.name
        self.label = inner.label
        self.description = inner.description
        self.parameters = inner.parameters
        self.read_only = inner.read_only
        self.hints = inner.hints
        self.definition = inner.definition
        self.output_schema = inner.output_schema

    async def run(self, value: object, ctx: ToolContext) -> ToolResult:
        """See `Card`."""
        return await self._inner.run(value, ctx)


class CheckpointStore(Protocol):
    """Keeps the content of files before they are changed."""

    async def record(self, path: str, previous: bytes | None) -> None:
        """Keep the content of the file at `path`, absolute, before a change; None if there was none.

        Later records of a path within one node change nothing. Raise `OSError` if it cannot be kept.
        """


@dataclass(frozen=True, slots=True)
class Delegation:
    """Work for a sub-agent."""

    objective: str
    agent: str | None = None
    context: str | None = None


@dataclass(frozen=True, slots=True)
class DelegateReport:
    """A sub-agent's final report."""

    ok: bool
    text: str


class DelegateRunner(Protocol):
    """Runs sub-agents."""

    def list_agents(self) -> Sequence[str]:
        """Return the agents that can be named, for the tool's description."""

    async def run(self, work: Delegation, ctx: ToolContext) -> DelegateReport:
        """Have the work done; cancelling stops it."""


@dataclass(frozen=True, slots=True)
class SaasAction:
    """An action of a connected service; `slug` is the vendor's own name of it, verbatim."""

    slug: str
    description: str


@dataclass(frozen=True, slots=True)
class SaasReply:
    """What a service answered: `data` is any JSON value, `error` says why when not `ok`."""

    ok: bool
    data: object = None
    error: str = ""


class SaasGatewayPort(Protocol):
    """Reaches connected services."""

    async def discover(self, query: str | None, toolkits: Sequence[str]) -> Sequence[SaasAction]:
        """Return the actions that match; all of them without a query."""

    async def execute(self, slug: str, arguments: dict[str, object]) -> SaasReply:
        """Run one action."""


class MemoryStore(Protocol):
    """Keeps one note."""

    async def read(self) -> str:
        """Return the note; empty when there is none."""

    async def write(self, text: str) -> None:
        """Replace the note. Raise `OSError` if it cannot be kept."""


@dataclass(frozen=True, slots=True)
class DeckFramework:
    """Handles that a host lends to cards. A card without its handle names it in its result, or has a default."""

    read_state: object | None = None  # the file tools' memory of files read; None for no read-before-edit gate
    checkpoint: CheckpointStore | None = None  # where `write` and `edit` keep the previous content; None for no undo
    delegate: DelegateRunner | None = None  # runs sub-agents for `task`
    saas: SaasGatewayPort | None = None  # reaches services for `saas-action`
    memory: MemoryStore | None = None  # keeps the note of `memory`; None for a note that lasts as long as the card


@dataclass(frozen=True, slots=True)
class DeckContext:
    """The context that cards are built in.

    `base` is the context that every call starts from, None for a plain local one in `cwd`, which is absolute;
    `captures` is the directory of background processes' output files, None for `.indusvx-bg` in `cwd`.
    """

    cwd: str
    framework: DeckFramework = field(default_factory=DeckFramework)
    base: ToolContext | None = None
    captures: Path | None = None


BuildFn = Callable[[DeckContext], Capability]
"""Builds a catalogue row's capability from the context, without changing anything shared."""


@dataclass(frozen=True, slots=True)
class CapabilityCard:
    """A row of the catalogue; each is in the profile `ALL` besides its own, a server's tool is in none."""

    id: CapabilityId
    title: str
    summary: str
    profiles: tuple[Profile, ...]
    build: BuildFn

    def in_profile(self, profile: Profile) -> bool:
        """Return whether it belongs to `profile`."""
        return profile in self.profiles or (profile is Profile.ALL and bool(self.profiles))


class DeckFaultKind(StrEnum):
    """Why a deck could not be made."""

    UNKNOWN_CAPABILITY = "unknown_capability"
    BUILD_FAILED = "build_failed"
    BRIDGE = "bridge"
    BACKEND = "backend"


class DeckFault(Exception):  # noqa: N818 - a fault, like the bridge's
    """A deck, or a part of it, could not be made; the text is the message alone."""

    def __init__(self, kind: DeckFaultKind, message: str, cause: object = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.cause = cause
        if isinstance(cause, BaseException):
            self.__cause__ = cause


T = TypeVar("T")

DeckResult = Annotated[T, "or a DeckFault is raised"]
"""`DeckResult[ToolDeck]` reads as: a `ToolDeck`, or a `DeckFault` is raised."""
