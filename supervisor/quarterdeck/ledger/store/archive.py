"""Events that were compacted away, in files of the format of module `json_lines`.  Blocking.

    archive/events-<first>-<last>.jsonl             the numbers, ten digits each
    archive/events-<first>-<head>-<last>.jsonl      one that was written anew to take secrets out of it

Each file begins where an older one ends, so that from a checkpoint the whole story can be followed back.  A file may be
put elsewhere: what needs it then raises an `ArchivedError`, and nothing else suffers.  A damaged one raises a
`LedgerError`.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import chain, takewhile
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from quarterdeck.common.file_changes import replacing
from quarterdeck.ledger.errors import ArchivedError, CorruptLedgerError, LedgerError, TransferError, UnusableLedgerError
from quarterdeck.ledger.events.chain import ChainRow, Head, Verdict, Verification
from quarterdeck.ledger.events.events import LedgerEvent, Stored
from quarterdeck.ledger.events.fold import Book
from quarterdeck.ledger.events.json_lines import MAX_LINE_BYTES, Piece, StoredDocument, read, read_header

from .queries import Selection

ARCHIVE_NAME: Final = "archive"


def archive_path(directory: Path, start: Head, head: Head) -> Path:
    """Where the events after `start` up to `head` are archived."""
    return directory / ARCHIVE_NAME / f"events-{start.count + 1:010}-{head.count:010}.jsonl"


def segments(directory: Path, head: Head) -> Iterator[tuple[Path, Head]]:
    """The files that lead back from `head`, newest first, each with where it begins.

    Raises:
        ArchivedError: the next one is not there.
    """
    while head.count:
        path, start = _segment(directory, head)
        yield path, start
        head = start


def archived_book(directory: Path, head: Head, when: int | str) -> Book:
    """What the events up to a number, or a time, amounted to, which are archived before `head`."""
    book = Book()
    for path, start in segments(directory, head):
        with closing(events_in(path)) as events:
            first, event = next(events)
            if start.count and (first.seq > when if isinstance(when, int) else first.at > when):
                continue
            wanted = chain([(first, event)], events)
            book.apply_rows((row.seq, row.at, event) for row, event in takewhile(_up_to(when), wanted))
            break
    return book


def select_archived(
    directory: Path, head: Head, selection: Selection, *, newest_first: bool = False
) -> Iterator[Stored]:
    """The events that are wanted of those that are archived before `head`."""
    files = segments(directory, head)
    for path, _ in files if newest_first else reversed(list(files)):
        with closing(events_in(path)) as events:
            stored = (Stored(row.seq, row.at, event) for row, event in events)
            wanted = filter(selection.matches, stored)
            yield from reversed(list(wanted)) if newest_first else wanted


def verify_archives(directory: Path, checked: Verification) -> Verification:
    """What was found of a ledger, with what is found of its archives, as far as they are there."""
    anchor, head, archived = checked.anchor, checked.start, 0
    try:
        for path, start in segments(directory, head):
            with closing(events_in(path)) as events:
                for row, _ in events:
                    archived += 1
                    if checked.verdict is Verdict.UNANCHORED and anchor == Head(row.seq, row.hash.hex()):
                        checked = replace(checked, verdict=Verdict.INTACT, reason="")
            head = start
    except ArchivedError as error:
        return replace(checked, archived=archived, missing_archives=error.seq)
    except LedgerError as error:
        return replace(checked, verdict=Verdict.BROKEN, archived=archived, reason=str(error))
    return replace(checked, archived=archived)


def archived_document(directory: Path, head: Head, digest: str) -> bytes | None:
    """A document of the archives that lead back from `head`, as far as they are there."""
    try:
        for path, _ in segments(directory, head):
            with closing(archived_pieces(path)) as found:
                for piece in found:
                    if isinstance(piece, StoredDocument) and piece.hash == digest:
                        return piece.body
    except ArchivedError:
        pass
    return None


def pieces(path: Path) -> Generator[Piece, None, None]:
    """All that a file holds.

    Raises:
        TransferError: it is damaged.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        yield from read(iter(lambda: file.readline(MAX_LINE_BYTES), b""))


def ends_of(path: Path) -> tuple[Head, Head] | None:
    """Where a file begins and ends, by its first line; None when it is no archive."""
    try:
        with open(path, "rb") as file:
            return read_header(file.readline(MAX_LINE_BYTES))
    except (OSError, TransferError):
        return None


def write_file(path: Path, lines: Iterator[bytes]) -> None:
    """Write a file whole or not at all, 0600; it is read again, found to be as it was written, and on the disk.

    Raises:
        TransferError: what was written is not what is read.
        OSError: it could not be written; what had its name before is still there.
    """
    with replacing(path, is_locked=True) as file:
        file.writelines(lines)
        file.flush()
        for _ in pieces(Path(file.name)):
            pass


def events_in(path: Path) -> Generator[tuple[ChainRow, LedgerEvent], None, None]:
    """The events of an archive."""
    for piece in archived_pieces(path):
        if not isinstance(piece, StoredDocument):
            yield piece


def archived_pieces(path: Path) -> Generator[Piece, None, None]:
    """All that an archive holds, its errors told as a ledger's."""
    try:
        yield from pieces(path)
    except TransferError as error:
        raise CorruptLedgerError(path, f"line {error.line}: {error.reason}") from error
    except OSError as error:
        raise UnusableLedgerError(path, error.strerror or str(error)) from error


def _up_to(when: int | str) -> Callable[[tuple[ChainRow, LedgerEvent]], bool]:
    if isinstance(when, int):
        return lambda found: found[0].seq <= when
    return lambda found: found[0].at <= when


def _segment(directory: Path, head: Head) -> tuple[Path, Head]:
    folder = directory / ARCHIVE_NAME
    for path in sorted(folder.glob(f"events-*-{head.count:010}.jsonl")):
        found = ends_of(path)
        if found is not None and found[1] == head and found[0].count < head.count:
            return path, found[0]
    raise ArchivedError(head.count, folder)
