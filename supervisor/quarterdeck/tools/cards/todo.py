"""`todo`: a checklist of the deck's own, apart from the kernel's, with weights.  It lasts as long as its card."""

from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from typing import Annotated, Final, Literal

from msgspec import Meta

from quarterdeck.config.native_names import Profile
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.deck.contract import Capability, CapabilityCard, DeckContext, JsonSchema, capability_id
from quarterdeck.tools.deck.native_card import NativeCard
from quarterdeck.tools.results import ToolResult
from quarterdeck.tools.spec import Arguments, ToolSpec, define_tool, schema_of, typed
from quarterdeck_protocol.tools import ToolHints

NAME: Final = capability_id("todo")
TITLE: Final = "Checklist"

MAX_ITEMS: Final = 500
"""Of one list; a longer one is a file's job."""

MAX_TASK_CHARS: Final = 2_000
"""Of one item; with `MAX_ITEMS` it bounds what a session holds."""


class TodoState(StrEnum):
    """How far an item is."""

    PENDING = "pending"
    ACTIVE = "active"
    DONE = "done"
    DROPPED = "dropped"


class TodoWeight(StrEnum):
    """How much an item matters."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


class TodoItem(Arguments, frozen=True):
    """One item of the list."""

    task: Annotated[str, Meta(min_length=1, description="What is to be done, in one line.")]
    state: Annotated[TodoState, Meta(description="pending, active (being worked on), done or dropped.")]
    weight: Annotated[TodoWeight, Meta(description="How much it matters.")]


class TodoArguments(Arguments, frozen=True):
    """Read the list, or replace it."""

    action: Annotated[Literal["read", "set"], Meta(description="read shows the list, set replaces it.")]
    items: (
        Annotated[list[TodoItem], Meta(description="For set: every item, in order; without it the list is cleared.")]
        | None
    ) = None


_GLYPHS: Final = {
    TodoState.PENDING: "[ ]",
    TodoState.ACTIVE: "[~]",
    TodoState.DONE: "[x]",
    TodoState.DROPPED: "[-]",
}


class TodoLedger:
    """The list of one card."""

    def __init__(self) -> None:
        self._items: tuple[TodoItem, ...] = ()

    @property
    def items(self) -> tuple[TodoItem, ...]:
        """The present list."""
        return self._items

    def replace(self, items: Sequence[TodoItem]) -> None:
        """Take another list in its place."""
        self._items = tuple(items)

    def render(self) -> str:
        """The list for a model."""
        if not self._items:
            return "The checklist is empty."
        open_count = sum(item.state in (TodoState.PENDING, TodoState.ACTIVE) for item in self._items)
        heading = f"Checklist, {open_count} of {len(self._items)} open:"
        return "\n".join((heading, *map(_line, self._items)))


def todo_card() -> CapabilityCard:
    """The catalogue's row."""
    return CapabilityCard(NAME, TITLE, "Keep a checklist with states and weights.", (Profile.ALL,), _build)


def _build(_: DeckContext) -> Capability:
    ledger = TodoLedger()

    async def run(arguments: TodoArguments, __: ToolContext) -> ToolResult:
        if arguments.action == "set":
            items = arguments.items or []
            if problem := _problem(items):
                return ToolResult.of_error(f"The checklist is unchanged: {problem}")
            ledger.replace(items)
        return ToolResult.of_text(ledger.render())

    return NativeCard(
        define_tool(
            ToolSpec(
                NAME,
                "Keep a checklist for this session. read shows it; set replaces it whole, so send every item. "
                "It is apart from the list of todo_set.",
                _parameters(),
                typed(TodoArguments, run),
                title=TITLE,
                hints=ToolHints(destructive=False, idempotent=True, open_world=False),
            )
        )
    )


@cache
def _parameters() -> JsonSchema:
    return schema_of(TodoArguments)


def _line(item: TodoItem) -> str:
    weight = "" if item.weight is TodoWeight.NORMAL else f" ({item.weight})"
    return f"{_GLYPHS[item.state]} {' '.join(item.task.split())}{weight}"


def _problem(items: Sequence[TodoItem]) -> str | None:
    if len(items) > MAX_ITEMS:
        return f"it may hold {MAX_ITEMS} items, not {len(items)}."
    for number, item in enumerate(items):
        if len(item.task) > MAX_TASK_CHARS:
            return f"items[{number}].task is longer than {MAX_TASK_CHARS:,} characters; shorten it."
    return None
