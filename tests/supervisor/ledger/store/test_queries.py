"""Events are found by what they say; calls beside the chain newest first, and never more than there is room for."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.ledger.ledgers import AT, EVENTS, SCOPE, approved, enrolled, opened

from quarterdeck.ledger.events.events import Began, Seen, Stored, Subject
from quarterdeck.ledger.store import queries
from quarterdeck.ledger.store.queries import CallRow, Retention, Selection, column, lookups


def call(number: int, server: str = "fs", tool: str = "read") -> CallRow:
    return CallRow(f"2026-01-{number:02}", "/m.json", server, tool, "failed", "timeout", 1.5, number)


def numbered(rows: list[CallRow]) -> list[CallRow]:
    """The rows as they are read, with the numbers that the table gave them."""
    return [replace(row, number=number) for number, row in enumerate(rows, start=1)]


def test_calls_are_found_newest_first(tmp_path: Path) -> None:
    """Nobody could see what a server was asked last."""
    rows = [call(1), call(2, "web\udcff"), call(3, tool="write")]
    with opened(tmp_path / "l") as store:
        store.record_calls(rows)
        rows = numbered(rows)
        assert list(store.calls()) == rows[::-1]
        assert list(store.calls(after=1)) == rows[1:]
        assert list(store.calls(server="web\udcff")) == [rows[1]]
        assert list(store.calls(server="fs", tool="write")) == [rows[2]]
        assert list(store.calls(scope="/other")) == []
        assert list(store.calls(since="2026-01-02", limit=1)) == [rows[2]]


def test_calls_are_found_by_a_clients_name_and_by_the_one_that_it_gives_itself(tmp_path: Path) -> None:
    """A user knows the name of a token or an editor, and not the pid of its `serve`."""
    rows = [replace(call(1), client="door 1", program="editor"), replace(call(2), client="editor"), call(3)]
    rows += [replace(call(4), client="ci\udcff")]
    with opened(tmp_path / "l") as store:
        store.record_calls(rows)
        rows = numbered(rows)
        assert list(store.calls()) == rows[::-1]
        for client, found in (("editor", [1, 0]), ("door 1", [0]), ("", [2]), ("ci\udcff", [3])):
            assert list(store.calls(client=client)) == [rows[index] for index in found]


def test_the_oldest_make_room_and_no_number_is_given_twice(tmp_path: Path) -> None:
    """A chatty agent would fill the disk; or who follows the calls would miss those that got old numbers."""
    with opened(tmp_path / "l") as store:
        store.record_calls([call(number) for number in range(1, 20)])
        store.record_calls([call(20)], Retention(calls=5))
        assert [row.bytes for row in store.calls()] == [20, 19, 18, 17, 16]
        store.record_calls([replace(call(21), tool="x" * 1_000_000), call(22)], Retention(calls=None, bytes=500_000))
        assert [row.number for row in store.calls()] == [22, 21]  # of the one that fills it all, so much that it ends
        store.record_calls([call(23)], Retention(calls=0))
        assert (list(store.calls()), store.last_call()) == ([], 23)
        store.record_calls([call(24)])
        assert [row.number for row in store.calls()] == [24]


def test_calls_grow_old_at_two_looks_and_no_wrong_clock_deletes_them(tmp_path: Path) -> None:
    """Data would stay longer than promised; or one start with a broken clock would delete an audit."""
    times = ["2026-03-01", "2099-01-01", "2026-03-01", "1970-01-01", "2026-04-15", "2026-04-15"]
    left = [[1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3], [3]]
    with opened(tmp_path / "l", *(f"{day}T00:00:00.000Z" for day in times)) as store:
        store.record_calls([replace(call(1), at=f"2026-{day}T00:00:00.000Z") for day in ("02-20", "03-10", "03-20")])
        for found in left:
            store.forget_days(30)
            assert [row.number for row in store.calls()][::-1] == found


def test_denied_paths_are_found_and_a_flood_of_them_makes_room_for_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that names a thousand paths would grow the ledger, or push another's denials out of it."""
    monkeypatch.setattr(queries, "MAX_DENIALS", 3)
    with opened(tmp_path / "l") as store:
        store.record_calls([replace(call(1, "web"), denied="read /w"), call(2)])
        store.record_calls([replace(call(number), denied=f"read /{number}") for number in range(3, 120)])
        assert [row.denied for row in store.calls(is_denied=True)] == ["read /119", "read /118", "read /117", "read /w"]
        assert len(list(store.calls(server="fs"))) == 118


def test_more_calls_than_a_page_holds_are_all_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day's list would end after its first page."""
    monkeypatch.setattr(queries, "_CALLS", 4)
    with opened(tmp_path / "l") as store:
        store.record_calls([call(number) for number in range(1, 120)])  # two statements of fifty, and a rest
        assert [row.bytes for row in store.calls()] == list(range(119, 0, -1))


