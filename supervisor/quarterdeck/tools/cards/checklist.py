"""Checklists: `todo_set` and `todo_read` over a session's list, `todo` over a list of its own.

A list is replaced and shown whole. A session's list lives as long as its context's identity, a card's as long as the
card, both in memory only.
"""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Final, Literal
from weakref import WeakKeyDictionary

from msgspec import Meta

from quarterdeck.common.words import counted
from quarterdeck.tools import session_notes
from quarterdeck.tools.card_types import DeckContext
from quarterdeck.tools.context import ContextId, ToolContext
from quarterdeck.tools.results import ToolResult
from quarterdeck.tools.spec import Arguments, DefinedTool, native_tool
from quarterdeck_protocol.tools import ToolHints

MAX_ITEMS: Final = 500  # of one list; a longer one is a file's job
MAX_TEXT_CHARS: Final = 2_000  # of one item; with `MAX_ITEMS` it bounds what a session holds
_CHANGES: Final = ToolHints(destructive=False, idempotent=True, open_world=False)
_GLYPHS: Final = {"pending": "[ ]", "active": "[~]", "done": "[x]", "dropped": "[-]"}


class TodoRow(Arguments, frozen=True):
    """One item of a session's list."""

    id: Annotated[str, Meta(min_length=1, description="Its name within the list, unique.")]
    text: Annotated[str, Meta(min_length=1, description="What is to be done, in one line.")]
    status: Annotated[
        Literal["pending", "active", "done"], Meta(description="pending, active (being worked on) or done.")
    ]


class TodoSetArguments(Arguments, frozen=True):
    """The whole list."""

    items: Annotated[list[TodoRow], Meta(description="Every item, in order; [] clears the list.")]


class TodoReadArguments(Arguments, frozen=True):
    """Nothing."""


class TodoState(StrEnum):
    """The state of an item of a card's list."""

    PENDING = "pending"
    ACTIVE = "active"
    DONE = "done"
    DROPPED = "dropped"


class TodoWeight(StrEnum):
    """The weight of an item."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


class TodoItem(Arguments, frozen=True):
    """One item of a card's list."""

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


class TodoLedger:
    """The list of one card, in `items`."""

    def __init__(self) -> None:
        self.items: tuple[TodoItem, ...] = ()

    def replace(self, items: Sequence[TodoItem]) -> None:
        """Replace the list."""
        self.items = tuple(items)

    def render(self) -> str:
        """Return the list for a model."""
        open_count = sum(item.state in (TodoState.PENDING, TodoState.ACTIVE) for item in self.items)
        weights = {TodoWeight.LOW: " (low)", TodoWeight.NORMAL: "", TodoWeight.HIGH: " (high)"}
        rows = [f"{_GLYPHS[item.state]} {_line(item.task)}{weights[item.weight]}" for item in self.items]
        return _shown(f"Checklist, {open_count} of {len(rows)} open:", rows)


_lists: Final[WeakKeyDictionary[ContextId, tuple[TodoRow, ...]]] = WeakKeyDictionary()


def todo_set_tool() -> DefinedTool:
    """Make the tool that replaces the session's list."""

    async def run(arguments: TodoSetArguments, ctx: ToolContext) -> ToolResult:
        items = tuple(arguments.items)
        problem = _problem([(f"items[{n}]", max(item.text, item.id, key=len)) for n, item in enumerate(items)])
        if problem := problem or _twice(items):
            return ToolResult.of_error(f"The checklist is unchanged: {problem}")
        _lists[ctx.context_id] = items
        _note("the checklist of todo_set", len(items))
        return ToolResult.of_text(_render(items))

    return native_tool(
        "todo_set",
        "Replace this session's checklist with the given items and show it. Send every item, also the unchanged "
        "ones: an item that is left out is removed. Keep exactly one item active while you work.",
        TodoSetArguments,
        run,
        hints=_CHANGES,
    )


def todo_read_tool() -> DefinedTool:
    """Make the tool that shows the session's list."""

    async def run(_: TodoReadArguments, ctx: ToolContext) -> ToolResult:
        return ToolResult.of_text(_render(_lists.get(ctx.context_id, ())))

    return native_tool(
        "todo_read",
        "Show this session's checklist, as todo_set left it.",
        TodoReadArguments,
        run,
        hints=ToolHints(read_only=True, destructive=False, idempotent=True, open_world=False),
    )


def todo_tool(_: DeckContext) -> DefinedTool:
    """Make a card with a list of its own."""
    ledger = TodoLedger()

    async def run(arguments: TodoArguments, __: ToolContext) -> ToolResult:
        if arguments.action == "set":
            items = arguments.items or []
            if problem := _problem([(f"items[{n}].task", item.task) for n, item in enumerate(items)]):
                return ToolResult.of_error(f"The checklist is unchanged: {problem}")
            ledger.replace(items)
            _note("the checklist of todo", len(items))
        return ToolResult.of_text(ledger.render())

    return native_tool(
        "todo",
        "Keep a checklist for this session. read shows it; set replaces all of it, so send every item. "
        "It is separate from the list of todo_set.",
        TodoArguments,
        run,
        hints=_CHANGES,
    )


def _note(kind: str, count: int) -> None:
    if (notes := session_notes.current.get()) is not None:
        notes.note(kind, [f"({counted(count, 'item')})"] if count else [])


def _render(items: Sequence[TodoRow]) -> str:
    counts = Counter(item.status for item in items)
    heading = (
        f"{counted(len(items), 'task')}: {counts['active']} active, {counts['pending']} pending, {counts['done']} done."
    )
    return _shown(heading, [f"{_GLYPHS[item.status]} ({item.id}) {_line(item.text)}" for item in items])


def _shown(heading: str, rows: Sequence[str]) -> str:
    return "\n".join((heading, *rows)) if rows else "The checklist is empty."


def _line(text: str) -> str:
    return " ".join(text.split())


def _problem(texts: Sequence[tuple[str, str]]) -> str | None:
    """Return why a list is refused; `texts` has each item's longest text, with its place."""
    if len(texts) > MAX_ITEMS:
        return f"it may hold {MAX_ITEMS} items, not {len(texts)}."
    for place, text in texts:
        if len(text) > MAX_TEXT_CHARS:
            return f"{place} is longer than {MAX_TEXT_CHARS:,} characters; shorten it."
    return None


def _twice(items: Sequence[TodoRow]) -> str | None:
    first: dict[str, int] = {}
    for number, item in enumerate(items):
        if item.id in first:
            return f"items[{first[item.id]}] and items[{number}] have the same id {item.id!r}; give each its own."
        first[item.id] = number
    return None
