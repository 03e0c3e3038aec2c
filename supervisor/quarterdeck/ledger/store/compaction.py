"""Compact a ledger, and export or import one as JSON lines (module `json_lines`).  Blocking.

Compaction replaces old events by a checkpoint that stands for them:

    1. all events and documents into a file of `archive/`, read back and found to be as they were written
    2. in one transaction: the checkpoint in, all events before it out, documents that nothing names any more out
    3. the head

Killed before 2 is through, the ledger is as before, beside a file that nobody needs; after it, it is compacted.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from quarterdeck.config.places.paths import UnsafePathError, make_private_dir
from quarterdeck.ledger.errors import FilledLedgerError, LedgerWriteError, TransferError, UnsafeLedgerError
from quarterdeck.ledger.events.chain import Head
from quarterdeck.ledger.events.events import Checkpoint
from quarterdeck.ledger.events.json_lines import read_header
from quarterdeck.ledger.store.database import audit_time

from . import queries
from .archive import ARCHIVE_NAME, archive_path, pieces, write_file
from .reader import LedgerReader
from .store import LedgerStore


def export_ledger(ledger: LedgerReader, out: BinaryIO) -> Head:
    """Write all events that are not archived, and their documents, in constant memory; returns where they end.

    Raises:
        BrokenChainError: an event is not what was written.
        OSError: `out` took not all.
    """
    with closing(ledger.export()) as found:
        header = next(found)
        out.write(header)
        out.writelines(found)
    return read_header(header)[2]


def import_ledger(source: Path, directory: Path, *, now: Callable[[], str] = audit_time) -> Head:
    """Fill the empty ledger in `directory`, whose lease the caller holds, with an export; returns its head.

    The file is read twice, so that all of it is known to be as it was written before anything is.

    Raises:
        TransferError: it is not, or there are events already; the ledger is as before.
        LedgerError: the ledger cannot be used; it is as before.
        OSError: the file cannot be read.
    """
    for _ in pieces(source):
        pass
    with LedgerStore.open(directory, writable=True, now=now) as store:
        if store.head.count or next(store.documents(), None):
            raise FilledLedgerError(directory)
        store.load(pieces(source))
        return store.head


COMPACT_EVENTS: Final = 500_000
"""A start reads them in about two seconds; more, and it pays to archive them."""


@dataclass(frozen=True, slots=True)
class Compacted:
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
    path = archive_path(store.directory, start, head)
    try:
        make_private_dir(store.directory / ARCHIVE_NAME)
        with closing(store.export()) as found:
            write_file(path, found)
    except (OSError, TransferError) as error:
        raise LedgerWriteError(f"no archive could be made: {error}") from error
    except UnsafePathError as error:
        raise UnsafeLedgerError(str(error)) from error
    with store.reading():
        book = queries.fold(store.connection)  # not the store's, which may be read and changed in another thread
    checkpoint = Checkpoint(scope="", server="", count=head.count, head=head.hash, state=book.to_state())
    store.stand_for(checkpoint, book.documents())
    return Compacted(path, head.count - start.count, head)
