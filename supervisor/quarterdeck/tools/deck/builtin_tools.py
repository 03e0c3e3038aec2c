"""The bridge to the kernel's tools: one table of the twelve, and what is derived from it.

The deck writes no tool here; it names them for people and says which profiles they belong to.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import Final

from quarterdeck.config.native_names import Profile
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.registry import builtin_tool, unknown_name_text
from quarterdeck.tools.results import JsonContentBlock, TextContentBlock, ToolResult
from quarterdeck.tools.spec import DefinedTool
from quarterdeck_protocol.tools import ToolCall

from .contract import Capability, CapabilityCard, CapabilityId, DeckContext, DeckFault, DeckFaultKind, capability_id
from .native_card import NativeCard

READ_ONLY: Final = (Profile.AUTHORING, Profile.SURVEY)
"""What observes only."""

MUTATING: Final = (Profile.SURVEY,)
"""What may change something."""

BridgeBuilder = Callable[[DeckContext], Capability]
"""Mints the card of a built-in.  No factory needs the context today: cwd and read state come with each call."""


class BuiltinCard(NativeCard):
    """A kernel tool as a card: one call in, one block out."""

    def __init__(self, tool: DefinedTool, title: str = "", *, read_only: bool = False) -> None:
        super().__init__(tool, title)
        self._read_only = read_only

    @property
    def read_only(self) -> bool:
        """Whether the table lists it among those that observe only."""
        return self._read_only

    async def run(self, value: object, ctx: ToolContext) -> ToolResult:
        """Run one call; its outcome is one block: a text as text, anything else as JSON, `wire` unchanged.

        Several blocks are the one JSON value that they project to, so that none is lost.
        """
        call = ToolCall(f"{self.name}-builtin", self.name, value, ctx.report)
        outcome = await self._tool.invoke(call, ctx)
        block = (
            TextContentBlock(outcome.output) if isinstance(outcome.output, str) else JsonContentBlock(outcome.output)
        )
        return ToolResult((block,), outcome.is_error, outcome.wire)


@dataclass(frozen=True, slots=True)
class BuiltinDescriptor:
    """One row of the table.

    Attributes:
        title: for people.
        summary: one line, for help and listings.
        factory: the kernel's tool; without arguments, the same object each time.
        profiles: `READ_ONLY` or `MUTATING`.
    """

    id: CapabilityId
    title: str
    summary: str
    factory: Callable[[], DefinedTool]
    profiles: tuple[Profile, ...]

    @property
    def read_only(self) -> bool:
        """Derived from the membership, so that the catalogue and the card cannot disagree."""
        return Profile.AUTHORING in self.profiles

    def build(self, _: DeckContext) -> Capability:
        """The card; a `BridgeBuilder`."""
        return BuiltinCard(self.factory(), self.title, read_only=self.read_only)

    def to_card(self) -> CapabilityCard:
        """The row as the catalogue holds it."""
        return CapabilityCard(self.id, self.title, self.summary, self.profiles, self.build)


def _row(name: str, title: str, summary: str, profiles: tuple[Profile, ...]) -> BuiltinDescriptor:
    return BuiltinDescriptor(capability_id(name), title, summary, partial(builtin_tool, name), profiles)


_TABLE: Final = (
    _row("read", "Read file", "Show a file's lines, or an image.", READ_ONLY),
    _row("ls", "List directory", "Show what a directory holds.", READ_ONLY),
    _row("grep", "Search file contents", "Find lines that match a pattern.", READ_ONLY),
    _row("find", "Find files by name", "Find files and directories by name.", READ_ONLY),
    _row("websearch", "Web search", "Search the web.", READ_ONLY),
    _row("webfetch", "Fetch URL", "Show a page of the web as text.", READ_ONLY),
    _row("todo_read", "Read checklist", "Show the session's checklist.", READ_ONLY),
    _row("write", "Write file", "Create or replace a file.", MUTATING),
    _row("edit", "Edit file", "Replace a passage of a file.", MUTATING),
    _row("bash", "Run shell command", "Run a command to its end and show its output.", MUTATING),
    _row("process", "Manage background processes", "Start, watch and stop commands that run on.", MUTATING),
    _row("todo_set", "Update checklist", "Replace the session's checklist.", MUTATING),
)


def builtin_descriptors() -> tuple[BuiltinDescriptor, ...]:
    """The table, in its order: what observes first."""
    return _TABLE


@cache
def builtin_bridge() -> Mapping[CapabilityId, BuiltinDescriptor]:
    """The table by id."""
    return MappingProxyType({row.id: row for row in _TABLE})


def builtin_ids() -> list[CapabilityId]:
    """The ids, in order."""
    return [row.id for row in _TABLE]


def builtin_profiles() -> dict[CapabilityId, tuple[Profile, ...]]:
    """Which profiles each belongs to."""
    return {row.id: row.profiles for row in _TABLE}


def builtin_cards() -> list[CapabilityCard]:
    """The rows as the catalogue holds them, in order."""
    return [row.to_card() for row in _TABLE]


def build_builtin(name: str, ctx: DeckContext) -> Capability:
    """The card of one built-in.

    Raises:
        DeckFault: `unknown_capability`, or `build_failed` with its cause.
    """
    row = builtin_bridge().get(CapabilityId(name))
    if row is None:
        raise DeckFault(DeckFaultKind.UNKNOWN_CAPABILITY, unknown_name_text(name, builtin_bridge()))
    return build_card(row.to_card(), ctx)


def build_builtins_for_profile(profile: Profile, ctx: DeckContext) -> list[Capability]:
    """The cards of every built-in in `profile`, in order.

    Raises:
        DeckFault: `build_failed` with its cause.
    """
    return [build_card(card, ctx) for card in builtin_cards() if card.in_profile(profile)]


def build_card(card: CapabilityCard, ctx: DeckContext) -> Capability:
    """The live capability of a catalogue row.

    Raises:
        DeckFault: `build_failed` with its cause.
    """
    try:
        return card.build(ctx)
    except DeckFault:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise DeckFault(DeckFaultKind.BUILD_FAILED, f"{card.id} could not be built: {reason}", error) from error
