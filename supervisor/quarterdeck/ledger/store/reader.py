"""Read a ledger: events, documents, the book of any moment, and whether all of it is what was written.

Blocking; one thread at a time.  Beside a writer as long as one likes; changes nothing.  What cannot be read raises a
`LedgerError`: an `ArchivedError` where an archive that is needed is not there.
"""

import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Final, Self

from msgspec.structs import replace

from quarterdeck.ledger.errors import BrokenChainError, LedgerError
from quarterdeck.ledger.events import json_lines
from quarterdeck.ledger.events.chain import BrokenRowError, Head, Verdict, Verification, check, verify
from quarterdeck.ledger.events.events import Checkpoint, Stored
from quarterdeck.ledger.events.fold import Book
from quarterdeck.ledger.events.json_lines import StoredDocument

from . import archive, queries
from .database import DATABASE_NAME, open_for_reading, read_head, reading
from .queries import ALL, CallRow, Selection

_DOCUMENTS: Final = 16
"""Documents that are held at a time; each may have 4 MiB."""


class LedgerReader:
    """See the module; a context manager, or `close` it.  The ledger's own modules use its `connection`."""

    def __init__(self, directory: Path, connection: sqlite3.Connection) -> None:
        self.directory: Final = directory
        self.connection: Final = connection

    @classmethod
    def open(cls, directory: Path) -> "LedgerReader":
        """Open the ledger in `directory` as it is, so that even a broken one can be looked at.

        Raises:
            LedgerError: what is there cannot be used.
        """
        return LedgerReader(directory, open_for_reading(directory))

    @cached_property
    def book(self) -> Book:
        """What all events amount to; of a reader, those that were there when it was first asked for."""
        with self.reading():
            return queries.fold(self.connection)

    @property
    def head(self) -> Head:
        """Where the chain ends at this moment."""
        with self.reading():
            return queries.tip(self.connection)[0]

    @property
    def start(self) -> Head:
        """Where the events begin that are not archived."""
        with self.reading():
            return queries.start(self.connection)

    def document(self, digest: str, *, archived: bool = False) -> bytes | None:
        """A document by its hash; with `archived` those that were compacted away are looked through, too."""
        with self.reading():
            row = self.connection.execute("SELECT body FROM documents WHERE hash = ?", (digest,)).fetchone()
        if row is None and archived:
            return archive.archived_document(self.directory, self.start, digest)
        return None if row is None else bytes(row[0])

    def documents(self) -> Iterator[StoredDocument]:
        """All documents that were not archived, in the order in which they came."""
        after: tuple[int, str] = (0, "")
        statement = (
            f"SELECT seq, hash, body FROM documents WHERE (seq, hash) > (?, ?) ORDER BY seq, hash LIMIT {_DOCUMENTS}"  # noqa: S608
        )
        with self.reading():
            while found := self.connection.execute(statement, after).fetchall():
                for each in found:
                    yield StoredDocument(*each)
                after = found[-1][:2]

    def events(
        self,
        wanted: Selection = ALL,
        *,
        limit: int | None = None,
        newest_first: bool = False,
        archived: bool = False,
    ) -> Iterator[Stored]:
        """The events that are wanted, as they are read; with `archived` those that were compacted away, too."""
        old: Iterator[Stored] = iter(())
        if archived:
            old = archive.select_archived(self.directory, self.start, wanted, newest_first=newest_first)
        with self.reading():
            here = queries.select(self.connection, wanted, newest_first=newest_first)
            yield from islice(chain(here, old) if newest_first else chain(old, here), limit)

    def book_at(self, when: int | str) -> Book:
        """What the events up to a number, or up to a time, amounted to; an archive is read when it is needed."""
        with self.reading(), snapshot(self.connection):
            start = queries.start(self.connection)
            seq = when if isinstance(when, int) else queries.seq_at(self.connection, when)
            if seq > start.count or not start.count:
                return queries.fold(self.connection, seq)
        return archive.archived_book(self.directory, start, when)

    def verify(self, hash_of: Callable[[bytes], str] | None = None, *, anchored: bool = True) -> Verification:
        """Look at every event, here and in the archives that are there, and hold them against the head, if `anchored`.

        Documents are looked at where `hash_of` is given: the hash that one should be kept under.
        """
        nothing = Verification(Verdict.BROKEN, Head())
        try:
            with self.reading(), snapshot(self.connection):
                # First, for a writer may bring it forward at any moment.
                anchor = read_head(self.directory, 0) if anchored else None
                start = queries.start(self.connection)
                checked = verify(queries.rows(self.connection, compare=True), anchor, start)
                problem = _damage(self.connection) or self._changed(hash_of)
        except BrokenChainError as error:
            return replace(nothing, broken_seq=error.seq, reason=error.reason)
        except (LedgerError, OSError) as error:
            return replace(nothing, reason=str(error))
        if problem and checked.verdict is not Verdict.BROKEN:
            return replace(checked, verdict=Verdict.BROKEN, reason=problem)
        return archive.verify_archives(self.directory, checked)

    def export(self) -> Generator[bytes, None, None]:
        """All that is not archived, in constant memory, as lines that `rewrite.import_ledger` takes.

        Close it before the ledger is written again.
        """
        with self.reading(), snapshot(self.connection):
            start, (head, _) = queries.start(self.connection), queries.tip(self.connection)
            yield from json_lines.write(start, head, check(queries.rows(self.connection), start), self.documents())

    def calls(
        self,
        *,
        scope: str | None = None,
        server: str | None = None,
        tool: str | None = None,
        client: str | None = None,
        since: str | None = None,
        limit: int | None = None,
    ) -> Iterator[CallRow]:
        """The calls that are wanted, the last one first."""
        texts = {"scope": scope, "server": server, "tool": tool, "client": client}
        with self.reading():
            yield from islice(queries.select_calls(self.connection, texts, since), limit)

    def close(self) -> None:
        """Let go of it.  Repeatable."""
        self.connection.close()

    def _changed(self, hash_of: Callable[[bytes], str] | None) -> str:
        """Which document is not what its hash names; empty for none."""
        if hash_of is None:
            return ""
        changed = (each.hash for each in self.documents() if hash_of(each.body) != each.hash)
        digest = next(changed, "")
        return f"the document {digest} is not what was written" if digest else ""

    @contextmanager
    def reading(self) -> Iterator[None]:
        """SQLite's errors, and those of single rows, as the ledger's."""
        try:
            with reading(self.directory / DATABASE_NAME):
                yield
        except BrokenRowError as error:
            raise BrokenChainError(error.seq, error.reason) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Let all reads of the block see one state, whatever is written meanwhile."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _damage(connection: sqlite3.Connection) -> str:
    """What SQLite finds amiss in its own structures; empty for nothing."""
    found: str = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    return "" if found == "ok" else f"the database is damaged: {found}"


