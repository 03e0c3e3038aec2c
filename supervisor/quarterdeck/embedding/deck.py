"""Promised names of the deck that the product does not use: views of the catalogue, cards, a registry, plan files."""

import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast

from quarterdeck.common.file_changes import replace_file
from quarterdeck.common.tool_names import Profile
from quarterdeck.tools.card_types import (
    Capability,
    CapabilityCard,
    CapabilityId,
    DeckContext,
    DeckFault,
    DeckFaultKind,
    WrappedCard,
)
from quarterdeck.tools.catalogue import build_card, capability_cards, capability_ids, cards_for_profile, find_card
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.results import JsonContentBlock, TextContentBlock, ToolResult
from quarterdeck.tools.runner import DeckToolBox, unknown_name_text
from quarterdeck.tools.spec import DefinedTool
from quarterdeck_protocol.tools import ToolBox, ToolCall, ToolOutcome

_REGISTRY_ORDER: Final = (
    *("read", "ls", "grep", "find", "websearch", "webfetch", "write", "edit", "bash"),
    *("todo_set", "todo_read", "process"),
)

PLANS_DIRNAME: Final = "plans"
"""Within a session's directory."""

MAX_SLUG_CHARS: Final = 48
"""Long enough to tell plans apart, short enough for a listing."""

MAX_PLAN_BYTES: Final = 1024 * 1024
"""The largest plan that is read back; one that a person approved is far shorter."""

_BASE36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"

BridgeBuilder = Callable[[DeckContext], Capability]
"""Makes the card of a built-in tool.  None needs the context today: directory and read state come with each call."""


class NativeCard(WrappedCard):
    """A tool as a card, under a label of the deck's own."""

    def __init__(self, tool: DefinedTool, label: str = "") -> None:
        super().__init__(tool)
        self._tool = tool
        self.label = label or tool.label


class BuiltinCard(NativeCard):
    """A built-in tool as a card whose result is one block."""

    def __init__(self, tool: DefinedTool, title: str = "", *, read_only: bool = False) -> None:
        super().__init__(tool, title)
        self.read_only = read_only

    async def run(self, value: object, ctx: ToolContext) -> ToolResult:
        """Run one call. Its outcome is one block: text for a text, else JSON; several blocks are the one JSON value
        that they project to, so that none is lost.
        """
        call = ToolCall(f"{self.name}-builtin", self.name, value, ctx.report)
        outcome = await self._tool.invoke(call, ctx)
        block = (
            TextContentBlock(outcome.output) if isinstance(outcome.output, str) else JsonContentBlock(outcome.output)
        )
        return ToolResult((block,), outcome.is_error, outcome.wire, outcome.structured)


@dataclass(frozen=True, slots=True)
class BuiltinDescriptor:
    """The row of one built-in tool; `factory` makes the same object each time."""

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


@cache
def builtin_descriptors() -> tuple[BuiltinDescriptor, ...]:
    """The twelve built-in tools, those that observe first."""
    return tuple(
        BuiltinDescriptor(row.id, row.title, row.summary, partial(_tool_of, row), row.profiles)
        for row in capability_cards()
        if not _is_app(row)
    )


@cache
def builtin_bridge() -> Mapping[CapabilityId, BuiltinDescriptor]:
    """The built-in tools by id."""
    return MappingProxyType({row.id: row for row in builtin_descriptors()})


def builtin_ids() -> list[CapabilityId]:
    """The ids of the built-in tools, in order."""
    return [row.id for row in builtin_descriptors()]


def builtin_profiles() -> dict[CapabilityId, tuple[Profile, ...]]:
    """Return the profiles of each built-in tool."""
    return {row.id: row.profiles for row in builtin_descriptors()}


def builtin_cards() -> list[CapabilityCard]:
    """The rows of the built-in tools, in order."""
    return [row.to_card() for row in builtin_descriptors()]


def build_builtin(name: str, ctx: DeckContext) -> Capability:
    """Return the card of one built-in tool. Raise DeckFault: `unknown_capability`, or `build_failed` with its cause."""
    row = builtin_bridge().get(CapabilityId(name))
    if row is None:
        raise DeckFault(DeckFaultKind.UNKNOWN_CAPABILITY, unknown_name_text(name, builtin_ids()))
    return build_card(row.to_card(), ctx)


def build_builtins_for_profile(profile: Profile, ctx: DeckContext) -> list[Capability]:
    """Return the cards of all built-in tools in `profile`, in order. Raise DeckFault (`build_failed`) with a cause."""
    return [build_card(card, ctx) for card in builtin_cards() if card.in_profile(profile)]


def app_novel_cards() -> list[CapabilityCard]:
    """The rows of the seven app cards, in order."""
    return [row for row in capability_cards() if _is_app(row)]


