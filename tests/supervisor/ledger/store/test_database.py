"""What may stand in the ledger's place, each told by its name with what to do; and nothing of it is touched."""

import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from support.ledger.ledgers import Clock, approved, documents_of, enrolled, files_of, fill, opened, state_of
from support.sandbox.machine_facts import ROOT_ONLY, mounted

from quarterdeck.ledger.errors import (
    BrokenChainError,
    CorruptLedgerError,
    ForeignFileError,
    LedgerError,
    MissingHeadError,
    NewerLedgerError,
    OlderLedgerError,
    TruncatedLedgerError,
    UnsafeLedgerError,
    UnusableLedgerError,
)
from quarterdeck.ledger.events.chain import Verdict
from quarterdeck.ledger.store.database import audit_time
from quarterdeck.ledger.store.queries import Selection
from quarterdeck.ledger.store.reader import LedgerReader
from quarterdeck.ledger.store.store import accept_head


def sql(statement: str) -> Callable[[Path], None]:
    def run(directory: Path) -> None:
        with closing(sqlite3.connect(directory / "ledger.db")) as hand, hand:
            hand.execute(statement)

    return run


def database(data: bytes) -> Callable[[Path], None]:
    return lambda directory: (directory / "ledger.db").write_bytes(data) and None


def foreign(directory: Path) -> None:
    (directory / "ledger.db").unlink()
    sql("CREATE TABLE bookmarks(url)")(directory)


def linked(directory: Path) -> None:
    (directory / "ledger.db").rename(directory.parent / "elsewhere.db")
    (directory / "ledger.db").symlink_to(directory.parent / "elsewhere.db")


def overwritten(start: int, length: int) -> Callable[[Path], None]:
    def run(directory: Path) -> None:
        with open(directory / "ledger.db", "r+b") as file:
            file.seek(start)
            file.write(b"\xa5" * length)

    return run


def head(text: str) -> Callable[[Path], None]:
    return lambda directory: (directory / "head").write_text(text) and None


