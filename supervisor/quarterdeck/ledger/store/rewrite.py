"""Replace all events of a ledger by others: compact it, take secrets out of it, fill an empty one.  Blocking.

Compaction replaces old events by a checkpoint that stands for them:

    1. all events and documents into a file of `archive/`, read back and found to be as they were written
    2. in one transaction: the checkpoint in, all events before it out, documents that nothing names any more out
    3. the head

Redaction takes out secrets that were written before they were recognised: nothing else changes what was written.

    1. every archive and all events, oldest first, are written anew into files of `archive/`, each read back and found
       whole: how servers are started, and how they ended, with their secrets hidden; each event with the hash that it
       then has
    2. in one transaction: a checkpoint that names the head before goes in, all events and what they name go out
    3. the head; then the files that were replaced, and copies of the database in `backup/`, are removed

Killed before 2 is through, the ledger is as before, beside a file that nobody needs; between 2 and 3 of a redaction,
`verify --accept` writes the head.  Run again, it finishes what was left.  Heads that were written down before (in a
`deck.lock`) do not fit a redacted ledger any more.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck.config.places.paths import UnsafePathError, make_private_dir
from quarterdeck.ledger.errors import (
    ArchivedError,
    FilledLedgerError,
    LedgerWriteError,
    TransferError,
    UnsafeLedgerError,
)
from quarterdeck.ledger.events import json_lines
from quarterdeck.ledger.events.chain import ChainRow, Head, check, row_hash
from quarterdeck.ledger.events.events import (
    Approved,
    Checkpoint,
    Ended,
    LedgerEvent,
    Seen,
    Subject,
    encode_json,
    hash_of,
)
from quarterdeck.ledger.events.fold import Book, ItemKey
from quarterdeck.ledger.events.json_lines import StoredDocument

from . import archive, queries
from .archive import ARCHIVE_NAME
from .database import BACKUP_NAME, audit_time
from .store import LedgerStore


def import_ledger(source: Path, directory: Path, *, now: Callable[[], str] = audit_time) -> Head:
    """Fill the empty ledger in `directory`, whose lease the caller holds, with an export; returns its head.

    The file is read twice, so that all of it is known to be as it was written before anything is.

    Raises:
        TransferError: it is not, or there are events already; the ledger is as before.
        LedgerError: the ledger cannot be used; it is as before.
        OSError: the file cannot be read.
    """
    for _ in archive.pieces(source):
        pass
    with LedgerStore.open(directory, now=now) as store:
        if store.head.count or next(store.documents(), None):
            raise FilledLedgerError(directory)
        store.load(archive.pieces(source))
        return store.head


COMPACT_EVENTS: Final = 500_000
"""A start reads them in about two seconds; more, and it pays to archive them."""


class Compacted(msgspec.Struct, frozen=True):
    """What was done.

    Attributes:
        archive: where the events are now.
        events: how many.
        head: where the chain ended before, and the archive ends.
    """

    archive: Path
    events: int
    head: Head


def needs_compaction(store: LedgerStore, limit: int = COMPACT_EVENTS) -> bool:
    """Whether there are so many events that the next start would be slow."""
    return store.head.count - store.start.count > limit


def compact(store: LedgerStore) -> Compacted | None:
    """Archive all events; None when there is nothing to gain.  Numbers go on; the store's book is left as it is.

    Raises:
        BrokenChainError: an event is not what was written; nothing was done.
        LedgerWriteError: nothing was done.
    """
    start, head = store.start, store.head
    if head.count - start.count <= 1:
        return None
    store.sync()  # from here the head is never older than the checkpoint
    path = archive.archive_path(store.directory, start, head)
    with _archiving(store.directory), closing(store.export()) as found:
        archive.write_file(path, found)
    with store.reading():
        book = queries.fold(store.connection)  # not the store's, which may be read and changed in another thread
    checkpoint = Checkpoint(scope="", server="", count=head.count, head=head.hash, state=book.to_state())
    store.stand_for(checkpoint, book.documents())
    return Compacted(path, head.count - start.count, head)


@contextmanager
def _archiving(directory: Path) -> Iterator[None]:
    """Make the folder of archives, and tell what keeps files from being written there as the ledger's errors."""
    try:
        make_private_dir(directory / ARCHIVE_NAME)
        yield
    except (OSError, TransferError) as error:
        raise LedgerWriteError(f"no archive could be made: {error}") from error
    except UnsafePathError as error:
        raise UnsafeLedgerError(str(error)) from error


