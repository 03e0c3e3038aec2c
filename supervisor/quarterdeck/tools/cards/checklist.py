"""`todo_set` and `todo_read`: the session's checklist, replaced whole and shown whole.

A list lives as long as its context's identity, and no other context sees it.  Nothing is written to disk.
"""

from enum import StrEnum
from typing import Annotated, Final
from weakref import WeakKeyDictionary

from msgspec import Meta

from quarterdeck.tools.context import ContextId, ToolContext
from quarterdeck.tools.results import ToolResult
from quarterdeck.tools.spec import Arguments, DefinedTool, ToolSpec, define_tool, schema_of, typed
from quarterdeck_protocol.tools import ToolHints

MAX_ITEMS: Final = 500
"""Of one list; a longer one is a file's job."""

MAX_TEXT_CHARS: Final = 2_000
"""Of one item; with `MAX_ITEMS` it bounds what a session holds."""


class TodoStatus(StrEnum):
    """How far an item is."""

    PENDING = "pending"
    ACTIVE = "active"
    DONE = "done"


class TodoRow(Arguments, frozen=True):
    """One item of the list."""

    id: Annotated[str, Meta(min_length=1, description="Its name within the list, unique.")]
    text: Annotated[str, Meta(min_length=1, description="What is to be done, in one line.")]
    status: Annotated[TodoStatus, Meta(description="pending, active (being worked on) or done.")]


class TodoSetArguments(Arguments, frozen=True):
    """The whole list."""

    items: Annotated[list[TodoRow], Meta(description="Every item, in order; [] clears the list.")]


class TodoReadArguments(Arguments, frozen=True):
    """Nothing."""


_GLYPHS: Final = {TodoStatus.PENDING: "[ ]", TodoStatus.ACTIVE: "[~]", TodoStatus.DONE: "[x]"}

_lists: Final[WeakKeyDictionary[ContextId, tuple[TodoRow, ...]]] = WeakKeyDictionary()


def todo_set_tool() -> DefinedTool:
    """The tool that replaces the list."""
    return define_tool(
        ToolSpec(
            "todo_set",
            "Replace this session's checklist with the given items and show it. Send every item, also the unchanged "
            "ones: what is left out is gone. Keep exactly one item active while you work.",
            schema_of(TodoSetArguments),
            typed(TodoSetArguments, _set),
            title="Update checklist",
            hints=ToolHints(destructive=False, idempotent=True, open_world=False),
        )
    )


def todo_read_tool() -> DefinedTool:
    """The tool that shows the list."""
    return define_tool(
        ToolSpec(
            "todo_read",
            "Show this session's checklist, as todo_set left it.",
            schema_of(TodoReadArguments),
            typed(TodoReadArguments, _read),
            title="Read checklist",
            hints=ToolHints(read_only=True, destructive=False, idempotent=True, open_world=False),
        )
    )


async def _set(arguments: TodoSetArguments, ctx: ToolContext) -> ToolResult:
    items = tuple(arguments.items)
    if problem := _problem(items):
        return ToolResult.of_error(f"The checklist is unchanged: {problem}")
    _lists[ctx.context_id] = items
    return ToolResult.of_text(render(items))


async def _read(_: TodoReadArguments, ctx: ToolContext) -> ToolResult:
    return ToolResult.of_text(render(_lists.get(ctx.context_id, ())))


def render(items: tuple[TodoRow, ...]) -> str:
    """The list for a model: how it stands, then one line an item."""
    if not items:
        return "The checklist is empty."
    counts = {status: sum(item.status is status for item in items) for status in TodoStatus}
    noun = "task" if len(items) == 1 else "tasks"
    heading = (
        f"{len(items)} {noun}: {counts[TodoStatus.ACTIVE]} active, {counts[TodoStatus.PENDING]} pending, "
        f"{counts[TodoStatus.DONE]} done."
    )
    rows = (f"{_GLYPHS[item.status]} ({item.id}) {' '.join(item.text.split())}" for item in items)
    return "\n".join((heading, *rows))


def _problem(items: tuple[TodoRow, ...]) -> str | None:
    if len(items) > MAX_ITEMS:
        return f"it may hold {MAX_ITEMS} items, not {len(items)}."
    first: dict[str, int] = {}
    for number, item in enumerate(items):
        if len(item.text) > MAX_TEXT_CHARS or len(item.id) > MAX_TEXT_CHARS:
            return f"items[{number}] is longer than {MAX_TEXT_CHARS:,} characters; shorten it."
        if item.id in first:
            return f"items[{first[item.id]}] and items[{number}] have the same id {item.id!r}; give each its own."
        first[item.id] = number
    return None
