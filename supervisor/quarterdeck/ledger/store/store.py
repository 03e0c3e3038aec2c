"""The ledger on the disk: appended to, never changed, and held against a head that is kept apart.  Blocking.

One writer at a time, which holds the lease (module `lease`); readers beside it as they like.  An append is there
whole or not at all, whatever dies when.  Trust decisions are on the disk before they count; other events may be lost
with the machine's power, never with a process.  Module `database` tells what stands in which file.
"""

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from quarterdeck.common.files.replace import replace_file
from quarterdeck.config.places.paths import UnsafePathError, make_private_dir
from quarterdeck.ledger.errors import (
    BrokenChainError,
    LedgerWriteError,
    MissingHeadError,
    TruncatedLedgerError,
    UnusableLedgerError,
)
from quarterdeck.ledger.events.chain import Head, Verdict, verify
from quarterdeck.ledger.events.events import Checkpoint, LedgerEvent, Stored
from quarterdeck.ledger.events.json_lines import DocumentLine, Piece

from . import rows
from .append import Appender
from .calls import CallRow
from .database import BACKUP_NAME, HEAD_NAME, open_for_reading, open_for_writing, prepare, read_head, write_head
from .read import LedgerReader

TAIL: Final = 1_000
"""Events before the head that are checked at every opening, with all those after it."""


def audit_time() -> str:
    """Now: ISO-8601 UTC with milliseconds and `Z`."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class LedgerStore(LedgerReader):
    """See the module; made by `open`, and used by one thread at a time."""

    def __init__(self, directory: Path, connection: sqlite3.Connection, now: Callable[[], str] = audit_time) -> None:
        super().__init__(directory, connection)
        self._now = now
        self._appender: Appender | None = None

    @classmethod
    def open(cls, directory: Path, *, writable: bool, now: Callable[[], str] = audit_time) -> "LedgerStore":
        """Open the ledger in `directory`; a writer makes it where there is none, and must hold its lease.

        A writer sees that the last events are what was written and reach to the head, and folds the book.  A reader
        takes what is there, so that even a broken ledger can be looked at; its book is folded when it is asked for.

        Raises:
            LedgerError: what is there cannot be used, or not be trusted; it is left as it is.
        """
        if not writable:
            return LedgerStore(directory, open_for_reading(directory))
        prepare(directory, now())
        with cls.open_reader(directory) as reader:
            anchor = _anchor(reader)
        store = LedgerStore(directory, open_for_writing(directory), now)
        try:
            store._begin(anchor)
        except BaseException:
            store.connection.close()
            raise
        return store

    @property
    def head(self) -> Head:
        """Where the chain ends at this moment."""
        return super().head if self._appender is None else self._appender.tip

    def append(
        self, events: Sequence[LedgerEvent], documents: Mapping[str, bytes] | None = None, *, durable: bool = False
    ) -> tuple[Stored, ...]:
        """Add events and the documents that they name, all or nothing, and take them into the book.

        Their time is the clock's, or that of the event before where the clock went back.

        Args:
            events: in their order.
            documents: by hash; one that is there already is left as it is.
            durable: write it through to the disk before returning, as is done for every trust decision.

        Raises:
            LedgerWriteError: nothing was added; the ledger can be used on.  If the disk itself failed at the last
                moment, they may turn out after a crash to be there after all.
        """
        stored = self.write(events, documents, durable=durable)
        self.book.apply_rows((each.seq, each.at, each.event) for each in stored)
        return stored

    def write(
        self, events: Sequence[LedgerEvent], documents: Mapping[str, bytes] | None = None, *, durable: bool = False
    ) -> tuple[Stored, ...]:
        """`append`, and leave the book to whoever reads it, perhaps in another thread."""
        if any(isinstance(event, Checkpoint) for event in events):
            raise ValueError("only compaction makes a checkpoint")
        return self._writing().add(events, documents or {}, self._now(), durable=durable)

    def stand_for(self, checkpoint: Checkpoint, keep: Iterable[str]) -> Stored:
        """Put a checkpoint in place of all events; compaction's last step.  The book, which says the same, is left.

        Raises:
            LedgerWriteError: nothing was changed.
        """
        return self._writing().stand_for(checkpoint, frozenset(keep), self._now())

    def replace_all(self, head: Head, checkpoint: Checkpoint, documents: Sequence[DocumentLine]) -> Stored:
        """Put a checkpoint in place of all events, of which the chain was written anew; redaction's last step.

        Args:
            head: where the new chain ends.
            checkpoint: what stands for it.
            documents: all that it names.

        Raises:
            LedgerWriteError: nothing was changed.
        """
        keep = frozenset(each.hash for each in documents)
        stored = self._writing().stand_for(checkpoint, keep, self._now(), after=head, instead=documents)
        self.__dict__.pop("book", None)  # folded anew when it is asked for
        return stored

    def wipe(self) -> None:
        """Leave nothing in the files of what was deleted.

        Raises:
            LedgerWriteError: something may still be there.
        """
        self._writing().wipe()

    def load(self, pieces: Iterable[Piece]) -> None:
        """Fill an empty ledger; the import's last step.

        Raises:
            LedgerWriteError: it is still empty.
        """
        self._writing().load(pieces)
        self.__dict__.pop("book", None)  # folded anew when it is asked for

    def record_calls(self, calls: Iterable[CallRow]) -> None:
        """Note calls, beside the chain.

        Raises:
            LedgerWriteError: none was noted.
        """
        self._writing().note(calls)

    def sync(self) -> None:
        """Bring all events to the disk, and the head up to date.

        Raises:
            LedgerWriteError: they are safe from this process's death, not from the machine's.
        """
        self._writing().sync()

    def close(self) -> None:
        """Bring everything to the disk and let go of it.  Repeatable."""
        if self._appender is not None and self._appender.anchor != self._appender.tip:
            self._appender.sync_quietly()
        self._appender = None
        super().close()

    def _begin(self, anchor: Head | None) -> None:
        with self.reading():
            tip, at = rows.tip(self.connection)
        appender = Appender(self.directory, self.connection, tip, at, anchor)
        if anchor is None:
            appender.sync()  # before the first event: from now on a missing head is one that was taken away
        elif anchor != tip:
            appender.sync_quietly()
        self._appender = appender
        _ = self.book

    def _writing(self) -> Appender:
        if self._appender is None:
            raise LedgerWriteError("it is open for reading only, or closed", "open it for writing")
        return self._appender


def accept_head(directory: Path, *, now: Callable[[], str] = audit_time) -> Head:
    """Take what is there for the whole ledger: write its head anew, once its events are seen to be what was written.

    For a person to say, when a head is missing or names events that are gone.  The one before goes to `backup/`.

    Raises:
        LedgerError: the events are not what was written, or cannot be read.
    """
    with LedgerReader.open_reader(directory) as reader:
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
    """The head of a ledger whose last events are what was written and reach to it; None for one without either.

    Raises:
        LedgerError: they are not, or do not.
    """
    with reader.reading():
        tip, _ = rows.tip(reader.connection)
        start = rows.start(reader.connection)
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
        if head.count < start.count:
            raise MissingHeadError(path, tip.count, "names an event that was archived,")
        before = rows.head_at(reader.connection, max(head.count - TAIL, start.count), start)
        found = verify(rows.rows(reader.connection, before.count), head, before)
    if not found.is_intact:
        raise BrokenChainError(found.broken_seq or head.count, found.reason)
    return head