_HASH_DIGITS: Final = 12
"""Of a head, in the name of a file that stands in for another."""

_LAUNCH: Final = ItemKey(Subject.LAUNCH)


class Redacted(msgspec.Struct, frozen=True):
    """What was done: in how many documents and messages something was hidden, and where the chain ended before and now.

    Attributes:
        launches: documents of how servers are started.
        messages: of how servers ended.
        removed: files that held what was hidden.
        missing: up to which event archives are not there, so that they could not be looked at; 0 for none.
    """

    launches: int
    messages: int
    before: Head
    head: Head
    removed: tuple[Path, ...]
    missing: int


def redact(
    store: LedgerStore, redact_launch: Callable[[bytes], bytes], redact_message: Callable[[str], str]
) -> Redacted:
    """Hide secrets in all that the ledger holds, archive it, and leave nothing of them in its files.

    Args:
        store: open for writing.
        redact_launch: the document of a launch, without its secrets; the same bytes when there are none.
        redact_message: the message of an end, likewise.

    Raises:
        BrokenChainError: an event is not what was written; nothing was done.
        LedgerWriteError: it is as before; or, where the message says so, its files may still hold what was hidden.
    """
    store.sync()  # from here the head is never older than the checkpoint
    before = store.head
    sources, missing = _sources(store)
    rewriter = _Rewriter(redact_launch, redact_message)
    rewriter.learn(sources)
    if rewriter.is_needed:
        _rewrite(store, sources, rewriter)
    else:
        compact(store)
    store.sync()
    removed = _remove_replaced(store)
    store.wipe()
    return Redacted(rewriter.launches, rewriter.messages, before, store.head, removed, missing)


def _rewrite(store: LedgerStore, sources: Sequence["_Source"], rewriter: "_Rewriter") -> None:
    """Archive all parts anew, and have a checkpoint stand for them."""
    before, new = store.head, sources[0].start
    with _archiving(store.directory):
        for source in sources:
            start, new = new, rewriter.head_of(source, new)
            if source.path is None or (start, new) != (source.start, source.head):
                archive.write_file(_beside(store.directory, start, new), rewriter.lines(source, start, new))
    with store.reading():
        book = rewriter.book(queries.fold(store.connection))
    checkpoint = Checkpoint(
        scope="", server="", count=new.count, head=new.hash, state=book.to_state(), redacted=str(before)
    )
    kept = book.documents()
    documents = [found for each in store.documents() if (found := rewriter.document(each)).hash in kept]
    store.stand_for(checkpoint, kept, after=new, instead=documents)


class _Source(msgspec.Struct, frozen=True):
    """A part of the chain: an archive, or, without a path, what the database holds."""

    start: Head
    head: Head
    events: Callable[[], Iterator[tuple[ChainRow, LedgerEvent]]]
    documents: Callable[[], Iterator[StoredDocument]]
    path: Path | None = None


