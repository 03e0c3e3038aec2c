"""The deck's own checklist."""

import pytest
from support.cards import ask, text_of

from quarterdeck.tools.cards.todo import (
    MAX_ITEMS,
    MAX_TASK_CHARS,
    TodoItem,
    TodoLedger,
    TodoState,
    TodoWeight,
    todo_card,
)
from quarterdeck.tools.deck.contract import DeckContext


def item(task: str = "dig", state: str = "pending", weight: str = "normal") -> dict[str, object]:
    return {"task": task, "state": state, "weight": weight}


@pytest.mark.anyio
async def test_a_list_is_shown_with_states_and_weights() -> None:
    """A model would lose track of what matters."""
    run = ask(todo_card())
    items = [
        item("dig", "done"),
        item("fill\nup", "active", "high"),
        item("sweep", weight="low"),
        item("paint", "dropped"),
    ]
    expected = "Checklist, 2 of 4 open:\n[x] dig\n[~] fill up (high)\n[ ] sweep (low)\n[-] paint"
    assert text_of(await run(action="set", items=items)) == expected
    assert text_of(await run(action="read")) == expected


@pytest.mark.anyio
async def test_set_replaces_the_list_and_clears_it_without_items() -> None:
    """Items that were dropped would stay."""
    run = ask(todo_card())
    await run(action="set", items=[item("dig"), item("fill")])
    assert text_of(await run(action="set", items=[item("sweep")])) == "Checklist, 1 of 1 open:\n[ ] sweep"
    assert text_of(await run(action="set")) == "The checklist is empty."
    assert text_of(await run(action="read")) == "The checklist is empty."


@pytest.mark.anyio
async def test_every_card_has_a_list_of_its_own() -> None:
    """Two sessions would share one."""
    ours, theirs = ask(todo_card()), ask(todo_card())
    await ours(action="set", items=[item()])
    assert text_of(await theirs(action="read")) == "The checklist is empty."


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "action is missing"),
        ({"action": "clear"}, "action: expected one of"),
        ({"action": "set", "items": "dig"}, "items: expected a list"),
        ({"action": "set", "items": [{"task": "dig", "state": "pending"}]}, "items[0].weight is missing"),
        ({"action": "set", "items": [item(state="doing")]}, "items[0].state: expected one of"),
        ({"action": "set", "items": [item(), item("x" * (MAX_TASK_CHARS + 1))]}, "items[1].task is longer than 2,000"),
        ({"action": "set", "items": [item()] * (MAX_ITEMS + 1)}, "it may hold 500 items, not 501"),
    ],
)
async def test_a_wrong_call_changes_nothing_and_says_what_is_wrong(arguments: dict[str, object], said: str) -> None:
    """A model would lose its list to a slip."""
    run = ask(todo_card())
    await run(action="set", items=[item("kept")])
    result = await run(**arguments)
    assert result.is_error
    assert said in text_of(result)
    assert "[ ] kept" in text_of(await run(action="read"))


def test_a_ledger_can_be_used_by_itself() -> None:
    """A host that shows the list would have to parse a text."""
    ledger = TodoLedger()
    dig = TodoItem(task="dig", state=TodoState.ACTIVE, weight=TodoWeight.HIGH)
    ledger.replace([dig])
    assert ledger.items == (dig,)
    assert ledger.render() == "Checklist, 1 of 1 open:\n[~] dig (high)"


def test_what_a_client_may_assume() -> None:
    """A client would ask its user before every tick on a list, or never."""
    hints = todo_card().build(DeckContext("/work")).hints
    assert hints is not None
    assert (hints.read_only, hints.destructive, hints.open_world) == (False, False, False)