def contradiction(reader: LedgerReader, noted: Head) -> str:
    """Why the ledger is not one that once ended with `noted`, a head kept elsewhere; empty when it is."""
    head = reader.head
    if noted.count > head.count:
        return (
            f"it ends at event {head.count}, and once had {noted.count}: the last ones are gone, "
            "or it is another ledger"
        )
    if _hash_at(reader, noted.count) != noted.hash:
        if (redacted := _redacted_at(reader, noted)) is not None:
            return (
                f"secrets were taken out of it, as event {redacted} records: the events before that have other "
                "hashes since, and a head that was written down before does not fit any more"
            )
        return f"event {noted.count} is not the one that was noted: it was changed, or it is another ledger"
    return ""


def _redacted_at(reader: LedgerReader, noted: Head) -> int | None:
    """The event by which the ledger tells that secrets were taken out of what `noted` names; None for none."""
    for stored in reader.events(Selection(kinds=("checkpoint",), after_seq=noted.count), archived=True):
        if isinstance(stored.event, Checkpoint) and stored.event.redacted:
            return stored.seq
    return None


def _hash_at(reader: LedgerReader, seq: int) -> str:
    """The hash of an event; of number 0, what stands before the first."""
    start = reader.start
    if seq == 0:
        return Head().hash
    if seq >= start.count:
        with reader.reading():
            return queries.head_at(reader.connection, seq, start).hash
    for path, begin in archive.segments(reader.directory, start):
        if seq == begin.count:
            return begin.hash
        if seq > begin.count:
            rows_of_file = (each[0] for each in archive.pieces(path) if not isinstance(each, StoredDocument))
            return next((row.hash.hex() for row in rows_of_file if row.seq == seq), "")
    return ""
