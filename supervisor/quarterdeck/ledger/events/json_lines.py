"""A ledger as JSON lines: a header, then events, each document before it is needed.  Pure.

    {"format":"quarterdeck-ledger","version":1,"quarterdeck":"0.1.0","head":"2 9f…"}
    {"document":"<its hash>","text":"…"}                    `base64` instead of `text` where it is not UTF-8
    {"seq":1,"at":"…","hash":"…","event":{…}}               the event to the byte: the hash is over it

Read and written line by line, in constant memory.
"""

from collections.abc import Iterable, Iterator
from itertools import chain as concatenated
from typing import Final

import msgspec

from quarterdeck.ledger.errors import TransferError
from quarterdeck_protocol.identity import CLIENT_VERSION

from .chain import BrokenRowError, ChainRow, Checker, Head
from .events import LedgerEvent

FORMAT: Final = "quarterdeck-ledger"
FORMAT_VERSION: Final = 1

MAX_LINE_BYTES: Final = 80 * 1024 * 1024
"""More than the largest event, or the largest document with every byte escaped, takes."""

_EVENT: Final = b',"event":'
"""Splits a line before the event's own bytes: a quote within a text is escaped, so no text before it holds this."""


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    format: str
    version: int
    quarterdeck: str
    head: str


class StoredDocument(msgspec.Struct, frozen=True):
    """A document and its hash; `seq` is the event before which it stands."""

    seq: int
    hash: str
    body: bytes


Piece = StoredDocument | tuple[ChainRow, LedgerEvent]


class _DocumentLine(msgspec.Struct, frozen=True, omit_defaults=True):
    document: str
    text: str = ""
    base64: bytes | None = None


class _EventLine(msgspec.Struct, frozen=True):
    seq: int
    at: str
    hash: str


def write(
    head: Head, rows: Iterable[tuple[ChainRow, LedgerEvent]], documents: Iterable[StoredDocument]
) -> Iterator[bytes]:
    """Yield the lines of these events, which end with `head`; documents in the order of their `seq`."""
    yield _line(_Header(format=FORMAT, version=FORMAT_VERSION, quarterdeck=CLIENT_VERSION, head=str(head)))
    waiting = iter(documents)
    document = next(waiting, None)
    for row, _ in rows:
        while document is not None and document.seq <= row.seq:
            yield _document_line(document)
            document = next(waiting, None)
        place = msgspec.json.encode(_EventLine(row.seq, row.at, row.hash.hex()))
        yield b"".join((place[:-1], _EVENT, row.body, b"}\n"))
    if document is not None:
        yield from map(_document_line, concatenated([document], waiting))


def _read_header(line: bytes) -> Head:
    try:
        header = _headers.decode(line)
        head = Head.parse(header.head)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        raise TransferError(1, "it is not an export of a ledger") from None
    if header.format != FORMAT:
        raise TransferError(1, "it is not an export of a ledger")
    if header.version != FORMAT_VERSION:
        raise TransferError(1, f"Quarterdeck {header.quarterdeck} wrote format {header.version}: update this one")
    return head


def read(lines: Iterable[bytes]) -> Iterator[Piece]:
    """Yield the events, each known to be what was written, and the documents.  Raises `TransferError` if a line is
    damaged or missing; what came before it is as it was written.
    """
    number = 0
    checker: Checker | None = None
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            raise TransferError(number, "it is cut off, or too long")
        if checker is None:
            head = _read_header(line)
            checker = Checker(Head())
            continue
        piece = _piece(number, line, checker.tip.count + 1)
        if isinstance(piece, StoredDocument):
            yield piece
            continue
        try:
            event = checker.take(piece)
        except BrokenRowError as error:
            raise TransferError(number, f"event {error.seq}: {error.reason}") from None
        yield piece, event
    if checker is None:
        raise TransferError(1, "it is empty")
    if checker.tip != head:
        raise TransferError(number, f"it ends with event {checker.tip.count}, and its first line names {head.count}")


def _piece(number: int, line: bytes, next_seq: int) -> ChainRow | StoredDocument:
    place, found, body = line.removesuffix(b"\n").partition(_EVENT)
    try:
        if found and body.endswith(b"}"):
            at = _event_lines.decode(place + b"}")
            return ChainRow(at.seq, at.at, body[:-1], bytes.fromhex(at.hash))
        document = _document_lines.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        raise TransferError(number, "it is neither an event nor a document") from None
    if document.base64 is None:
        return StoredDocument(next_seq, document.document, document.text.encode())
    return StoredDocument(next_seq, document.document, document.base64)


def _document_line(document: StoredDocument) -> bytes:
    try:
        return _line(_DocumentLine(document.hash, text=document.body.decode()))
    except UnicodeDecodeError:
        return _line(_DocumentLine(document.hash, base64=document.body))


def _line(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value) + b"\n"


_headers: Final = msgspec.json.Decoder(_Header)
_document_lines: Final = msgspec.json.Decoder(_DocumentLine)
_event_lines: Final = msgspec.json.Decoder(_EventLine)