def newer(directory: Path) -> None:
    sql("PRAGMA user_version = 8")(directory)
    sql("UPDATE meta SET value = '9.2.1'")(directory)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of a ledger of ten events."""
    with opened(tmp_path / "ledger") as store:
        fill(store, 10)
    return tmp_path / "ledger"


MISPLACED = [
    (database(b""), ForeignFileError, "an empty file"),
    (database(b"hello, world" * 100), ForeignFileError, "not a database"),
    (foreign, ForeignFileError, "another program's database"),
    (linked, ForeignFileError, "symbolic link"),
    (newer, NewerLedgerError, "schema 8, made by Quarterdeck 9.2.1"),
    (sql("PRAGMA user_version = 4"), OlderLedgerError, r"schema 4, .*older Quarterdeck.*: export it with the version"),
    (sql("DROP TABLE events"), CorruptLedgerError, "no such table"),
    (overwritten(0, 16), ForeignFileError, "damaged"),
    (overwritten(100, 200), CorruptLedgerError, "malformed"),
    (lambda d: (d / "ledger.db").unlink(), TruncatedLedgerError, "the last 10 are gone"),
    (sql("DELETE FROM events WHERE seq > 6"), TruncatedLedgerError, "ends at event 6, but its head names event 10"),
    (sql("DELETE FROM events"), TruncatedLedgerError, "the last 10 are gone"),
    (sql("DELETE FROM events WHERE seq < 4"), BrokenChainError, "event 1 .it is missing"),
    (sql("UPDATE events SET hash = zeroblob(32) WHERE seq = 10"), BrokenChainError, "event 10"),
    (lambda d: (d / "head").unlink(), MissingHeadError, "is missing beside a ledger of 10 events"),
    (head(""), MissingHeadError, "contains no head"),
    (head("10 " + "ab" * 32), BrokenChainError, "event 10 .it is not the one that the head names"),
    (lambda d: d.chmod(0o777), UnsafeLedgerError, "chmod 700"),
]


@pytest.mark.parametrize(("harm", "error", "text"), MISPLACED)
def test_what_is_amiss_is_told_and_left_as_it_is(
    directory: Path, harm: Callable[[Path], None], error: type[LedgerError], text: str
) -> None:
    """A start would wipe out what could still be mended, or end with a traceback."""
    harm(directory)
    before = files_of(directory)
    for _ in range(2):
        with pytest.raises(error, match=text) as caught:
            opened(directory)
        assert "\n" not in str(caught.value)
    assert files_of(directory) == before


def test_every_byte_of_a_damaged_database_is_found_or_harmless(tmp_path: Path) -> None:
    """A dying disk would change what is approved without a word."""
    directory = tmp_path / "ledger"
    with opened(directory) as store:
        fill(store, 40)
        store.append([approved(1)])
        told = everything(store)
    data = (directory / "ledger.db").read_bytes()
    found = 0
    for place in range(0, len(data), 997):
        damaged = bytearray(data)
        damaged[place : place + 64] = os.urandom(len(damaged[place : place + 64]))
        (directory / "ledger.db").write_bytes(damaged)
        try:
            with LedgerReader.open(directory) as reader:
                verdict = reader.verify(lambda body: sha256(body).hexdigest()).verdict
                assert verdict is Verdict.BROKEN or everything(reader) == told
                found += verdict is not Verdict.INTACT
        except LedgerError:
            found += 1
    assert found > 10


def everything(reader: LedgerReader) -> tuple[object, ...]:
    documents = [(each.hash, each.body) for each in reader.documents()]
    return (
        state_of(reader.book),
        list(reader.events()),
        list(reader.events(Selection(server="fs"))),
        sorted(documents),
    )


def test_a_database_that_is_gone_but_for_its_wal_is_not_made_anew(tmp_path: Path) -> None:
    """The old WAL would be played into the new database."""
    directory = tmp_path / "ledger"
    opened(directory).close()
    (directory / "ledger.db").unlink()
    (directory / "ledger.db-wal").write_bytes(b"something")
    with pytest.raises(CorruptLedgerError, match="-wal"):
        opened(directory)


@pytest.mark.parametrize("leftover", ["head", "ledger.db", ".ledger.db.new", ".ledger.db.new-wal", ".head.new"])
def test_a_start_that_died_half_way_is_got_over(tmp_path: Path, leftover: str) -> None:
    """The first start would be the last, if it was killed."""
    directory = tmp_path / "ledger"
    opened(directory).close()
    for path in directory.iterdir():
        if path.name != leftover:
            path.unlink()
    if leftover.startswith("."):
        (directory / leftover).write_bytes(b"half")
    with opened(directory) as store:
        store.append([enrolled(1)])
        assert store.verify().is_intact


def test_a_person_can_accept_what_is_there(directory: Path) -> None:
    """A lost head would shut a user out for ever."""
    sql("DELETE FROM events WHERE seq > 6")(directory)
    old = (directory / "head").read_bytes()
    assert accept_head(directory, now=Clock("2026-01-02T03:04:05.678Z")).count == 6
    assert (directory / "backup" / "head-2026-01-02T030405.678Z").read_bytes() == old
    with opened(directory) as store:
        assert store.verify().is_intact
    for harm in (Path.unlink, lambda path: path.write_text("garbage")):
        harm(directory / "head")
        assert accept_head(directory).count == 6
        opened(directory).close()


def test_a_broken_chain_cannot_be_accepted(directory: Path) -> None:
    """An edit would become the truth by one word."""
    sql("UPDATE events SET at = '2020' WHERE seq = 3")(directory)
    (directory / "head").unlink()
    with pytest.raises(BrokenChainError, match="event 3"):
        accept_head(directory)
    assert not (directory / "head").exists()


@pytest.mark.process
@ROOT_ONLY
def test_a_read_only_file_system_is_read_and_not_written(tmp_path: Path) -> None:
    """A ledger on a rescued disk could not be looked at."""
    directory = tmp_path / "place" / "ledger"
    with opened(directory) as store:
        fill(store, 10)
    with mounted(directory.parent, "--bind", "-o", "ro", str(directory.parent)):
        with LedgerReader.open(directory) as reader:
            assert (reader.verify().is_intact, len(list(reader.events()))) == (True, 10)
        with pytest.raises(UnusableLedgerError, match="writable"):
            opened(directory)


def test_a_torn_wal_loses_nothing_that_the_head_names_unsaid(tmp_path: Path) -> None:
    """After a power loss a decision could be gone, and nobody would know."""
    directory = tmp_path / "ledger"
    store = opened(directory)
    store.append([enrolled(1)], documents_of(1), durable=True)
    store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for number in range(2, 12):
        store.append([approved(number)])
    files = files_of(directory)
    store.close()
    wal = files["ledger.db-wal"]
    outcomes = set()
    for place in [*range(0, len(wal), 7_919), 32, len(wal) - 1]:
        for torn in (wal[:place], wal[:place] + os.urandom(min(900, len(wal) - place)) + wal[place + 900 :]):
            for name, data in files.items():
                (directory / name).write_bytes(torn if name == "ledger.db-wal" else data)
            (directory / "ledger.db-shm").unlink(missing_ok=True)
            before = files_of(directory)
            try:
                with opened(directory) as again:
                    assert (again.head.count, again.verify().is_intact) == (11, True)
                outcomes.add("whole")
            except TruncatedLedgerError:
                assert files_of(directory) == before
                outcomes.add("told")
    assert "told" in outcomes


def test_events_carry_their_time_in_one_form() -> None:
    """An audit could not be sorted by time, or would tell another one."""
    before, said, after = datetime.now(UTC), audit_time(), datetime.now(UTC)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", said)
    assert before - timedelta(milliseconds=1) <= datetime.fromisoformat(said) <= after
