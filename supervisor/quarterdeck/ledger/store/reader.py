"""Read a ledger: events, documents, the book of any moment, and whether all of it is what was written.

Blocking; one thread at a time.  Works alongside a writer; changes nothing.  Every failure raises a `LedgerError`.
"""

import os
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Final, Self

from msgspec.structs import replace

from quarterdeck.ledger.errors import BrokenChainError, LedgerError
from quarterdeck.ledger.events import json_lines
from quarterdeck.ledger.events.chain import BrokenRowError, Head, Verdict, Verification, check, verify
from quarterdeck.ledger.events.events import Stored
from quarterdeck.ledger.events.fold import Book
from quarterdeck.ledger.events.json_lines import StoredDocument

from . import queries
from .database import DATABASE_NAME, open_for_reading, read_head, reading
from .queries import ALL, CallRow, Selection

_DOCUMENTS: Final = 16
"""Documents in memory at a time; each may have 4 MiB."""


class LedgerReader:
    """Reads one ledger; a context manager, or `close` it.  The ledger's own modules use its `connection`."""

    def __init__(self, directory: Path, connection: sqlite3.Connection) -> None:
        self.directory: Final = directory
        self.connection: Final = connection

    @classmethod
    def open(cls, directory: Path) -> "LedgerReader":
        """Open the ledger in `directory` as it is, even a broken one.  Raises `LedgerError` if it cannot be used."""
        return LedgerReader(directory, open_for_reading(directory))

    @cached_property
    def book(self) -> Book:
        """The state of all events; of a reader, those at the first access."""
        with self.reading():
            return queries.fold(self.connection)

    @property
    def head(self) -> Head:
        """The present end of the chain."""
        with self.reading():
            return queries.tip(self.connection)[0]

    def document(self, digest: str) -> bytes | None:
        """Return a document by its hash, or None."""
        with self.reading():
            row = self.connection.execute("SELECT body FROM documents WHERE hash = ?", (digest,)).fetchone()
        return None if row is None else bytes(row[0])

    def documents(self) -> Iterator[StoredDocument]:
        """Yield all documents, in the order in which they came."""
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
        self, wanted: Selection = ALL, *, limit: int | None = None, newest_first: bool = False
    ) -> Iterator[Stored]:
        """Yield the selected events, as they are read."""
        with self.reading():
            yield from islice(queries.select(self.connection, wanted, newest_first=newest_first), limit)

    def book_at(self, when: int | str) -> Book:
        """Return the state after the events up to a number, or up to a time."""
        with self.reading(), snapshot(self.connection):
            seq = when if isinstance(when, int) else queries.seq_at(self.connection, when)
            return queries.fold(self.connection, seq)

    def verify(self, hash_of: Callable[[bytes], str] | None = None, *, anchored: bool = True) -> Verification:
        """Check every event, and compare them with the head, if `anchored`.

        With `hash_of`, which returns the hash that a document should have, check the documents too.
        """
        nothing = Verification(Verdict.BROKEN, Head())
        try:
            with self.reading(), snapshot(self.connection):
                # First, for a writer may bring it forward at any moment.
                anchor = read_head(self.directory, 0) if anchored else None
                checked = verify(queries.rows(self.connection, compare=True), anchor)
                damage = self.connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
                problem = f"the database is damaged: {damage}" if damage != "ok" else self._changed(hash_of)
        except BrokenChainError as error:
            return replace(nothing, broken_seq=error.seq, reason=error.reason)
        except (LedgerError, OSError) as error:
            return replace(nothing, reason=str(error))
        if problem and checked.verdict is not Verdict.BROKEN:
            return replace(checked, verdict=Verdict.BROKEN, reason=problem)
        return checked

    def export(self) -> Generator[bytes, None, None]:
        """Yield all of it, in constant memory, as lines that `rewrite.import_ledger` takes.

        Close it before the ledger is written again.
        """
        with self.reading(), snapshot(self.connection):
            head, _ = queries.tip(self.connection)
            yield from json_lines.write(head, check(queries.rows(self.connection)), self.documents())

    def calls(
        self,
        *,
        scope: str | None = None,
        server: str | None = None,
        tool: str | None = None,
        client: str | None = None,
        since: str | None = None,
        limit: int | None = None,
        is_denied: bool = False,
        after: int | None = None,
    ) -> Iterator[CallRow]:
        """Yield the selected calls, the last one first; with `after` those beyond that number, in their order."""
        texts = {"scope": scope, "server": server, "tool": tool, "client": client}
        with self.reading():
            found = queries.select_calls(self.connection, texts, since, is_denied=is_denied, after=after)
            yield from islice(found, limit)

    def first_call_at(self) -> str:
        """Return when the oldest call ended that is kept; empty without one."""
        with self.reading():
            row = self.connection.execute("SELECT at FROM calls ORDER BY number LIMIT 1").fetchone()
        return row[0] if row is not None else ""

    def last_call(self) -> int:
        """Return the number that was given last to a call, whether or not it is kept; 0 before the first."""
        with self.reading():
            row = self.connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'calls'").fetchone()
        return row[0] if row is not None else 0

    def identity(self) -> tuple[int, int] | None:
        """Return which file its database is now: another one once it was replaced, None while there is none."""
        try:
            status = os.stat(self.directory / DATABASE_NAME)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def close(self) -> None:
        """Close it.  Repeatable."""
        self.connection.close()

    def _changed(self, hash_of: Callable[[bytes], str] | None) -> str:
        if hash_of is None:
            return ""
        changed = (each.hash for each in self.documents() if hash_of(each.body) != each.hash)
        digest = next(changed, "")
        return f"the document {digest} is not what was written" if digest else ""

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn SQLite's errors, and those of single rows, into the ledger's."""
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


def contradiction(reader: LedgerReader, noted: Head) -> str:
    """Say why the ledger never ended with `noted`, a head kept elsewhere; empty if it did."""
    head = reader.head
    if noted.count > head.count:
        return (
            f"it ends at event {head.count}, and once had {noted.count}: the last ones are gone, "
            "or it is another ledger"
        )
    with reader.reading():
        found = queries.head_at(reader.connection, noted.count)
    if found.hash != noted.hash:
        redactions = Selection(kinds=("redact",), after_seq=noted.count)
        if (redacted := next(reader.events(redactions), None)) is not None:
            return (
                f"secrets were removed from it, as event {redacted.seq} records: the events before have other hashes "
                "since, and a head that was written down before no longer fits"
            )
        return f"event {noted.count} is not the one that was noted: it was changed, or it is another ledger"
    return ""
