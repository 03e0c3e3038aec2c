"""Calls beside the chain: found again, newest first, and never more than there is room for."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.ledger.ledgers import AT, enrolled, opened

from quarterdeck.ledger.errors import LedgerWriteError
from quarterdeck.ledger.store import call_table
from quarterdeck.ledger.store.call_table import MAX_WAITING, CallLog, CallRow, insert_calls
from quarterdeck.ledger.store.compaction import compact
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.tools import WireResult


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
    monkeypatch.setattr(call_table, "_PAGE", 4)
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


pytestmark = pytest.mark.anyio


async def test_every_end_of_a_call_is_noted_with_what_it_cost() -> None:
    """Nobody could tell afterwards what an agent did, or what took so long."""
    kept: list[CallRow] = []

    async def keep(rows: Sequence[CallRow]) -> None:
        kept.extend(rows)

    log = CallLog(keep)
    log.note("user", "fs", "read", 0.25, WireResult(b"{}", "x"))
    log.note("user", "fs", "read", 0.1, WireResult(b"{  }", "x", is_error=True))
    log.note("user", "fs", "read", 0.1, ProtocolFault(FaultKind.TIMEOUT, "late", code="call_timeout"))
    log.note("user", "fs", "read", 0.1, ProtocolFault(FaultKind.TRANSPORT, "gone"))
    log.note("user", "fs", "read", 0.1, None)
    await log.close()
    assert [(row.outcome, row.code, row.bytes) for row in kept] == [
        ("ok", "", 2),
        ("error", "", 4),
        ("fault", "call_timeout", 0),
        ("fault", "transport", 0),
        ("cancelled", "", 0),
    ]
    assert (kept[0].scope, kept[0].server, kept[0].tool, kept[0].duration_ms) == ("user", "fs", "read", 250.0)
    assert kept[0].at.endswith("Z")


async def test_notes_that_cannot_be_kept_are_said_and_disturb_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """A full disk would end calls, or lose notes without a word."""

    async def keep(_: Sequence[CallRow]) -> None:
        raise LedgerWriteError("disk full")

    log = CallLog(keep)
    for _ in range(MAX_WAITING + 3):
        log.note("user", "fs", "read", 0.1, None)
    await log.close()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        f"{MAX_WAITING} calls were not recorded",
        "3 calls were not recorded",
    ]