def test_calls_are_no_part_of_the_chain(tmp_path: Path) -> None:
    """Rotating them would look like a forgery."""
    with opened(tmp_path / "l", AT) as store:
        store.append([enrolled(1), enrolled(2)])
        head = store.head
        store.record_calls([call(1)])
        assert (store.head, store.verify().is_intact) == (head, True)


def test_events_are_found_by_what_they_say(tmp_path: Path) -> None:
    """`ledger log --server` would show another's, or not all."""
    times = [f"2026-01-0{day}T00:00:00.000Z" for day in range(1, 9)]
    with opened(tmp_path / "l", *times) as store:
        store.append([enrolled(1, "a"), enrolled(1, "b")])
        store.append([approved(1, "a"), Began(scope=SCOPE, server="a", pid=1)])
        store.append([Seen(scope="/other", server="a", subject=Subject.LAUNCH, hash="h", name="tool_1")])
        store.append([enrolled(2, "a"), approved(2, "b")])

        def seqs(limit: int | None = None, newest_first: bool = False, **wanted: Any) -> list[int]:
            found = store.events(Selection(**wanted), limit=limit, newest_first=newest_first)
            return [each.seq for each in found]

        assert seqs() == [1, 2, 3, 4, 5, 6, 7]
        assert seqs(newest_first=True, limit=3) == [7, 6, 5]
        assert seqs(server="a") == [1, 3, 4, 5, 6]
        assert seqs(server="a", scope=SCOPE) == [1, 3, 4, 6]
        assert seqs(tool="tool_1") == [1, 2, 3]  # a launch has no tool
        assert seqs(tool="tool_1", server="b") == [2]
        assert seqs(kinds=["approve"]) == [3, 7]
        assert seqs(kinds=["approve", "began"], newest_first=True) == [7, 4, 3]
        assert seqs(kinds=["enroll"], server="a") == [1, 6]
        assert seqs(kinds=[]) == []
        assert seqs(since=times[1], until=times[2]) == [3, 4, 5]
        assert seqs(since="2026-01-01T12:00:00.000Z", until="2026-01-02T12:00:00.000Z") == [3, 4]
        assert seqs(since="2027") == seqs(until="2025") == []
        assert seqs(after_seq=5) == [6, 7]
        assert seqs(after_seq=2, limit=2, server="a") == [3, 4]


def matches(wanted: Selection, stored: Stored) -> bool:
    kind, scope, server, tool = lookups(stored.event)
    return (
        stored.seq > wanted.after_seq
        and (wanted.since is None or stored.at >= wanted.since)
        and (wanted.until is None or stored.at <= wanted.until)
        and (wanted.kinds is None or kind in wanted.kinds)
        and (wanted.scope is None or scope == column(wanted.scope))
        and (wanted.server is None or server == column(wanted.server))
        # An event of no tool is not one of a tool without a name.
        and (wanted.tool is None or (bool(tool) and tool == column(wanted.tool)))
    )


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(EVENTS, max_size=25), st.data())
def test_any_question_is_answered_as_looking_at_each_event_would(tmp_path_factory, events, data) -> None:
    """An index would hide what is there."""
    with opened(tmp_path_factory.mktemp("l") / "l", *(f"2026-01-{day:02}" for day in range(1, 29))) as store:
        stored = [each for event in events for each in store.append([event])]
        days = st.none() | st.sampled_from([f"2026-01-{day:02}" for day in range(1, 29)])
        kinds = st.none() | st.lists(st.sampled_from(["enroll", "retire", "seen", "approve", "scan"]), max_size=3)
        selection = Selection(
            scope=data.draw(st.none() | st.sampled_from([SCOPE, "/w/mcp\udcff.json"])),
            server=data.draw(st.none() | st.sampled_from(["fs", "web", "x\udc80"])),
            tool=data.draw(st.none() | st.sampled_from(["a", "b", "ä\udcff", "\ud83d", ""])),
            kinds=data.draw(kinds),
            since=data.draw(days),
            until=data.draw(days),
            after_seq=data.draw(st.integers(0, 10)),
        )
        newest_first = data.draw(st.booleans())
        wanted = [each for each in stored if matches(selection, each)]
        assert list(store.events(selection, newest_first=newest_first)) == (wanted[::-1] if newest_first else wanted)


def test_more_events_than_a_page_holds_are_all_found(tmp_path: Path) -> None:
    """A history would end, or begin anew, where a page does."""
    with opened(tmp_path / "l") as store:
        store.append([enrolled(number, "ab"[number % 2]) for number in range(2_000)])
        assert [each.seq for each in store.events()] == list(range(1, 2_001))
        found = store.events(Selection(server="b"), newest_first=True)
        assert [each.seq for each in found] == list(range(2_000, 0, -2))
        assert store.book_at(1_500).last_seq == 1_500
        assert len(store.book.entry(SCOPE, "a").live) == 1_000
