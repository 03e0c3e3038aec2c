"""The store: all or nothing, in order, found again; the clock's tricks, a full disk, readers beside the writer."""

import os
import resource
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.ledger.ledgers import (
    AT,
    EVENTS,
    Clock,
    approved,
    digest_of,
    documents_of,
    enrolled,
    files_of,
    fill,
    opened,
    state_of,
)
from support.processes.running import output, python_output
from support.sandbox.machine_facts import ROOT_ONLY, mounted

from quarterdeck.ledger.errors import BrokenChainError, LedgerWriteError, MissingLedgerError, TooLargeError
from quarterdeck.ledger.events.chain import Head, Verdict
from quarterdeck.ledger.events.events import Redacted
from quarterdeck.ledger.events.fold import Book
from quarterdeck.ledger.store import store as store_module
from quarterdeck.ledger.store.database import read_head
from quarterdeck.ledger.store.queries import Selection
from quarterdeck.ledger.store.reader import LedgerReader


def test_a_new_ledger_is_empty_intact_and_ours_alone(tmp_path: Path) -> None:
    """Others could read which servers somebody runs; or the first start would be refused."""
    directory = tmp_path / "state" / "ledger"
    with opened(directory) as store:
        assert (store.head, store.book.entries, list(store.events())) == (Head(), {}, [])
        assert store.verify().is_intact
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()} == {
        "ledger.db": 0o600,
        "head": 0o600,
    }


def test_what_was_appended_is_there_after_a_restart(tmp_path: Path) -> None:
    """Every decision would have to be made again."""
    with opened(tmp_path / "l") as store:
        first = store.append([enrolled(1), enrolled(2)], documents_of(1, 2))
        second = store.append([approved(1)])
        assert [each.seq for each in (*first, *second)] == [1, 2, 3]
        state, head = state_of(store.book), store.head
    with opened(tmp_path / "l") as again:
        assert (state_of(again.book), again.head) == (state, head)
        assert list(again.events()) == [*first, *second]
        assert again.document(digest_of("document 1")) == b"document 1"
        assert again.document("nothing") is None
        assert again.verify().is_intact


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(EVENTS, max_size=4), max_size=6))
def test_any_events_come_back_as_they_went(tmp_path_factory, appends) -> None:
    """A server could choose a name that breaks the ledger for good."""
    directory = tmp_path_factory.mktemp("l") / "ledger"
    with opened(directory) as store:
        for events in appends:
            store.append(events)
        assert [each.event for each in store.events()] == [event for events in appends for event in events]
        assert store.verify().is_intact
        state = state_of(store.book)
    with LedgerReader.open(directory) as reader:
        assert state_of(reader.book) == state


def test_the_same_document_is_kept_once_and_as_it_was_first(tmp_path: Path) -> None:
    """A server could change, under its hash, what a person approved."""
    with opened(tmp_path / "l") as store:
        store.append([enrolled(1)], {"h": b"first"})
        store.append([enrolled(1)], {"h": b"second"})
        assert [(each.hash, each.body) for each in store.documents()] == [("h", b"first")]


def test_an_append_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    """Half of a listing would be approved."""
    with opened(tmp_path / "l") as store:
        store.append([enrolled(1)])
        head, state = store.head, state_of(store.book)
        with closing(sqlite3.connect(tmp_path / "l" / "ledger.db", isolation_level=None)) as other:
            store.connection.execute("PRAGMA busy_timeout = 0")
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(LedgerWriteError, match="locked"):
                store.append([enrolled(2), approved(2)], documents_of(2))
            other.execute("ROLLBACK")
        assert (store.head, state_of(store.book)) == (head, state)
        assert [each.seq for each in store.append([enrolled(3)])] == [2]
        assert store.verify().is_intact


def test_a_database_that_was_taken_away_is_written_no_more(tmp_path: Path) -> None:
    """A decision would be confirmed, and written into a file that nobody can open any more."""
    with opened(tmp_path / "l") as store:
        store.append([enrolled(1)])
        (tmp_path / "l" / "ledger.db").rename(tmp_path / "elsewhere.db")
        with pytest.raises(LedgerWriteError, match="moved or replaced"):
            store.append([approved(2)], documents_of(2))


def test_a_second_writer_is_found_out(tmp_path: Path) -> None:
    """Two histories would be woven into one."""
    with opened(tmp_path / "l") as one, opened(tmp_path / "l") as two:
        one.append([enrolled(1)])
        with pytest.raises(LedgerWriteError, match="another process"):
            two.append([enrolled(2)])
        assert one.verify().is_intact


