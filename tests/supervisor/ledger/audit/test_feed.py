"""A feed tells each event and call of a ledger once, in their order, and says what is missing."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from support.ledger.histories import ZONE, fill, open_ledger, retired

from quarterdeck.ledger.audit import feed as feed_module
from quarterdeck.ledger.audit.feed import Feed, Place
from quarterdeck.ledger.store.queries import CallRow, Retention

CALL = CallRow("2026-01-05T00:00:00.000Z", "/m.json", "fs", "read", "ok", seq=1)


def add(state: Path, *rows: CallRow, keep: int = 100) -> None:
    with open_ledger(state) as store:
        store.record_calls(rows, Retention(keep))


def read(feed: Feed) -> list[str]:
    """All that is new: an event's number, a call's with a c, a gap's size with a g."""
    told = []
    while items := feed.read():
        for item in items:
            kind, members = item.record.members["type"], item.record.members
            told.append({"event": "{seq}", "call": "c{number}", "gap": "g{missing}"}[kind].format(**members))
            feed.place = item.place
    return told


def test_it_begins_where_it_is_told_or_at_the_present_end(tmp_path: Path) -> None:
    """A new syslog would be flooded with the past, or a start would lose what came while none ran."""
    fill(tmp_path)
    with Feed(tmp_path / "ledger") as feed:
        assert read(feed) == []
        add(tmp_path, CALL)
        assert read(feed) == ["c3"]
    with Feed(tmp_path / "ledger", Place(18, 1)) as feed:
        assert read(feed) == ["c2", "c3", "19", "20"]


def test_calls_stand_behind_the_events_that_they_knew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of a tool would be told before its approval, wherever a lot ends."""
    fill(tmp_path)
    add(tmp_path, *(replace(CALL, seq=seq) for seq in (2, 2, 5, 20)))
    for lot in (2, 3, 500):
        monkeypatch.setattr(feed_module, "LOT", lot)
        with Feed(tmp_path / "ledger", Place(0, 2)) as feed:
            told = read(feed)
        assert [each for each in told if each in ("1", "2", "c3", "c4", "5", "c5", "20", "c6")] == [
            *("1", "2", "c3", "c4", "5", "c5", "20", "c6")
        ]
        assert len(told) == 24


def test_calls_that_were_deleted_unsent_are_told(tmp_path: Path) -> None:
    """Who keeps the records elsewhere would take them for all."""
    fill(tmp_path)
    with Feed(tmp_path / "ledger") as feed:
        read(feed)
        add(tmp_path, *[CALL] * 9, keep=2)
        assert read(feed) == ["g7", "c10", "c11"]


def test_another_ledger_is_told_from_its_beginning(tmp_path: Path) -> None:
    """After a restore nothing would be audited until it had grown as long as the one before."""
    fill(tmp_path)
    with Feed(tmp_path / "ledger") as feed:
        read(feed)
        (tmp_path / "ledger").rename(tmp_path / "old")
        assert read(feed) == []
        with open_ledger(tmp_path) as store:
            store.append([retired(ZONE)])
        assert read(feed) == ["1"]
        add(tmp_path, CALL)
        assert read(feed) == ["c1"]
    with Feed(tmp_path / "ledger", Place(99, 99)) as feed:
        assert read(feed) == ["1", "c1"]
