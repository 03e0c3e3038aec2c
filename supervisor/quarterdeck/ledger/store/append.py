"""Append events to the chain, all or nothing.  Blocking; for one thread.

The head file is written after what it names is on the disk.
"""

import logging
import os
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from quarterdeck.common.files.replace import sync_directory
from quarterdeck.ledger.errors import LedgerWriteError, TooLargeError
from quarterdeck.ledger.events.chain import ChainRow, Head, link
from quarterdeck.ledger.events.events import TRUST_EVENTS, Checkpoint, LedgerEvent, Stored, encode_event
from quarterdeck.ledger.events.json_lines import DocumentLine, Piece

from .calls import CallRow, insert_calls
from .database import DATABASE_NAME, transaction, write_head
from .migrations import lookups

MAX_DOCUMENT_BYTES: Final = 4 * 1024 * 1024
"""A definition of that size is no tool's that a model could be shown."""

MAX_APPEND_BYTES: Final = 64 * 1024 * 1024
"""Of events and documents together; an append is held in memory, and in one transaction."""

MAX_LAG: Final = 1_000
"""Events that may be beyond the head; then it is brought up to date, for the price of one sync."""

_LOAD_BATCH: Final = 1_000

_STILL_THERE: Final = "what was deleted may still be in its files"

_logger = logging.getLogger("quarterdeck.ledger")


