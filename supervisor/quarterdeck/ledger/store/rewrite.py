"""Fill a ledger from an export, write an export, and remove secrets from a ledger.  Blocking.

Redaction removes secrets that were recorded before they were recognised.  How servers are started, and how they ended,
is rewritten with the secrets hidden, and what is known of the faults of calls forgotten; nothing else changes but the
hashes.

    1. in one transaction: the events and documents that held secrets are replaced, and a `Redacted` event names the
       head before
    2. the head
    3. deleted pages and the WAL are overwritten

If it is killed during 1, the ledger is as before; between 1 and 2, `verify --accept` writes the head.  A second run
finishes the rest.  Heads that were written down before (in a `deck.lock`) no longer fit a redacted ledger.
"""

from collections.abc import Callable, Generator, Iterable
from pathlib import Path

import msgspec

from quarterdeck.common.file_changes import replacing
from quarterdeck.ledger.errors import FilledLedgerError
from quarterdeck.ledger.events.chain import Head
from quarterdeck.ledger.events.events import Approved, Ended, LedgerEvent, Seen, Subject, hash_of
from quarterdeck.ledger.events.json_lines import MAX_LINE_BYTES, Piece, StoredDocument, read

from .database import audit_time
from .store import LedgerStore


def import_ledger(source: Path, directory: Path, *, now: Callable[[], str] = audit_time) -> Head:
    """Fill the empty ledger in `directory`, whose lease the caller holds, with an export; return its head.

    The file is read twice, so that all of it is verified before anything is written.  On an error the ledger is as
    before: `TransferError` if it is damaged, or there are events already; `LedgerError` if the ledger cannot be used;
    `OSError` if the file cannot be read.
    """
    for _ in _pieces(source):
        pass
    with LedgerStore.open(directory, now=now) as store:
        if store.head.count or next(store.documents(), None):
            raise FilledLedgerError(directory)
        store.load(_pieces(source))
        return store.head


def write_export(path: Path, lines: Iterable[bytes]) -> None:
    """Write a file whole or not at all, 0600; it is read back, verified, and on the disk.  Raises `TransferError` if it
    differs from what was written, `OSError`, with the old file still there, if writing failed.
    """
    with replacing(path, is_locked=True) as file:
        file.writelines(lines)
        file.flush()
        for _ in _pieces(Path(file.name)):
            pass


def _pieces(path: Path) -> Generator[Piece, None, None]:
    with open(path, "rb") as file:
        yield from read(iter(lambda: file.readline(MAX_LINE_BYTES), b""))


class Redaction(msgspec.Struct, frozen=True):
    """The number of launch documents and of distinct end messages with something hidden, and the chain's head before
    and after.
    """

    launches: int
    messages: int
    before: Head
    head: Head


def redact(
    store: LedgerStore, redact_launch: Callable[[bytes], bytes], redact_message: Callable[[str], str]
) -> Redaction:
    """Hide secrets in all that the ledger, open for writing, holds, and leave nothing of them in its files.

    `redact_launch` returns the document of a launch, `redact_message` the message of an end, without secrets, or
    unchanged. Raises `BrokenChainError`, with nothing done, if an event is not what was written; `LedgerWriteError` if
    the ledger is as before, or, where the message says so, if its files may still hold what was hidden.
    """
    before = store.head
    launches, messages = set[str](), set[str]()
    for stored in store.events():
        match stored.event:
            case Seen(subject=Subject.LAUNCH, hash=digest) | Approved(subject=Subject.LAUNCH, hash=digest):
                launches.add(digest)
            case Ended(message=text) if redact_message(text) != text:
                messages.add(text)
    documents = dict[str, StoredDocument]()
    for document in store.documents():
        if document.hash in launches and (body := redact_launch(document.body)) != document.body:
            documents[document.hash] = StoredDocument(document.seq, hash_of(body), body)

    def change(event: LedgerEvent) -> LedgerEvent:
        match event:
            case Seen(subject=Subject.LAUNCH) | Approved(subject=Subject.LAUNCH) if event.hash in documents:
                return msgspec.structs.replace(event, hash=documents[event.hash].hash)
            case Ended() if event.message in messages:
                return msgspec.structs.replace(event, message=redact_message(event.message))
            case _:
                return event

    if documents or messages:
        store.rewrite(change, documents)
    store.forget_dossiers()
    store.sync()
    store.wipe()
    return Redaction(len(documents), len(messages), before, store.head)
