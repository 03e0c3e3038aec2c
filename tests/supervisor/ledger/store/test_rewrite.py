"""Compaction, killed at any moment; export and import: the same ledger elsewhere, or nothing and the line to blame."""

import os
import sqlite3
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.ledger.ledgers import AT, EVENTS, approved, digest_of, documents_of, enrolled, files_of, fill, opened

from quarterdeck.ledger.errors import (
    ArchivedError,
    BrokenChainError,
    CorruptLedgerError,
    LedgerWriteError,
    TransferError,
)
from quarterdeck.ledger.events.chain import Head, Verdict
from quarterdeck.ledger.events.events import Checkpoint, Retired
from quarterdeck.ledger.events.fold import Book
from quarterdeck.ledger.events.json_lines import read
from quarterdeck.ledger.store.queries import Selection
from quarterdeck.ledger.store.rewrite import compact, import_ledger, needs_compaction
from quarterdeck.ledger.store.store import LedgerStore


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(EVENTS, min_size=1, max_size=4), min_size=1, max_size=6))
def test_the_fold_is_the_same_however_often_it_is_compacted(tmp_path_factory, appends) -> None:
    """Old decisions would fade."""
    directory = tmp_path_factory.mktemp("c") / "l"
    book = Book()
    for events in appends:
        with opened(directory) as store:
            for each in store.append(events):
                book.apply(each)
            compact(store)
            assert bytes(store.book.to_state()) == bytes(book.to_state())
            book.last_seq = store.head.count
        with opened(directory) as again:
            assert bytes(again.book.to_state()) == bytes(book.to_state())
            assert again.book_at(again.head.count).entries == book.entries
            found = again.verify()
            assert (found.verdict, found.missing_archives, found.reason) == (Verdict.INTACT, 0, "")


def test_what_is_archived_is_left_out_and_can_still_be_looked_at(tmp_path: Path) -> None:
    """A ledger would grow for ever; or yesterday's deck could not be shown any more."""
    times = [f"2026-01-0{day}T00:00:00.000Z" for day in range(1, 10)]
    with opened(tmp_path / "l", AT, *times) as store:
        stored = [*store.append([enrolled(1), enrolled(2)], documents_of(1, 2)), *store.append([approved(1)])]
        stored += store.append([Retired(scope=enrolled(2).scope, server="fs", key="bk_2")])
        done = compact(store)
        assert done is not None
        assert (done.events, done.head.count, done.archive.name) == (4, 4, "events-0000000001-0000000004.jsonl")
        assert done.archive.stat().st_mode & 0o777 == 0o600
        [checkpoint] = store.events()
        assert isinstance(checkpoint.event, Checkpoint)
        assert (checkpoint.seq, store.start.count) == (5, 4)
        stored += [checkpoint, *store.append([enrolled(3)], documents_of(3))]
        second = compact(store)
        assert second is not None
        assert second.archive.name == "events-0000000005-0000000006.jsonl"
        stored += [*store.events(), *store.append([enrolled(4)])]
        assert [each.seq for each in stored] == list(range(1, 9))
        for seq in range(9):
            assert bytes(store.book_at(seq).to_state()) == bytes(Book.of(stored[:seq]).to_state())
        for each in stored:
            until = [other for other in stored if other.at <= each.at]
            assert bytes(store.book_at(each.at).to_state()) == bytes(Book.of(until).to_state())
        assert store.book_at("2025").last_seq == 0
        assert list(store.events(archived=True)) == stored
        assert list(store.events(archived=True, newest_first=True, limit=5)) == stored[:2:-1]
        assert [each.seq for each in store.events(Selection(tool="tool_1", kinds=["approve"]), archived=True)] == [3]
        found = store.verify()
        assert (found.is_intact, found.archived, found.start.count) == (True, 6, 6)


def test_a_document_goes_with_its_events_unless_something_names_it(tmp_path: Path) -> None:
    """The approved form would be gone when a server changes; or the file would keep every form that ever was."""
    with opened(tmp_path / "l") as store:
        store.append([enrolled(1), enrolled(2), approved(3)], documents_of(1, 2, 3, 4))
        store.append([Retired(scope=enrolled(2).scope, server="fs", key="bk_2")])
        compact(store)
        assert {each.hash for each in store.documents()} == {digest_of("document 1"), digest_of("document 3")}
        assert store.document(digest_of("document 2")) is None
        assert store.document(digest_of("document 2"), archived=True) == b"document 2"
        assert store.document("never", archived=True) is None


def test_there_is_nothing_to_gain_from_one_event(tmp_path: Path) -> None:
    """Each start would archive the checkpoint of the one before."""
    with opened(tmp_path / "l") as store:
        assert compact(store) is None
        fill(store, 5)
        assert (needs_compaction(store, 5), needs_compaction(store, 4)) == (False, True)
        assert compact(store) is not None
        assert compact(store) is None
        assert not needs_compaction(store, 1)


