"""What is added to a ledger is seen by who follows it, whatever becomes of the ledger meanwhile."""

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace
from support.ledger.histories import fill, open_ledger

from quarterdeck.ledger.follow import follow_calls
from quarterdeck.ledger.store.queries import CallRow, Retention


def add(state: Path, *tools: str, keep: int = 100) -> None:
    with open_ledger(state) as store:
        store.record_calls([CallRow("2026-01-05", "/m.json", "fs", tool, "ok") for tool in tools], Retention(keep))


def test_calls_are_followed_through_retention_and_a_ledger_that_is_replaced(tmp_path: Path) -> None:
    """An audit would miss calls, tell some twice, or end when the ledger was restored from a backup."""
    state, moved = tmp_path / "s", tmp_path / "moved"
    fill(state)
    happens: list[Callable[[], object]] = [
        lambda: add(state, "a", "b"),
        lambda: add(state, "c", "d", keep=1),
        lambda: None,
        lambda: (state / "ledger").rename(moved),
        lambda: None,
        lambda: add(state, "new"),
        lambda: add(state, "e"),
    ]
    following = follow_calls(state / "ledger", 1, lambda _: happens.pop(0)() and None)
    assert [next(following).tool for _ in range(6)] == ["read", "a", "b", "d", "new", "e"]
    assert not happens


def test_only_what_is_selected_is_followed(tmp_path: Path) -> None:
    """Who watches one server would see all."""
    fill(tmp_path)
    happens = [lambda: add(tmp_path, "a"), lambda: open_time(tmp_path)]
    following = follow_calls(tmp_path / "ledger", 9, lambda _: happens.pop(0)(), server="time")
    assert [next(following).tool for _ in range(2)] == ["now", "later"]


def open_time(state: Path) -> None:
    with open_ledger(state) as store:
        store.record_calls([replace(next(store.calls(server="time")), tool="later", number=None)])
