"""Calls beside the chain: found again, newest first, and never more than there is room for."""

from pathlib import Path

import pytest
from support.ledger.ledgers import AT, enrolled, opened

from quarterdeck.ledger.store import queries
from quarterdeck.ledger.store.queries import CallRow, insert_calls
from quarterdeck.ledger.store.rewrite import compact


def call(number: int, server: str = "fs", tool: str = "read") -> CallRow:
    return CallRow(f"2026-01-{number:02}", "/m.json", server, tool, "failed", "timeout", 1.5, number)


def test_calls_are_found_newest_first(tmp_path: Path) -> None:
    """Nobody could see what a server was asked last."""
    rows = [call(1), call(2, "web\udcff"), call(3, tool="write")]
    with opened(tmp_path / "l") as store:
        store.record_calls(rows)
        assert list(store.calls()) == rows[::-1]
        assert list(store.calls(server="web\udcff")) == [rows[1]]
        assert list(store.calls(server="fs", tool="write")) == [rows[2]]
        assert list(store.calls(scope="/other")) == []
        assert list(store.calls(since="2026-01-02", limit=1)) == [rows[2]]


def test_the_oldest_make_room(tmp_path: Path) -> None:
    """A chatty agent would fill the disk."""
    with opened(tmp_path / "l") as store:
        store.record_calls(call(number) for number in range(1, 20))
        insert_calls(store.connection, [call(20)], keep=5)
        assert [row.bytes for row in store.calls()] == [20, 19, 18, 17, 16]


def test_more_calls_than_a_page_holds_are_all_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day's list would end after its first page."""
    monkeypatch.setattr(queries, "_CALLS", 4)
    with opened(tmp_path / "l") as store:
        store.record_calls(call(number) for number in range(1, 20))
        assert [row.bytes for row in store.calls()] == list(range(19, 0, -1))


def test_calls_are_no_part_of_the_chain(tmp_path: Path) -> None:
    """Rotating them would look like a forgery."""
    with opened(tmp_path / "l", AT) as store:
        store.append([enrolled(1), enrolled(2)])
        head = store.head
        store.record_calls([call(1)])
        assert (store.head, store.verify().is_intact) == (head, True)
        compact(store)
        assert len(list(store.calls())) == 1
