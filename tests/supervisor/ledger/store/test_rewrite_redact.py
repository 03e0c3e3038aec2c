"""Secrets are taken out of a ledger that holds them: nothing is left on the disk, and it is whole afterwards."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.ledger.ledgers import EVENTS, SCOPE, approved, enrolled, files_of, opened, state_of

from quarterdeck.ledger.errors import BrokenChainError, LedgerWriteError, MissingHeadError
from quarterdeck.ledger.events.chain import Head, Verdict
from quarterdeck.ledger.events.events import Approved, Authority, Ended, LedgerEvent, Redacted, Seen, Subject, hash_of
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.ledger.store.queries import CallRow
from quarterdeck.ledger.store.reader import contradiction
from quarterdeck.ledger.store.rewrite import Redaction, redact
from quarterdeck.ledger.store.store import LedgerStore, accept_head

SECRET = b"hunter2-is-long"


def launch(number: int, word: bytes = SECRET) -> bytes:
    return json.dumps({"command": "npx", "args": [str(number), word.decode()]}).encode()


def clean(body: bytes) -> bytes:
    return body.replace(SECRET, b"(hidden)")


def clean_text(text: str) -> str:
    return clean(text.encode()).decode()


def started(number: int, server: str = "fs") -> tuple[list[LedgerEvent], dict[str, bytes]]:
    body = launch(number)
    where = {"scope": SCOPE, "server": server, "subject": Subject.LAUNCH, "hash": hash_of(body)}
    return [Seen(**where), Approved(**where, by=Authority.PERSON)], {hash_of(body): body}


def ended(word: bytes = SECRET) -> Ended:
    return Ended(scope=SCOPE, server="fs", code="connect_failed", message=f"https://h/?key={word.decode()} is gone")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of a ledger with a secret in three launches, in the messages of three ends, and in the dossier of a call."""
    with opened(tmp_path / "l") as store:
        for number in range(3):
            store.append(*started(number))
            store.append([ended(), enrolled(number), approved(number)], {})
        store.record_calls([CallRow("", SCOPE, "fs", "read", "fault", dossier=SECRET.decode())])
    return tmp_path / "l"


def redacted(store: LedgerStore) -> Redaction:
    return redact(store, clean, clean_text)


def test_nothing_of_a_secret_is_left_and_the_chain_holds(directory: Path) -> None:
    """A password would lie in a file that is backed up, for good."""
    assert any(SECRET in data for data in files_of(directory).values())
    with opened(directory) as store:
        before, entries = store.head, dict(store.book.entries)
        done = redacted(store)
        assert (done.launches, done.messages, done.before) == (3, 1, before)
        assert done.head == store.head != before
        assert store.verify(hash_of).is_intact
        found = store.book.entry(SCOPE, "fs").items[ItemKey(Subject.LAUNCH)]
        assert found.approved == found.seen == hash_of(clean(launch(2)))
        assert store.document(found.approved) == clean(launch(2))
        assert store.book.entry(SCOPE, "fs").live == entries[next(iter(entries))].live
    assert [name for name, data in files_of(directory).items() if SECRET in data] == []
    with opened(directory) as again:
        assert again.verify(hash_of).verdict is Verdict.INTACT
        events = [each.event for each in again.events()]
        assert [event.hash for event in events if isinstance(event, Approved) and event.subject is Subject.LAUNCH] == [
            hash_of(clean(launch(number))) for number in range(3)
        ]
        for seq in range(again.head.count + 1):
            again.book_at(seq)


def test_the_new_chain_says_that_it_is_one(directory: Path) -> None:
    """A head that was kept elsewhere would look like proof of a forgery."""
    with opened(directory) as store:
        before = store.head
        redacted(store)
        last = next(store.events(newest_first=True)).event
        assert isinstance(last, Redacted)
        assert last.before == str(before)
        assert contradiction(store, store.head) == ""
        store.append([enrolled(9)])
        assert "secrets were removed from it" in contradiction(store, before)
        assert "it was changed" in contradiction(store, Head(store.head.count, "ab" * 32))