class _Rewriter:
    """Writes the chain anew; the same pieces always become the same."""

    def __init__(self, redact_launch: Callable[[bytes], bytes], redact_message: Callable[[str], str]) -> None:
        self._redact_launch = redact_launch
        self._redact_message = redact_message
        self._named: set[str] = set()
        self._renamed: dict[str, str] = {}
        self._ended: set[str] = set()

    @property
    def launches(self) -> int:
        """In how many documents something was hidden."""
        return len(self._renamed)

    @property
    def messages(self) -> int:
        """In how many messages."""
        return len(self._ended)

    @property
    def is_needed(self) -> bool:
        """Whether anything is to be hidden."""
        return bool(self._renamed or self._ended)

    def learn(self, sources: Iterable[_Source]) -> None:
        """Find what is to be hidden, and what becomes of the hashes of launches."""
        sources = tuple(sources)
        for source in sources:
            for _, event in source.events():
                if isinstance(event, Seen | Approved) and event.subject is Subject.LAUNCH:
                    self._named.add(event.hash)
                elif isinstance(event, Ended):
                    self._end(event)
                elif isinstance(event, Checkpoint):
                    entries = self.book(_book_of(event)).entries.values()
                    launches = [entry.items[_LAUNCH] for entry in entries if _LAUNCH in entry.items]
                    self._named.update(form for item in launches for form in (item.seen, item.approved))
        for source in sources:
            for document in source.documents():
                if document.hash in self._named and (body := self._redact_launch(document.body)) != document.body:
                    self._renamed[document.hash] = hash_of(body)

    def document(self, document: StoredDocument) -> StoredDocument:
        """A document in its new form."""
        if document.hash not in self._renamed:
            return document
        return StoredDocument(document.seq, self._renamed[document.hash], self._redact_launch(document.body))

    def head_of(self, source: _Source, start: Head) -> Head:
        """Where a source ends when it begins at `start`."""
        head = start
        for row, _ in self._rows(source, start):
            head = Head(row.seq, row.hash.hex())
        return head

    def lines(self, source: _Source, start: Head, head: Head) -> Iterator[bytes]:
        """The source as an archive."""
        return json_lines.write(start, head, self._rows(source, start), map(self.document, source.documents()))

    def book(self, book: Book) -> Book:
        """A book that names documents by their new hashes; changed in place."""
        for entry in book.entries.values():
            if (item := entry.items.get(_LAUNCH)) is not None:
                item.seen = self._renamed.get(item.seen, item.seen)
                item.approved = self._renamed.get(item.approved, item.approved)
            if entry.last_end is not None:
                entry.last_end = self._end(entry.last_end)
        return book

    def _rows(self, source: _Source, start: Head) -> Iterator[tuple[ChainRow, LedgerEvent]]:
        digest = start.digest
        for row, event in source.events():
            changed = self._event(event, start)
            body = row.body if changed is event else encode_json(changed)
            digest = row_hash(digest, row.seq, row.at, body)
            yield ChainRow(row.seq, row.at, body, digest), changed

    def _event(self, event: LedgerEvent, start: Head) -> LedgerEvent:
        match event:
            case Seen(subject=Subject.LAUNCH) | Approved(subject=Subject.LAUNCH) if event.hash in self._renamed:
                return msgspec.structs.replace(event, hash=self._renamed[event.hash])
            case Ended():
                return self._end(event)
            case Checkpoint():
                found = _book_of(event)
                state = bytes(found.to_state())
                new = self.book(found).to_state()
                if bytes(new) == state and event.head == start.hash:
                    return event
                return msgspec.structs.replace(event, head=start.hash, state=new)
            case _:
                return event

    def _end(self, event: Ended) -> Ended:
        message = self._redact_message(event.message)
        if message == event.message:
            return event
        self._ended.add(event.message)
        return msgspec.structs.replace(event, message=message)


def _sources(store: LedgerStore) -> tuple[list[_Source], int]:
    """The parts of the chain, oldest first, and up to which event archives are not there."""
    found: list[_Source] = []
    missing = 0
    start, head = store.start, store.head
    try:
        for path, begin in archive.segments(store.directory, start):
            end = found[-1].start if found else start
            found.append(_archived(path, begin, end))
    except ArchivedError as error:
        missing = error.seq
    found.reverse()

    def events() -> Iterator[tuple[ChainRow, LedgerEvent]]:
        with store.reading():
            yield from check(queries.rows(store.connection), start)

    return [*found, _Source(start, head, events, store.documents)], missing


def _archived(path: Path, start: Head, head: Head) -> _Source:
    def documents() -> Iterator[StoredDocument]:
        return (piece for piece in archive.archived_pieces(path) if isinstance(piece, StoredDocument))

    return _Source(start, head, partial(archive.events_in, path), documents, path)


def _beside(directory: Path, start: Head, head: Head) -> Path:
    """Where a part is archived anew: beside the file that it stands in for, until that is removed."""
    path = archive.archive_path(directory, start, head)
    first, _, last = path.name.rpartition("-")
    return path.with_name(f"{first}-{head.hash[:_HASH_DIGITS]}-{last}")


def _book_of(checkpoint: Checkpoint) -> Book:
    book = Book()
    book.apply_rows([(1, "", checkpoint)])
    return book


def _remove_replaced(store: LedgerStore) -> tuple[Path, ...]:
    """Remove archives that another one stands in for, of this run or of one that was killed, and old databases."""
    chain: dict[int, Path] = {}
    with suppress(ArchivedError):
        for path, begin in archive.segments(store.directory, store.start):
            chain[begin.count] = path
    folder = store.directory / ARCHIVE_NAME
    ends = {path: archive.ends_of(path) for path in folder.glob("events-*.jsonl")}
    replaced = [path for path, found in ends.items() if found is not None and chain.get(found[0].count, path) != path]
    gone = (*sorted(replaced), *sorted((store.directory / BACKUP_NAME).glob("ledger-schema-*.db")))
    try:
        for path in gone:
            path.unlink()
    except OSError as error:
        raise LedgerWriteError(f"the ledger is redacted, but a file still contains the secrets: {error}") from error
    return gone
