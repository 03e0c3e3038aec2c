"""`quarterdeck top`: both views in a terminal, and what its keys do."""

from dataclasses import replace
from typing import Any

import pytest

from quarterdeck.daemon.control.protocol import FaultView, ServerView
from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.page.state import DeckLook, ServerLook, items_of
from quarterdeck.trust.judge.overview import Matter, ServerMatters, State
from quarterdeck.trust.judge.verdicts import Decision
from quarterdeck.trust.scan.tool_names import NO_NAMES

pytest.importorskip("textual", reason="needs the extra tui")

from textual.widgets import DataTable, Static

from quarterdeck.cli.run.top import Held, Top, World

HOSTILE = "[red]\x1b[2Jlend\u202e\nback"


def server(**fields: Any) -> ServerLook:
    view: dict[str, Any] = {"id": "library", "phase": "ready", "transport": "stdio", "tools": 2, "pid": 1}
    view |= dict.fromkeys(("worker_pid", "memory_bytes", "uptime_s", "era", "fault"))
    return ServerLook("deck", "", ServerView(**{**view, "restarts": 0, **fields}), None)


def held() -> Held:
    documents = {"a": b'{"description":"Lend."}', "b": b'{"description":"Lend it all."}'}
    matter = Matter(ItemKey(Subject.TOOL, HOSTILE), State.CHANGED, "b", "a")
    [item], is_whole = items_of([matter], documents.get, NO_NAMES, whole=False)
    return Held(ServerMatters("user", "library", (matter,)), item, is_whole)


class Stage:
    """What the terminal shows, and what was done by it."""

    def __init__(self) -> None:
        fault = FaultView("spawn_failed", "command_not_found", HOSTILE, "install it", "not_sent")
        looks = (server(phase="faulted", fault=fault), server(id="other"))
        self.world = World((DeckLook("deck", "user", (), "", (), looks, ()),), (held(),))
        self.done: list[Any] = []
        self.top = Top(lambda: self.world, self.decide, lambda look: self.done.append(look.view.id))

    def decide(self, decisions: Any) -> None:
        self.done += decisions
        self.world = World(self.world.decks, ())

    def text(self, id_: str) -> str:
        return str(self.top.query_one(f"#{id_}", Static).content)

    def rows(self, id_: str) -> list[list[str]]:
        table = self.top.query_one(f"#{id_}", DataTable)
        return [list(map(str, table.get_row_at(row))) for row in range(table.row_count)]


async def test_both_views_show_what_the_page_shows_and_keys_decide_what_was_read() -> None:
    """A person would approve what came under the cursor while they read another, or what they saw a part of."""
    stage = Stage()
    [item] = stage.world.held
    key = ItemKey(Subject.TOOL, HOSTILE)
    async with stage.top.run_test() as pilot:
        assert [row[:3] for row in stage.rows("servers")] == [["library", "faulted", "2"], ["other", "ready", "2"]]
        shown = "".join(map(str, stage.rows("items"))) + stage.text("change") + stage.text("attention")
        assert "library is faulted: command_not_found" in shown
        assert "fix: install it" in shown
        assert "[red]" in shown
        assert not {"\x1b", "\u202e"} & set(shown)
        await pilot.press("n", "r", "v")
        assert "Lend it all." in stage.text("change")
        # Meanwhile another is held; it is not shown before somebody has decided.
        stage.world = stage.world._replace(held=(item._replace(server=replace(item.server, server="another")), item))
        await stage.top.look()
        assert [row[0] for row in stage.rows("items")] == ["library"]
        await pilot.press("a")
        assert stage.done == ["library", Decision("user", "library", key, "b")]
        assert "Nothing is held." in stage.text("change")

        await pilot.press("n")
        stage.world = stage.world._replace(held=(item._replace(is_whole=False),))
        await stage.top.look()
        await pilot.press("v", "a")
        assert len(stage.done) == 2
        await pilot.press("b")
        assert stage.done[2:] == [Decision("user", "library", key)]
