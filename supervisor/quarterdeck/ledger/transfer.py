"""Export a ledger as JSON lines, and import it elsewhere; module `lines` tells the format.  Blocking."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from .archive import pieces
from .chain import Head
from .errors import FilledLedgerError
from .lines import read_header
from .reader import LedgerReader
from .store import LedgerStore
from .times import audit_time


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