def test_an_archive_that_is_elsewhere_is_said_and_harms_nothing(tmp_path: Path) -> None:
    """A user who tidies up would be told that somebody forged the ledger."""
    with opened(tmp_path / "l") as store:
        fill(store, 5)
        done = compact(store)
        assert done is not None
        done.archive.rename(tmp_path / "elsewhere")
        found = store.verify()
        assert (found.verdict, found.missing_archives, found.archived) == (Verdict.INTACT, 5, 0)
        with pytest.raises(ArchivedError, match="up to 5"):
            store.book_at(3)
        with pytest.raises(ArchivedError):
            list(store.events(archived=True))
        assert [each.seq for each in islice(store.events(archived=True, newest_first=True), 1)] == [6]
        assert store.document(digest_of("nothing"), archived=True) is None
        (tmp_path / "elsewhere").rename(done.archive)
        assert store.book_at(3).last_seq == 3


def test_an_archive_that_was_changed_is_found(tmp_path: Path) -> None:
    """History could be rewritten where nobody looks."""
    with opened(tmp_path / "l") as store:
        fill(store, 5)
        done = compact(store)
        assert done is not None
        done.archive.write_bytes(done.archive.read_bytes().replace(b'"tool":"tool_3"', b'"tool":"tool_4"'))
        found = store.verify()
        assert (found.verdict, "event 4: its hash differs" in found.reason) == (Verdict.BROKEN, True)
        with pytest.raises(CorruptLedgerError):
            store.book_at(4)


def test_a_crash_before_the_last_step_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events would be neither here nor there."""
    with opened(tmp_path / "l") as store:
        fill(store, 5)
        head, state = store.head, bytes(store.book.to_state())
        with monkeypatch.context() as patch:
            patch.setattr(type(store), "stand_for", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                compact(store)
        assert (store.head, bytes(store.book.to_state()), len(list(store.events()))) == (head, state, 5)
        store.append([enrolled(9)])
        assert compact(store) is not None
        found = store.verify()
        assert (found.is_intact, found.archived) == (True, 6)


def test_a_crash_between_the_checkpoint_and_the_head_is_got_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head would name an event that is archived, and the next start would be refused."""
    with opened(tmp_path / "l") as store:
        fill(store, 5)
        state = bytes(store.book.to_state())
        monkeypatch.setattr("quarterdeck.ledger.store.store.write_head", fails_at(2, write_head_of()))
        compact(store)
        files = files_of(tmp_path / "l")
        monkeypatch.undo()
    for name, data in files.items():
        (tmp_path / "l" / name).write_bytes(data)
    assert files["head"].startswith(b"5 ")
    with opened(tmp_path / "l") as again:
        assert (again.head.count, bytes(again.book.to_state())) == (6, state)
        assert again.verify().is_intact


def write_head_of():
    from quarterdeck.ledger.store.database import write_head

    return write_head


def fails_at(turn: int, function):
    turns = iter(range(1, 100))

    def called(*args):
        if next(turns) >= turn:
            raise OSError(28, "No space left on device")
        return function(*args)

    return called


