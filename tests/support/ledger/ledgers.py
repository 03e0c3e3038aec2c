"""Ledgers to try things on: events of every kind, a clock that is set, stores in a directory of the test."""

from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Final

from hypothesis import strategies as st

from quarterdeck.ledger.events.chain import ChainRow, Head, link
from quarterdeck.ledger.events.events import (
    Approved,
    Authority,
    Began,
    Blocked,
    Ended,
    Enrolled,
    Gone,
    LedgerEvent,
    Retired,
    Scanned,
    Sealed,
    Seen,
    Subject,
    encode_json,
)
from quarterdeck.ledger.events.fold import Book
from quarterdeck.ledger.store.store import LedgerStore

AT: Final = "2026-01-02T03:04:05.678Z"

SCOPE: Final = "/home/u/.config/mcp.json"

NAMES: Final = st.sampled_from(["a", "b", "ä\udcff", '",\\u0000\x00', "\ud83d"]) | st.text(max_size=3)
"""What a server may call a tool: quotes, a NUL, half a character."""

WHERE: Final = {
    "scope": st.sampled_from([SCOPE, "/w/mcp\udcff.json"]),
    "server": st.sampled_from(["fs", "web", "x\udc80"]),
}
HASHES: Final = st.sampled_from([sha256(bytes([number])).hexdigest() for number in range(6)])
KEYS: Final = st.sampled_from([f"bk_{number}" for number in range(5)])
SUBJECTS: Final = st.sampled_from(list(Subject))

EVENTS: Final[st.SearchStrategy[LedgerEvent]] = st.one_of(
    st.builds(Enrolled, **WHERE, key=KEYS, tool=NAMES, definition=HASHES),
    st.builds(Retired, **WHERE, key=KEYS),
    st.builds(Seen, **WHERE, subject=SUBJECTS, hash=HASHES, name=NAMES),
    st.builds(Gone, **WHERE, subject=SUBJECTS, name=NAMES),
    st.builds(Approved, **WHERE, subject=SUBJECTS, hash=HASHES, name=NAMES, by=st.sampled_from(list(Authority))),
    st.builds(Blocked, **WHERE, subject=SUBJECTS, name=NAMES),
    st.builds(
        Scanned,
        **WHERE,
        hash=HASHES,
        version=st.integers(1, 3),
        findings=st.lists(st.tuples(NAMES, NAMES), max_size=2).map(tuple),
    ),
    st.builds(
        Sealed,
        **WHERE,
        words=NAMES,
        seal=HASHES,
        package=NAMES,
        version=NAMES,
        lock=HASHES,
        by=st.sampled_from(list(Authority)),
    ),
    st.builds(Began, **WHERE, pid=st.none() | st.integers(1, 9), program=NAMES),
    st.builds(Ended, **WHERE, code=st.just("exited"), message=NAMES),
)
"""Any event that a fleet can bring about."""


class Clock:
    """A clock that is set; see `__call__`."""

    def __init__(self, *times: str) -> None:
        self.times: Final = list(times)

    def __call__(self) -> str:
        return self.times.pop(0) if len(self.times) > 1 else self.times[0]


def opened(directory: Path, *times: str) -> LedgerStore:
    """The writer of the ledger in `directory`."""
    return LedgerStore.open(directory, now=Clock(*(times or (AT,))))


def enrolled(number: int, server: str = "fs") -> Enrolled:
    return Enrolled(
        scope=SCOPE,
        server=server,
        key=f"bk_{number}",
        tool=f"tool_{number}",
        definition=digest_of(f"document {number}"),
    )


def approved(number: int, server: str = "fs") -> Approved:
    return Approved(
        scope=SCOPE,
        server=server,
        subject=Subject.TOOL,
        hash=digest_of(f"document {number}"),
        by=Authority.PERSON,
        name=f"tool_{number}",
    )


def state_of(book: Book) -> object:
    return deepcopy(([*book.entries.items()], [*book.findings.items()]))


def digest_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def documents_of(*numbers: int) -> dict[str, bytes]:
    """The documents that `enrolled` names."""
    return {digest_of(f"document {number}"): f"document {number}".encode() for number in numbers}


def fill(store: LedgerStore, count: int) -> None:
    for first in range(0, count, 10):
        numbers = range(first, min(first + 10, count))
        store.append([enrolled(number) for number in numbers], documents_of(*numbers))


def rows_of(events: list[LedgerEvent], start: Head = Head()) -> list[ChainRow]:  # noqa: B008  # a value
    return list(link(start, AT, map(encode_json, events)))


def head_of(rows: list[ChainRow]) -> Head:
    return Head(rows[-1].seq, rows[-1].hash.hex()) if rows else Head()


def files_of(directory: Path) -> dict[str, bytes]:
    """What each file below a directory holds.

    Left out are SQLite's index of its WAL, which it may always make anew, and a WAL with nothing in it.
    """
    files = (path for path in sorted(directory.rglob("*")) if path.is_file() and not path.name.endswith("-shm"))
    held = {str(path.relative_to(directory)): path.read_bytes() for path in files}
    return {name: data for name, data in held.items() if data or not name.endswith("-wal")}
