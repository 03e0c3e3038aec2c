"""The session's checklist."""

import pytest
from support.tools.cards import ask, text_of
from support.tools.contexts import inert_context

from quarterdeck.tools.cards.checklist import MAX_ITEMS, MAX_TEXT_CHARS, todo_read_tool, todo_set_tool, todo_tool
from quarterdeck.tools.context import ToolContext
from quarterdeck_protocol.tools import ToolCall, ToolOutcome


def item(number: int, status: str = "pending", text: str = "dig") -> dict[str, object]:
    return {"id": str(number), "text": text, "status": status}


async def put(ctx: ToolContext, *items: dict[str, object]) -> ToolOutcome:
    return await todo_set_tool().invoke(ToolCall("1", "todo_set", {"items": list(items)}), ctx)


async def read(ctx: ToolContext) -> object:
    return (await todo_read_tool().invoke(ToolCall("1", "todo_read", {}), ctx)).output


async def test_a_list_is_shown_with_its_counts() -> None:
    """A model would lose track of what is done."""
    ctx = inert_context()
    outcome = await put(ctx, item(1, "done", "dig"), item(2, "active", "two\nlines"), item(3))
    expected = "3 tasks: 1 active, 1 pending, 1 done.\n[x] (1) dig\n[~] (2) two lines\n[ ] (3) dig"
    assert outcome.output == await read(ctx) == expected


async def test_a_list_is_replaced_whole_and_cleared_by_none() -> None:
    """Items that were dropped would stay."""
    ctx = inert_context()
    await put(ctx, item(1), item(2))
    await put(ctx, item(3))
    assert await read(ctx) == "1 task: 0 active, 1 pending, 0 done.\n[ ] (3) dig"
    await put(ctx)
    assert await read(ctx) == "The checklist is empty."


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([item(1), item(2), item(1)], "items[0] and items[2] have the same id '1'"),
        ([item(1, text="x" * (MAX_TEXT_CHARS + 1))], "items[0] is longer than 2,000 characters"),
        ([{**item(1), "id": "x" * (MAX_TEXT_CHARS + 1)}], "items[0] is longer than 2,000 characters"),
        ([item(number) for number in range(MAX_ITEMS + 1)], "it may hold 500 items, not 501"),
    ],
)
async def test_a_wrong_list_changes_nothing_and_the_row_is_named(items: list[dict[str, object]], said: str) -> None:
    """A model could not tell which row to mend, or would lose the list that it had."""
    ctx = inert_context()
    await put(ctx, item(9))
    outcome = await put(ctx, *items)
    assert outcome.is_error
    assert said in str(outcome.output)
    assert "(9) dig" in str(await read(ctx))


def task(task: str = "dig", state: str = "pending", weight: str = "normal") -> dict[str, object]:
    return {"task": task, "state": state, "weight": weight}


async def test_a_list_is_shown_with_states_and_weights() -> None:
    """A model would lose track of what matters."""
    run = ask(todo_tool)
    items = [
        task("dig", "done"),
        task("fill\nup", "active", "high"),
        task("sweep", weight="low"),
        task("paint", "dropped"),
    ]
    expected = "Checklist, 2 of 4 open:\n[x] dig\n[~] fill up (high)\n[ ] sweep (low)\n[-] paint"
    assert text_of(await run(action="set", items=items)) == expected
    assert text_of(await run(action="read")) == expected


async def test_set_replaces_the_list_and_clears_it_without_items() -> None:
    """Items that were dropped would stay."""
    run = ask(todo_tool)
    await run(action="set", items=[task("dig"), task("fill")])
    assert text_of(await run(action="set", items=[task("sweep")])) == "Checklist, 1 of 1 open:\n[ ] sweep"
    assert text_of(await run(action="set")) == "The checklist is empty."
    assert text_of(await run(action="read")) == "The checklist is empty."


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([task(), task("x" * (MAX_TEXT_CHARS + 1))], "items[1].task is longer than 2,000"),
        ([task()] * (MAX_ITEMS + 1), "it may hold 500 items, not 501"),
    ],
)
async def test_a_wrong_set_changes_nothing_and_says_what_is_wrong(items: list[dict[str, object]], said: str) -> None:
    run = ask(todo_tool)
    await run(action="set", items=[task("kept")])
    result = await run(action="set", items=items)
    assert result.is_error
    assert said in text_of(result)
    assert "[ ] kept" in text_of(await run(action="read"))
