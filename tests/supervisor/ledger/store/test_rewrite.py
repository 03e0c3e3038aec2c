"""Export and import: the same ledger elsewhere, or nothing and the line to blame."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.ledger.ledgers import EVENTS, documents_of, enrolled, files_of, fill, opened, state_of

from quarterdeck.ledger.errors import TransferError
from quarterdeck.ledger.events.chain import Head
from quarterdeck.ledger.events.json_lines import read
from quarterdeck.ledger.store.rewrite import import_ledger
from quarterdeck.ledger.store.store import LedgerStore


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
        told = state_of(store.book), list(store.events()), [each.body for each in store.documents()]
    assert import_ledger(folder / "file", folder / "two") == head
    with opened(folder / "two") as other:
        assert (state_of(other.book), list(other.events()), [e.body for e in other.documents()]) == told
        assert (other.head, other.verify().is_intact) == (head, True)
        assert b"".join(other.export()) == (folder / "file").read_bytes()


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
