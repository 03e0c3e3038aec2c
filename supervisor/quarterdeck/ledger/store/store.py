"""The ledger on the disk: append-only, and anchored by a head that is kept apart.  Blocking.

One writer at a time, which holds the lease (module `lease`), alongside any readers.  An append is there whole or not at
all, whatever dies when.  Trust decisions are on the disk before they count; other events may be lost with the machine's
power, never with a process.  Module `database` describes the files.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck.common.file_changes import replace_file, sync_directory
from quarterdeck.config.places.paths import UnsafePathError, make_private_dir
from quarterdeck.ledger.errors import (
    BrokenChainError,
    LedgerWriteError,
    MissingHeadError,
    TooLargeError,
    TruncatedLedgerError,
    UnusableLedgerError,
)
from quarterdeck.ledger.events.chain import ChainRow, Head, Verdict, check, link, verify
from quarterdeck.ledger.events.events import TRUST_EVENTS, LedgerEvent, Redacted, Stored, encode_json
from quarterdeck.ledger.events.json_lines import Piece, StoredDocument

from . import queries
from .database import (
    BACKUP_NAME,
    DATABASE_NAME,
    HEAD_NAME,
    audit_time,
    closed_on_failure,
    open_for_writing,
    prepare,
    read_head,
    transaction,
    write_head,
)
from .queries import KEEP_ALL, CallRow, Retention, insert_calls, lookups
from .reader import LedgerReader

TAIL: Final = 1_000
"""Events before the head that are checked at every opening, with all those after it."""

MAX_DOCUMENT_BYTES: Final = 4 * 1024 * 1024
"""No larger definition could be shown to a model."""

MAX_APPEND_BYTES: Final = 64 * 1024 * 1024
"""Of events and documents together; an append is held in memory, and in one transaction."""

MAX_LAG: Final = 1_000
"""Events that may be beyond the head; then it is brought up to date, at the cost of one sync."""

_LOAD_BATCH: Final = 1_000
_STILL_THERE: Final = "what was deleted may still be in its files"
_logger = logging.getLogger("quarterdeck.ledger")


class _End(msgspec.Struct):
    """The end of a writer's chain: its last event, that one's time, and the head that is on the disk."""

    tip: Head
    at: str
    anchor: Head | None
    file: tuple[int, int] | None
    is_full: bool | None = None


class LedgerStore(LedgerReader):
    """Writes one ledger; made by `open`, and used by one thread at a time.

    A method that changes something raises `LedgerWriteError`, and then has changed nothing, unless it says otherwise.
    """

    def __init__(self, directory: Path, connection: sqlite3.Connection, now: Callable[[], str] = audit_time) -> None:
        super().__init__(directory, connection)
        self._now = now
        self._end: _End | None = None

    @classmethod
    def open(cls, directory: Path, *, now: Callable[[], str] = audit_time) -> "LedgerStore":
        """Open the ledger in `directory`, whose lease the caller holds; it is made if missing.

        The last events are verified and compared with the head, and the book is folded.  Raises `LedgerError`, and
        leaves the ledger as it is, if it cannot be used or trusted.
        """
        prepare(directory)
        with LedgerReader.open(directory) as reader:
            anchor = _anchor(reader)
        with closed_on_failure(open_for_writing(directory)) as connection:
            store = LedgerStore(directory, connection, now)
            store._begin(anchor)
            return store

    @property
    def head(self) -> Head:
        """The present end of the chain."""
        return self._writing().tip

    def append(
        self, events: Sequence[LedgerEvent], documents: Mapping[str, bytes] | None = None, *, durable: bool = False
    ) -> tuple[Stored, ...]:
        """Append events and the documents that they name, all or nothing, and apply them to the book.

        Their time is the clock's, or that of the event before where the clock went back.  If the disk itself fails at
        the last moment, events that were reported as not added may be there after a crash.  A document whose hash is
        known stays as it is.  `durable` writes through to the disk before returning, as every trust decision does.
        """
        stored = self.write(events, documents, durable=durable)
        self.book.apply_rows((each.seq, each.at, each.event) for each in stored)
        return stored

    def write(
        self, events: Sequence[LedgerEvent], documents: Mapping[str, bytes] | None = None, *, durable: bool = False
    ) -> tuple[Stored, ...]:
        """Append as `append` does, and leave the book to the caller, perhaps in another thread."""
        if any(isinstance(event, Redacted) for event in events):
            raise ValueError("only a redaction records one")
        end, documents = self._writing(), documents or {}
        bodies = [encode_json(event) for event in events]
        _require_room(bodies, documents)
        if self.identity() != end.file:
            # SQLite would write on into a file that nobody can open any more.
            raise LedgerWriteError("its file was moved or replaced", "restart this")
        is_durable = durable or any(isinstance(event, TRUST_EVENTS) for event in events)
        at = max(self._now(), end.at)
        added = list(link(end.tip, at, bodies))
        self._synchronize(full=is_durable)
        with transaction(self.connection):
            self._insert_documents([StoredDocument(end.tip.count + 1, *each) for each in documents.items()])
            self._insert(zip(added, events, strict=True))
        self._move_to(added)
        if is_durable:
            self._quietly(self._write_head)
        elif end.tip.count - (end.anchor or Head()).count >= MAX_LAG:
            self._quietly(self.sync)
        return tuple(Stored(row.seq, at, event) for row, event in zip(added, events, strict=True))

    def rewrite(self, change: Callable[[LedgerEvent], LedgerEvent], documents: Mapping[str, StoredDocument]) -> None:
        """Replace events and documents by forms without their secrets, in one transaction.

        All hashes behind the first change become others; a `Redacted` at the end names the head before.  `change`
        returns the new form of an event, of the same kind, server and name, or the event itself; `documents` has new
        forms by their old hash.  Raises `BrokenChainError`, with nothing done, if an event is not what was written.
        """
        end = self._writing()
        at = max(self._now(), end.at)
        note = Redacted(scope="", server="", before=str(end.tip))
        self._synchronize(full=True)
        self.connection.execute("PRAGMA secure_delete = ON")  # what is replaced is overwritten
        with self.reading(), transaction(self.connection):
            tip = Head()
            for row, event in check(queries.rows(self.connection)):
                changed = change(event)
                [new] = link(tip, row.at, [row.body if changed is event else encode_json(changed)])
                tip = Head(new.seq, new.hash.hex())
                self.connection.execute(
                    "UPDATE events SET body = ?, hash = ? WHERE seq = ?", (new.body, new.hash, new.seq)
                )
            added = list(link(tip, at, [encode_json(note)]))
            self._insert([(added[0], note)])
            self.connection.executemany("DELETE FROM documents WHERE hash = ?", [(digest,) for digest in documents])
            self.connection.executemany(
                "INSERT INTO documents(seq, hash, body) VALUES(?, ?, ?)"
                " ON CONFLICT(hash) DO UPDATE SET seq = min(seq, excluded.seq)",
                [(each.seq, each.hash, each.body) for each in documents.values()],
            )
        self._move_to(added)
        self._quietly(self._write_head)
        self._forget_book()

    def wipe(self) -> None:
        """Leave no deleted data in the files.  Raises `LedgerWriteError` if something may still be there."""
        self._writing()
        try:
            self.connection.execute("VACUUM")
            is_busy = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.Error as error:
            raise LedgerWriteError(_STILL_THERE, str(error)) from error
        if is_busy:
            raise LedgerWriteError(_STILL_THERE, "end the programs that read the ledger, then run this again")

    def load(self, pieces: Iterable[Piece]) -> None:
        """Fill an empty ledger with verified events and documents; it is still empty if `pieces` raises."""
        self._writing()
        self._synchronize(full=True)
        last: list[ChainRow] = []
        with transaction(self.connection):
            batch: list[tuple[ChainRow, LedgerEvent]] = []
            for piece in pieces:
                if isinstance(piece, StoredDocument):
                    self._insert_documents([piece])
                    continue
                last = [piece[0]]
                batch.append(piece)
                if len(batch) == _LOAD_BATCH:
                    self._insert(batch)
                    batch.clear()
            self._insert(batch)
        self._move_to(last)
        self._quietly(self._write_head)
        self._forget_book()

    def record_calls(self, calls: Sequence[CallRow], keep: Retention = KEEP_ALL) -> None:
        """Record calls, outside the chain; the oldest make room as `keep` says, but for its days."""
        self._writing()
        self._synchronize(full=False)
        with transaction(self.connection):
            insert_calls(self.connection, calls, keep)

    def forget_days(self, days: int) -> None:
        """Drop calls that are older, once two looks find that they are."""
        self._writing()
        with transaction(self.connection):
            queries.forget_days(self.connection, days, self._now())

    def forget_dossiers(self) -> None:
        """Drop what is known of the faults of calls."""
        self._writing()
        with transaction(self.connection):
            self.connection.execute("UPDATE calls SET dossier = '' WHERE dossier <> ''")

    def sync(self) -> None:
        """Bring all events to the disk, then the head up to date.  Raises `LedgerWriteError` if that failed; events
        survive this process's death then, not the machine's.
        """
        self._writing()
        try:
            with suppress(FileNotFoundError), open(self.directory / f"{DATABASE_NAME}-wal", "rb") as pending:
                os.fsync(pending.fileno())
            sync_directory(self.directory)
        except OSError as error:
            raise LedgerWriteError(error.strerror or str(error)) from error
        self._write_head()

    def close(self) -> None:
        """Bring everything to the disk and close it.  Repeatable."""
        if self._end is not None and self._end.anchor != self._end.tip:
            self._quietly(self.sync)
        self._end = None
        super().close()

    def _begin(self, anchor: Head | None) -> None:
        with self.reading():
            tip, at = queries.tip(self.connection)
        self._end = _End(tip, at, anchor, self.identity())
        if anchor is None:
            self.sync()  # before the first event: from now on a missing head is one that was taken away
        elif anchor != tip:
            self._quietly(self.sync)
        _ = self.book

    def _writing(self) -> _End:
        if self._end is None:
            raise LedgerWriteError("it is closed", "open it again")
        return self._end

    def _write_head(self) -> None:
        end = self._writing()
        try:
            write_head(self.directory, end.tip)
        except OSError as error:
            raise LedgerWriteError(error.strerror or str(error)) from error
        end.anchor = end.tip

    def _quietly(self, work: Callable[[], None]) -> None:
        """Log a failure, which the next one makes good: events are safe, only a cut at their end would not show."""
        try:
            work()
        except LedgerWriteError as error:
            _logger.warning("the ledger's head file could not be updated: %s", error.__cause__ or error)

    def _move_to(self, added: Sequence[ChainRow]) -> None:
        if added:
            end = self._writing()
            end.tip, end.at = Head(added[-1].seq, added[-1].hash.hex()), added[-1].at

    def _forget_book(self) -> None:
        self.__dict__.pop("book", None)

    def _synchronize(self, *, full: bool) -> None:
        end = self._writing()
        if full is not end.is_full:
            self.connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
            end.is_full = full

    def _insert(self, added: Iterable[tuple[ChainRow, LedgerEvent]]) -> None:
        self.connection.executemany(
            "INSERT INTO events(seq, at, body, hash, kind, scope, server, tool) VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
            [(*row, *lookups(event)) for row, event in added],
        )

    def _insert_documents(self, documents: Iterable[StoredDocument]) -> None:
        self.connection.executemany(
            "INSERT OR IGNORE INTO documents(seq, hash, body) VALUES(?, ?, ?)",
            [(each.seq, each.hash, each.body) for each in documents],
        )


def accept_head(directory: Path, *, now: Callable[[], str] = audit_time) -> Head:
    """Write the head again from the verified events; the one before goes to `backup/`.

    For a person to decide, when a head is missing or names events that are gone.
    """
    with LedgerReader.open(directory) as reader:
        found = reader.verify(anchored=False)
        if found.verdict is Verdict.BROKEN:
            raise BrokenChainError(found.broken_seq or 0, found.reason)
        tip = reader.head
    try:
        before = directory / HEAD_NAME
        if before.exists():
            folder = make_private_dir(directory / BACKUP_NAME)
            replace_file(folder / f"head-{now().replace(':', '')}", before.read_bytes(), is_locked=True)
        write_head(directory, tip)
    except (OSError, UnsafePathError) as error:
        raise UnusableLedgerError(before, str(error)) from error
    return tip


def _anchor(reader: LedgerReader) -> Head | None:
    """Return the verified head of a ledger; None for an empty one without a head."""
    with reader.reading():
        tip, _ = queries.tip(reader.connection)
        path = reader.directory / HEAD_NAME
        try:
            head = read_head(reader.directory, tip.count)
        except OSError as error:
            raise UnusableLedgerError(path, error.strerror or str(error)) from error
        if head is None:
            if tip.count:
                raise MissingHeadError(path, tip.count, "is missing")
            return None
        if tip.count < head.count:
            raise TruncatedLedgerError(tip.count, head.count)
        before = queries.head_at(reader.connection, max(head.count - TAIL, 0))
        found = verify(queries.rows(reader.connection, before.count), head, before)
    if found.verdict is Verdict.UNANCHORED:
        raise MissingHeadError(path, tip.count, "is from before secrets were removed,")
    if not found.is_intact:
        raise BrokenChainError(found.broken_seq or head.count, found.reason)
    return head


def _require_room(bodies: Sequence[bytes], documents: Mapping[str, bytes]) -> None:
    for digest, body in documents.items():
        if len(body) > MAX_DOCUMENT_BYTES:
            raise TooLargeError(f"the document {digest[:12]}…", len(body), MAX_DOCUMENT_BYTES)
    size = sum(map(len, bodies)) + sum(map(len, documents.values()))
    if size > MAX_APPEND_BYTES:
        raise TooLargeError("one write", size, MAX_APPEND_BYTES)