def test_a_ledger_without_secrets_keeps_its_chain(tmp_path: Path) -> None:
    """Whoever asks to be sure would lose every head that they wrote down."""
    with opened(tmp_path / "l") as store:
        store.append([enrolled(1), approved(1), ended(b"nothing")])
        before = store.head
        done = redacted(store)
        assert (done.launches, done.messages) == (0, 0)
        assert contradiction(store, before) == ""
        assert store.verify(hash_of).is_intact
        assert store.head == before
    with opened(tmp_path / "empty") as store:
        assert redacted(store).head == Head()


def test_twice_is_once(directory: Path) -> None:
    """A second run would change all hashes again."""
    with opened(directory) as store:
        head = redacted(store).head
        assert redacted(store).head == head
        store.append(*started(8))
        again = redacted(store)
        assert (again.launches, again.before.count) == (1, head.count + 2)
        assert store.verify(hash_of).is_intact


def test_a_broken_chain_is_not_written_anew(directory: Path) -> None:
    """A forged event would get a hash that is right."""
    with opened(directory) as store:
        store.connection.execute("UPDATE events SET at = '2020' WHERE seq = 3")
        with pytest.raises(BrokenChainError, match="event 3"):
            redacted(store)
        assert store.verify().broken_seq == 3
        assert not store.connection.in_transaction


def test_a_failure_in_its_midst_leaves_the_ledger_as_it_was(directory: Path) -> None:
    """A full disk would leave a ledger of which half the hashes are others."""
    calls = iter(range(4))  # the fourth is of an event that is being written anew

    def fails(text: str) -> str:
        next(calls)
        return clean_text(text)

    with opened(directory) as store:
        before, state = store.head, state_of(store.book)
        with pytest.raises(StopIteration):
            redact(store, clean, fails)
        assert (store.head, state_of(store.book), store.verify(hash_of).is_intact) == (before, state, True)


def test_documents_stay_before_the_events_that_name_them(tmp_path: Path) -> None:
    """A redacted ledger could be exported, and its export not be read line by line."""
    directory, secret = tmp_path / "l", launch(1)
    with opened(directory) as store:
        store.append(*started(1))
        store.append([enrolled(1)], {hash_of(clean(secret)): clean(secret)})  # what the secret one becomes
        assert redacted(store).launches == 1
        [document] = store.documents()
        assert (document.seq, document.body) == (1, clean(secret))


def test_killed_before_its_head_is_written_it_can_be_accepted(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger whose chain holds would be lost to a power cut."""
    head = (directory / "head").read_bytes()
    with opened(directory) as store:
        redacted(store)
    (directory / "head").write_bytes(head)
    with pytest.raises(MissingHeadError, match=r"before secrets were removed.*verify --accept"):
        opened(directory)
    accept_head(directory)
    with opened(directory) as store:
        assert store.verify(hash_of).is_intact


def test_a_reader_that_keeps_old_pages_is_told(directory: Path) -> None:
    """A user would think that the file is clean."""
    with opened(directory) as store:
        other = sqlite3.connect(directory / "ledger.db", isolation_level=None)
        store.connection.execute("PRAGMA busy_timeout = 0")
        try:
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM events").fetchone()
            with pytest.raises(LedgerWriteError, match="may still be in its files"):
                redacted(store)
        finally:
            other.close()
        redacted(store)
    assert [name for name, data in files_of(directory).items() if SECRET in data] == []


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(EVENTS, min_size=1, max_size=4), min_size=1, max_size=5))
def test_all_else_stays_what_it_was(tmp_path_factory: pytest.TempPathFactory, appends: list[list[LedgerEvent]]) -> None:
    """An approval would be lost, or become another's."""
    directory = tmp_path_factory.mktemp("r") / "l"
    blank: Callable[[str], str] = lambda text: "" if text else text  # noqa: E731  # every message is a secret
    with opened(directory) as store:
        for events in appends:
            store.append(events)
        before = store.book
        redact(store, clean, blank)
        assert store.verify().is_intact
        for key, entry in before.entries.items():
            found = store.book.entries[key]
            assert (found.items, found.live, found.last_life) == (entry.items, entry.live, entry.last_life)
            assert (found.last_end is None) == (entry.last_end is None)
            assert found.last_end is None or found.last_end.message == ""
        assert store.book.findings == before.findings