def test_a_full_disk_loses_nothing_and_is_got_over(tmp_path: Path) -> None:
    """A supervisor would end, or its ledger, because of somebody's download."""
    with opened(tmp_path / "l") as store:
        fill(store, 20)
        head, state = store.head, state_of(store.book)
        with no_file_larger_than((tmp_path / "l" / "ledger.db-wal").stat().st_size + 10_000):
            with pytest.raises(LedgerWriteError, match="no part of it was stored"):
                store.append([approved(1)], {"large": bytes(1024 * 1024)})
            assert (store.head, state_of(store.book)) == (head, state)
            assert len(list(store.events())) == 20
        store.append([approved(1)], {"large": bytes(1024 * 1024)})
        assert store.verify().is_intact
    with opened(tmp_path / "l") as again:
        assert again.head.count == 21


@contextmanager
def no_file_larger_than(size: int):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.process
@ROOT_ONLY
def test_a_file_system_without_room_loses_nothing(tmp_path: Path) -> None:
    """A limit on one file is not what a full disk is: the head, too, has no room."""
    place = tmp_path / "small"
    place.mkdir()
    with mounted(place, "-t", "tmpfs", "-o", "size=2m,mode=0700", "none"):
        kept = 0
        with opened(place / "l") as store:
            with pytest.raises(LedgerWriteError):  # which one is the disk's to say
                while True:
                    store.append([enrolled(kept), approved(kept)], {str(kept): os.urandom(50_000)})
                    kept += 1
            assert (store.head.count, kept > 3) == (2 * kept, True)
            assert store.verify().is_intact
        head = read_head(place / "l", 0)
        assert head is not None
        assert head.count <= 2 * kept
        with LedgerReader.open(place / "l") as reader:
            assert reader.head.count == 2 * kept
        output("mount", "-o", "remount,size=4m", place)
        with opened(place / "l") as again:
            assert again.head.count == 2 * kept
            again.append([approved(1)])
            assert again.verify().is_intact


def test_a_clock_that_goes_back_is_not_believed(tmp_path: Path) -> None:
    """A look at a moment would mix what was before with what came after."""
    noon, morning, evening = (f"2026-01-02T{hour:02}:00:00.000Z" for hour in (12, 8, 18))
    with opened(tmp_path / "l", noon, morning, evening) as store:
        [first], [second], [third] = (store.append([enrolled(number)]) for number in range(3))
    assert [first.at, second.at, third.at] == [noon, noon, evening]
    with opened(tmp_path / "l", morning) as again:
        [fourth] = again.append([enrolled(4)])
        assert fourth.at == evening
        assert [each.seq for each in again.events(Selection(since=noon, until=noon))] == [1, 2]
        assert again.book_at(noon).last_seq == 2
        assert again.verify().is_intact


def test_a_decision_brings_the_head_along_and_other_events_only_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut would not show for a decision; or each start of a server would wait for the disk."""
    monkeypatch.setattr(store_module, "MAX_LAG", 5)
    with opened(tmp_path / "l") as store:

        def kept() -> int:
            head = read_head(tmp_path / "l", 0)
            assert head is not None
            return head.count

        store.append([enrolled(1)])
        assert kept() == 0
        store.append([approved(1)])
        assert kept() == 2
        store.append([enrolled(2)], durable=True)
        assert kept() == 3
        for number in range(5):
            store.append([enrolled(number)])
        assert kept() == 8
        store.append([enrolled(9)])
        store.sync()
        assert kept() == 9
        store.append([enrolled(10)])
    assert kept() == 10


def test_a_head_that_cannot_be_written_does_not_undo_what_was(tmp_path: Path) -> None:
    """A decision that is on the disk would be reported as lost, and made twice."""
    with opened(tmp_path / "l") as store:
        (tmp_path / "l" / ".head.new").mkdir()
        assert [each.seq for each in store.append([approved(1)])] == [1]
        with pytest.raises(LedgerWriteError):
            store.sync()
        (tmp_path / "l" / ".head.new").rmdir()
    with opened(tmp_path / "l") as again:
        assert again.head.count == 1
        assert read_head(tmp_path / "l", 0) == again.head


def test_what_is_too_large_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server could fill the disk with one definition."""
    with opened(tmp_path / "l") as store:
        with pytest.raises(TooLargeError, match="4,194,304"):
            store.append([enrolled(1)], {"h": bytes(4 * 1024 * 1024 + 1)})
        monkeypatch.setattr(store_module, "MAX_APPEND_BYTES", 1000)
        with pytest.raises(TooLargeError, match="1,000"):
            store.append([enrolled(number) for number in range(20)])
        assert store.head.count == 0
        store.append([enrolled(1)], {"h": b"x"})


def test_the_record_of_a_redaction_cannot_be_appended(tmp_path: Path) -> None:
    """A process that hands its records over could explain a forged chain away."""
    note = Redacted(scope="", server="", before=str(Head()))
    with opened(tmp_path / "l") as store, pytest.raises(ValueError, match="redaction"):
        store.append([note])