def test_without_room_for_the_archive_nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events would be removed that were never archived."""
    with opened(tmp_path / "l") as store:
        fill(store, 5)

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(LedgerWriteError, match="No space left"):
            compact(store)
        monkeypatch.undo()
        assert len(list(store.events())) == 5
        assert not list((tmp_path / "l").glob("archive/*"))
        store.append([enrolled(6)])


def test_a_broken_chain_is_not_archived(tmp_path: Path) -> None:
    """A forged event would vanish into an archive, and its traces with it."""
    with opened(tmp_path / "l") as store:
        fill(store, 5)
        store.connection.execute("UPDATE events SET at = '2020' WHERE seq = 3")
        with pytest.raises(BrokenChainError, match="event 3"):
            compact(store)
        assert store.connection.execute("SELECT count(*) FROM events").fetchone() == (5,)
        assert not store.connection.in_transaction
        assert isinstance(store.connection, sqlite3.Connection)


def exported(store: LedgerStore, path: Path) -> Head:
    path.write_bytes(b"".join(store.export()))
    return store.head


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(EVENTS, st.dictionaries(st.sampled_from("hijk"), st.binary(max_size=9), max_size=2))))
def test_a_round_trip_gives_the_same_ledger(tmp_path_factory, appends) -> None:
    """A move to another machine would lose a decision, or could not be told from a forgery."""
    folder = tmp_path_factory.mktemp("t")
    with opened(folder / "one") as store:
        for event, documents in appends:
            store.append([event], documents)
        head = exported(store, folder / "file")
        told = bytes(store.book.to_state()), list(store.events()), [each.body for each in store.documents()]
    assert import_ledger(folder / "file", folder / "two") == head
    with opened(folder / "two") as other:
        assert (bytes(other.book.to_state()), list(other.events()), [e.body for e in other.documents()]) == told
        assert (other.head, other.verify().is_intact) == (head, True)
        assert b"".join(other.export()) == (folder / "file").read_bytes()


def test_a_compacted_ledger_moves_too(tmp_path: Path) -> None:
    """Nobody with a long history could ever move it."""
    with opened(tmp_path / "one") as store:
        fill(store, 30)
        compact(store)
        store.append([approved(1)])
        head, state = exported(store, tmp_path / "file"), bytes(store.book.to_state())
    assert import_ledger(tmp_path / "file", tmp_path / "two") == head
    with opened(tmp_path / "two") as other:
        assert bytes(other.book.to_state()) == state
        found = other.verify()
        assert (found.is_intact, found.missing_archives) == (True, 30)


def test_a_document_stands_before_the_event_that_names_it(tmp_path: Path) -> None:
    """Whoever reads line by line would meet names that mean nothing yet."""
    with opened(tmp_path / "one") as store:
        fill(store, 20)
        exported(store, tmp_path / "file")
    known = set()
    with open(tmp_path / "file", "rb") as file:
        for piece in read(file):
            if isinstance(piece, tuple):
                assert piece[1].definition in known
            else:
                known.add(piece.hash)


def damaged(lines: list[bytes], index: int, line: bytes) -> list[bytes]:
    return [*lines[:index], line, *lines[index + 1 :]]


BROKEN = [
    (lambda lines: [], 1, "empty"),
    (lambda lines: [b"hello\n"], 1, "not an export"),
    (lambda lines: lines[1:], 1, "not an export"),
    (lambda lines: damaged(lines, 0, lines[0].replace(b'"version":1', b'"version":2')), 1, "format 2"),
    (lambda lines: lines[:-1], 6, "ends with event 2"),
    (lambda lines: damaged(lines, 3, lines[3].replace(b"tool_0", b"tool_9")), 4, "event 1: its hash differs"),
    (lambda lines: damaged(lines, 3, lines[3].replace(b'"seq":1', b'"seq":2')), 4, "event 1: it is missing"),
    (lambda lines: damaged(lines, 5, b'{"nothing":1}\n'), 6, "neither an event nor a document"),
    (lambda lines: damaged(lines, 5, b"\xff\n"), 6, "neither"),
    (lambda lines: [*lines[:3], *lines[4:]], 4, "event 1: it is missing"),
    (lambda lines: [*lines, lines[-1]], 8, "appears twice"),
    (lambda lines: damaged(lines, 6, lines[6][:-5]), 7, "cut off"),
]


@pytest.mark.parametrize(("harm", "line", "reason"), BROKEN)
def test_a_damaged_file_is_refused_by_line_and_reason(tmp_path: Path, harm, line: int, reason: str) -> None:
    """Half of a history would be taken for the whole."""
    with opened(tmp_path / "one") as store:
        store.append([enrolled(0), enrolled(1)], documents_of(0, 1))
        store.append([enrolled(2)], documents_of(2))
        exported(store, tmp_path / "file")
    lines = (tmp_path / "file").read_bytes().splitlines(keepends=True)
    assert len(lines) == 7
    (tmp_path / "file").write_bytes(b"".join(harm(lines)))
    with pytest.raises(TransferError, match=reason) as caught:
        import_ledger(tmp_path / "file", tmp_path / "two")
    assert caught.value.line == line
    assert not (tmp_path / "two").exists()


def test_only_an_empty_ledger_is_filled(tmp_path: Path) -> None:
    """Two histories would be mixed, or one lost."""
    with opened(tmp_path / "one") as store:
        fill(store, 3)
        exported(store, tmp_path / "file")
    before = files_of(tmp_path / "one")
    with pytest.raises(TransferError, match="not empty"):
        import_ledger(tmp_path / "file", tmp_path / "one")
    assert files_of(tmp_path / "one") == before


def test_a_file_that_changes_between_the_two_looks_fills_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was looked at would not be what is kept."""
    with opened(tmp_path / "one") as store:
        fill(store, 30)
        exported(store, tmp_path / "file")
    whole = (tmp_path / "file").read_bytes()
    open_store = LedgerStore.open

    def tampering(*args, **kwargs):
        (tmp_path / "file").write_bytes(whole[:-400])
        return open_store(*args, **kwargs)

    monkeypatch.setattr(LedgerStore, "open", tampering)
    with pytest.raises(TransferError):
        import_ledger(tmp_path / "file", tmp_path / "two")
    monkeypatch.undo()
    with opened(tmp_path / "two") as other:
        assert (other.head, list(other.documents())) == (Head(), [])
    (tmp_path / "file").write_bytes(whole)
    assert import_ledger(tmp_path / "file", tmp_path / "two").count == 30