def _row(name: str) -> CapabilityCard:
    row = find_card(name)
    assert row is not None
    return row


todo_card: Final = partial(_row, "todo")
daemon_card: Final = partial(_row, "bg-process")
task_card: Final = partial(_row, "task")
saas_card: Final = partial(_row, "saas-action")
memory_card: Final = partial(_row, "memory")
enter_plan_mode_card: Final = partial(_row, "enter_plan_mode")
exit_plan_mode_card: Final = partial(_row, "exit_plan_mode")
"""The row of each app card."""


@cache
def capability_index() -> Mapping[CapabilityId, int]:
    """Return each id's position in the catalogue."""
    return MappingProxyType({name: position for position, name in enumerate(capability_ids())})


def has_capability(name: str) -> bool:
    """Whether the catalogue holds a row of this id."""
    return find_card(name) is not None


def card_profiles() -> dict[CapabilityId, tuple[Profile, ...]]:
    """Return the profiles of each row."""
    return {card.id: card.profiles for card in capability_cards()}


def cards_for_deck_profile(profile: Profile) -> list[CapabilityCard]:
    """The rows that `provision_deck` builds."""
    return cards_for_profile(profile)


def project_result(call_id: str, result: ToolResult) -> ToolOutcome:
    """The outcome of the call that ran to `result`; see `ToolResult.to_outcome`."""
    return result.to_outcome(call_id)


class UnknownToolError(LookupError):
    """A registry does not hold the name `missing`."""

    def __init__(self, missing: str) -> None:
        super().__init__(f"there is no tool called {missing!r}")
        self.missing = missing


class ToolRegistry:
    """Tools by name, in the order of their first registration."""

    def __init__(self) -> None:
        self._tools: dict[str, DefinedTool] = {}

    def register(self, tool: DefinedTool) -> None:
        """Add `tool`; one of the same name is replaced and its position kept."""
        self._tools[tool.name] = tool

    def register_all(self, tools: Iterable[DefinedTool]) -> None:
        """Add `tools` in their order."""
        for tool in tools:
            self.register(tool)

    def has(self, name: str) -> bool:
        """Whether a tool of this name is registered."""
        return name in self._tools

    def get(self, name: str) -> DefinedTool:
        """Return the tool of this name. Raise UnknownToolError if there is none."""
        if name not in self._tools:
            raise UnknownToolError(name)
        return self._tools[name]

    def names(self) -> tuple[str, ...]:
        """Return all names, in order."""
        return tuple(self._tools)

    def to_tool_box(self, make_context: Callable[[], ToolContext]) -> ToolBox:
        """Return a box of the present tools over one context, for which `make_context` is called once."""
        return DeckToolBox(self._tools.values(), make_context())


def builtin_registry() -> ToolRegistry:
    """Return a new registry of the twelve built-in tools; the tools are the same objects each time."""
    registry = ToolRegistry()
    registry.register_all(builtin_bridge()[CapabilityId(name)].factory() for name in _REGISTRY_ORDER)
    return registry


def _is_app(row: CapabilityCard) -> bool:
    return row.profiles == (Profile.ALL,)


def _tool_of(row: CapabilityCard) -> DefinedTool:
    return cast("DefinedTool", row.build(DeckContext("/")))


def plan_slug(plan: str) -> str:
    """Return a name for the plan's file: the words of its first non-empty line, in lower-case ASCII, joined by `-`, at
    most `MAX_SLUG_CHARS` long; `plan` when nothing is left.
    """
    title = next((line for line in plan.splitlines() if line.strip()), "")
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub("[^a-z0-9]+", "-", plain).strip("-")[:MAX_SLUG_CHARS].rstrip("-") or "plan"


def plan_file_path(session_dir: Path | str, slug: str) -> Path:
    """Return the path of the plan of this name."""
    return Path(session_dir) / PLANS_DIRNAME / f"{slug}.md"


def write_plan(session_dir: Path | str, plan: str) -> Path:
    """Keep a plan next to all earlier ones. Return its file, named `<time in base 36>-<slug>.md`. May raise OSError."""
    milliseconds, slug = time.time_ns() // 1_000_000, plan_slug(plan)
    while True:
        path = plan_file_path(session_dir, f"{_base36(milliseconds)}-{slug}")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            replace_file(path, plan.encode("utf-8", "replace"), must_be_new=True)
        except FileExistsError:
            milliseconds += 1  # two plans in one millisecond
            continue
        return path


def read_plan(path: Path | str) -> str | None:
    """The plan in a file; None when it is missing, unreadable, or too large to be one."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_PLAN_BYTES + 1)
        return data.decode() if len(data) <= MAX_PLAN_BYTES else None
    except (OSError, ValueError):
        return None


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _BASE36[digit] + digits
    return digits or "0"