class Appender:
    """The writer of one ledger; it knows where the chain ends.

    Attributes:
        tip: the last event.
        at: its time; empty before the first.
        anchor: what the head file says; None when there is none yet.
    """

    def __init__(
        self, directory: Path, connection: sqlite3.Connection, tip: Head, at: str, anchor: Head | None
    ) -> None:
        self.tip = tip
        self.at = at
        self.anchor = anchor
        self._directory = directory
        self._connection = connection
        self._is_full: bool | None = None
        self._identity = _identity(directory)

    def add(
        self, events: Sequence[LedgerEvent], documents: Mapping[str, bytes], now: str, *, durable: bool
    ) -> tuple[Stored, ...]:
        """Add events and documents; see `LedgerStore.append`.

        Raises:
            LedgerWriteError: nothing was added.
        """
        bodies = [encode_event(event) for event in events]
        _require_room(bodies, documents)
        if _identity(self._directory) != self._identity:
            # SQLite would write on into a file that nobody can open any more.
            raise LedgerWriteError("its file was moved or replaced", "restart this")
        is_durable = durable or any(isinstance(event, TRUST_EVENTS) for event in events)
        at = max(now, self.at)
        added = list(link(self.tip, at, bodies))
        self._synchronize(full=is_durable)
        with transaction(self._connection):
            self._insert_documents([DocumentLine(self.tip.count + 1, *each) for each in documents.items()])
            self._insert(zip(added, events, strict=True))
        self._moved(added)
        if is_durable:
            self._keep_head()
        elif self.tip.count - (self.anchor or Head()).count >= MAX_LAG:
            self.sync_quietly()
        return tuple(Stored(row.seq, at, event) for row, event in zip(added, events, strict=True))

    def stand_for(
        self,
        checkpoint: Checkpoint,
        keep: Collection[str],
        now: str,
        *,
        after: Head | None = None,
        instead: Iterable[DocumentLine] = (),
    ) -> Stored:
        """Put the checkpoint in place of all events, and leave the documents of `keep` alone.

        Args:
            checkpoint: what stands for the events.
            keep: hashes of the documents that stay.
            now: its time.
            after: where the chain ends that it stands for, when that was written anew.
            instead: documents that come in.

        Raises:
            LedgerWriteError: nothing was changed.
        """
        at = max(now, self.at)
        added = list(link(after or self.tip, at, [encode_event(checkpoint)]))
        self._synchronize(full=True)
        # What is deleted is overwritten.
        self._connection.execute(f"PRAGMA secure_delete = {'ON' if after is not None else 'OFF'}")
        with transaction(self._connection):
            self._connection.execute("DELETE FROM events")
            self._insert([(added[0], checkpoint)])
            kept = frozenset(keep)
            hashes = [row[0] for row in self._connection.execute("SELECT hash FROM documents")]
            self._connection.executemany(
                "DELETE FROM documents WHERE hash = ?", [(digest,) for digest in hashes if digest not in kept]
            )
            self._insert_documents(instead)
        self._moved(added)
        self._keep_head()
        with suppress(sqlite3.Error):  # the room is used again, if not given back
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Stored(self.tip.count, at, checkpoint)

    def wipe(self) -> None:
        """Leave nothing in the files of what was deleted.

        Raises:
            LedgerWriteError: something may still be there.
        """
        try:
            self._connection.execute("VACUUM")
            is_busy = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.Error as error:
            raise LedgerWriteError(_STILL_THERE, str(error)) from error
        if is_busy:
            raise LedgerWriteError(_STILL_THERE, "end the programs that read the ledger, then run this again")

    def load(self, pieces: Iterable[Piece]) -> None:
        """Fill an empty ledger with events and documents that were checked.

        Raises:
            LedgerWriteError: it is still empty; so it is when `pieces` raises.
        """
        self._synchronize(full=True)
        last: list[ChainRow] = []
        with transaction(self._connection):
            batch: list[tuple[ChainRow, LedgerEvent]] = []
            for piece in pieces:
                if isinstance(piece, DocumentLine):
                    self._insert_documents([piece])
                    continue
                last = [piece[0]]
                batch.append(piece)
                if len(batch) == _LOAD_BATCH:
                    self._insert(batch)
                    batch.clear()
            self._insert(batch)
        self._moved(last)
        self._keep_head()

    def note(self, calls: Iterable[CallRow]) -> None:
        """Note calls, beside the chain.

        Raises:
            LedgerWriteError: none was noted.
        """
        self._synchronize(full=False)
        with transaction(self._connection):
            insert_calls(self._connection, calls)

    def sync(self) -> None:
        """Bring all events to the disk, then the head up to date.

        Raises:
            LedgerWriteError: that failed; what was added is there as long as the machine has power.
        """
        try:
            with suppress(FileNotFoundError):
                _sync_file(self._directory / f"{DATABASE_NAME}-wal")
            sync_directory(self._directory)
            write_head(self._directory, self.tip)
        except OSError as error:
            raise LedgerWriteError(error.strerror or str(error)) from error
        self.anchor = self.tip

    def sync_quietly(self) -> None:
        """`sync`; a failure is logged, and made good by the next."""
        try:
            self.sync()
        except LedgerWriteError as error:
            _logger.warning("the ledger's head file could not be updated: %s", error)

    def _keep_head(self) -> None:
        """Write the head of what a commit has brought to the disk."""
        try:
            write_head(self._directory, self.tip)
        except OSError as error:
            # The events are safe; only a cut at their end would not show until the next one.
            _logger.warning("the ledger's head file could not be updated: %s", error)
        else:
            self.anchor = self.tip

    def _moved(self, added: Sequence[ChainRow]) -> None:
        if added:
            self.tip, self.at = Head(added[-1].seq, added[-1].hash.hex()), added[-1].at

    def _synchronize(self, *, full: bool) -> None:
        """Whether commits are brought to the disk one by one."""
        if full is not self._is_full:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
            self._is_full = full

    def _insert(self, rows: Iterable[tuple[ChainRow, LedgerEvent]]) -> None:
        self._connection.executemany(
            "INSERT INTO events(seq, at, body, hash, kind, scope, server, tool) VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
            [(*row, *lookups(event)) for row, event in rows],
        )

    def _insert_documents(self, documents: Iterable[DocumentLine]) -> None:
        self._connection.executemany(
            "INSERT OR IGNORE INTO documents(seq, hash, body) VALUES(?, ?, ?)",
            [(each.seq, each.hash, each.body) for each in documents],
        )


def _identity(directory: Path) -> tuple[int, int] | None:
    """Which file has the database's name; None for none."""
    try:
        status = os.stat(directory / DATABASE_NAME)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _require_room(bodies: Sequence[bytes], documents: Mapping[str, bytes]) -> None:
    for digest, body in documents.items():
        if len(body) > MAX_DOCUMENT_BYTES:
            raise TooLargeError(f"the document {digest[:12]}…", len(body), MAX_DOCUMENT_BYTES)
    size = sum(map(len, bodies)) + sum(map(len, documents.values()))
    if size > MAX_APPEND_BYTES:
        raise TooLargeError("one write", size, MAX_APPEND_BYTES)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