def test_a_reader_beside_the_writer_sees_whole_appends_and_changes_nothing(tmp_path: Path) -> None:
    """`ledger log` would disturb a running deck, or show half of a listing."""
    with opened(tmp_path / "l") as store:
        store.append([enrolled(1)], documents_of(1))
        with LedgerReader.open(tmp_path / "l") as reader:
            assert reader.head == store.head
            store.append([enrolled(2), approved(2)])
            assert [each.seq for each in reader.events()] == [1, 2, 3]
            assert (reader.head, reader.book.last_seq) == (store.head, 3)
            assert reader.verify().is_intact
        store.append([enrolled(4)])


@pytest.mark.process
def test_a_reader_never_writes_even_as_the_last_one_out(tmp_path: Path) -> None:
    """Looking at a ledger after a crash would throw away what its WAL still says."""
    directory = tmp_path / "l"
    crash_after(directory, 5)
    before = files_of(directory)
    assert before["ledger.db-wal"]
    with LedgerReader.open(directory) as reader:
        assert (reader.head.count, reader.verify().is_intact) == (5, True)
    assert files_of(directory) == before


def crash_after(directory: Path, count: int) -> None:
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[2])\n"
        "from support.ledger.ledgers import *\n"
        f"store = opened(Path(sys.argv[1])); [store.append([approved(n)]) for n in range({count})]; os._exit(0)"
    )
    tests = str(Path(__file__).parents[3])
    python_output(code, directory, tests)


def test_there_is_nothing_to_read_before_the_first_start(tmp_path: Path) -> None:
    """A command that looks would make a ledger, or end with a traceback."""
    with pytest.raises(MissingLedgerError, match="quarterdeck serve"):
        LedgerReader.open(tmp_path / "l")
    assert not (tmp_path / "l").exists()


def test_the_book_of_any_moment_is_that_of_the_events_until_then(tmp_path: Path) -> None:
    """`ledger show --at` would show a deck that never was."""
    times = [f"2026-01-0{day}T00:00:00.000Z" for day in range(1, 6)]
    with opened(tmp_path / "l", *times) as store:
        stored = [each for number in range(5) for each in store.append([enrolled(number), approved(number)])]
        for seq in range(11):
            assert state_of(store.book_at(seq)) == state_of(Book.of(stored[:seq]))
        for index, at in enumerate(times, 1):
            assert state_of(store.book_at(at)) == state_of(Book.of(stored[: 2 * index]))
        assert store.book_at("2025").last_seq == 0
        assert store.book_at(99).last_seq == 10


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("UPDATE events SET body = CAST(replace(body, 'tool_4', 'tool_5') AS BLOB) WHERE seq = 5", "its hash differs"),
        ("UPDATE events SET at = '2020' WHERE seq = 5", "its hash differs"),
        ("UPDATE events SET tool = 'other' WHERE seq = 5", "its index does not match its content"),
        ("UPDATE events SET body = 'x' WHERE seq = 5", "its record is damaged"),
        ("UPDATE events SET at = x'ff' WHERE seq = 5", "its record is damaged"),
        ("DELETE FROM events WHERE seq = 5", "it is missing"),
        ("UPDATE events SET seq = 50 WHERE seq = 5", "it is missing"),
    ],
)
def test_what_was_changed_behind_our_back_is_found(tmp_path: Path, damage: str, reason: str) -> None:
    """Anybody who can write the file could say what is approved."""
    with opened(tmp_path / "l") as store:
        fill(store, 10)
    with closing(sqlite3.connect(tmp_path / "l" / "ledger.db")) as hand, hand:
        hand.execute(damage)
    before = files_of(tmp_path / "l")
    with LedgerReader.open(tmp_path / "l") as reader:
        found = reader.verify()
    assert (found.verdict, found.broken_seq, found.reason) == (Verdict.BROKEN, 5, reason)
    if "tool = 'other'" not in damage:  # an index that lies is found by `verify` alone
        with pytest.raises(BrokenChainError, match="event 5"):
            opened(tmp_path / "l")
    assert files_of(tmp_path / "l") == before


def test_a_document_that_was_changed_behind_our_back_is_found(tmp_path: Path) -> None:
    """What was approved under a hash could be exchanged in the file."""
    with opened(tmp_path / "l") as store:
        fill(store, 30)
        assert store.verify(lambda body: digest_of(body.decode())).is_intact
        store.connection.execute("UPDATE documents SET body = x'00' WHERE seq = 11")
        assert store.verify().is_intact
        found = store.verify(lambda body: digest_of(body.decode()))
    assert (found.verdict, found.broken_seq) == (Verdict.BROKEN, None)
    assert found.reason.endswith("is not what was written")


def test_a_clock_is_asked_once_for_an_append(tmp_path: Path) -> None:
    """One listing would have two moments, and a look between them half of it."""
    with opened(tmp_path / "l", "2026-05-01", "2026-05-02") as store:
        assert {each.at for each in store.append([enrolled(1), enrolled(2)])} == {"2026-05-01"}
    assert Clock(AT)() == AT
