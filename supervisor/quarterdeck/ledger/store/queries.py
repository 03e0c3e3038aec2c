"""Query the rows of the chain (in order, in part, folded) and of the table of calls.  Blocking.

Nothing keeps a statement open between two pages, so that a slow reader never holds the writer's files.  A damaged row
raises a `BrokenRowError`, an event that this version does not know a `BrokenChainError`.  Calls are not chained, and
rotated.
"""

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import merge
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from quarterdeck.ledger.errors import BrokenChainError
from quarterdeck.ledger.events.chain import BrokenRowError, ChainRow, Head
from quarterdeck.ledger.events.events import (
    LISTED,
    Approved,
    Blocked,
    Enrolled,
    Gone,
    LedgerEvent,
    Retired,
    Seen,
    Stored,
    decode_event,
    decode_events,
)
from quarterdeck.ledger.events.fold import Book

Column = str | bytes
"""A text; as bytes if a lone surrogate keeps SQLite from taking it as one."""


def lookups(event: LedgerEvent) -> tuple[str, Column, Column, Column]:
    """Return an event's columns for lookups: kind, scope, server and tool, or the name or URI of another
    listed thing.
    """
    tool = ""
    if isinstance(event, Enrolled | Retired):
        tool = event.tool
    elif isinstance(event, Seen | Gone | Approved | Blocked) and event.subject in LISTED:
        tool = event.name
    return type(event).__struct_config__.tag, column(event.scope), column(event.server), column(tool)  # type: ignore[return-value]  # a str, as each class says


def column(text: str) -> Column:
    """Return a text as SQLite takes it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of events; None matches any.

    `kinds` are the events' tags (`approve`, `seen`, …); `since` and `until`, times as the ledger writes them, are
    included, `after_seq` is not.
    """

    scope: str | None = None
    server: str | None = None
    tool: str | None = None
    kinds: Collection[str] | None = None
    since: str | None = None
    until: str | None = None
    after_seq: int = 0


ALL: Final = Selection()

PAGE_ROWS: Final = 200
"""Fits a processor's cache, with its events: larger pages are read more slowly."""

_DAMAGED: Final = "its record is damaged"
_NO_BOUND: Final = 2**62


def tip(connection: sqlite3.Connection) -> tuple[Head, str]:
    """Return the end of the chain by its last row, and that one's time; empty without any."""
    row = connection.execute("SELECT seq, at, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    if row is None:
        return Head(), ""
    seq, at, digest = row
    if not (isinstance(at, str) and isinstance(digest, bytes)):
        raise BrokenRowError(seq, _DAMAGED)
    return Head(seq, digest.hex()), at


def head_at(connection: sqlite3.Connection, seq: int) -> Head:
    """Return the head as it was after event `seq`; 0 is before the first."""
    if seq <= 0:
        return Head()
    row = connection.execute("SELECT hash FROM events WHERE seq = ?", (seq,)).fetchone()
    if row is None or not isinstance(row[0], bytes):
        raise BrokenRowError(seq, _DAMAGED if row else "it is missing")
    return Head(seq, row[0].hex())


def rows(connection: sqlite3.Connection, after: int = 0, *, compare: bool = False) -> Iterator[ChainRow]:
    """Yield all rows beyond number `after`; with `compare`, check the columns for lookups against the body."""
    columns = "seq, at, body, hash" + (", kind, scope, server, tool" if compare else "")
    statement = f"SELECT {columns} FROM events WHERE seq > ? ORDER BY seq LIMIT {PAGE_ROWS}"  # noqa: S608  # ours
    while page := connection.execute(statement, (after,)).fetchall():
        for seq, at, body, digest, *found_by in page:
            if not (isinstance(at, str) and isinstance(body, bytes) and isinstance(digest, bytes)):
                raise BrokenRowError(seq, _DAMAGED)
            yield ChainRow(seq, at, body, digest)
            # Last, for what the taker finds tells more.
            if compare and not _is_found(body, tuple(found_by)):
                raise BrokenRowError(seq, "its index does not match its content")
        after = page[-1][0]


def fold(connection: sqlite3.Connection, until: int | None = None) -> Book:
    """Return the book of all rows, or of those up to number `until`; a million of them in seconds."""
    book = Book()
    after = 0
    statement = f"SELECT seq, at, body FROM events WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT {PAGE_ROWS}"  # noqa: S608
    last = _NO_BOUND if until is None else until
    while page := connection.execute(statement, (after, last)).fetchall():
        seqs, times, bodies = zip(*page, strict=True)
        try:
            events = decode_events(bodies)
        except (msgspec.MsgspecError, TypeError):
            events = [decoded(seq, body) for seq, _, body in page]  # raises, and says which
        book.apply_rows(zip(seqs, times, events, strict=True))
        after = seqs[-1]
    return book


def select(connection: sqlite3.Connection, selection: Selection, *, newest_first: bool = False) -> Iterator[Stored]:
    """Yield the selected events, by whichever index finds them."""
    by_kind = selection.kinds is not None and selection.server is None and selection.tool is None
    kinds = sorted(set(selection.kinds or ()))
    streams = (
        [_pages(connection, selection, [kind], newest_first=newest_first) for kind in kinds]
        if by_kind
        else [_pages(connection, selection, None if selection.kinds is None else kinds, newest_first=newest_first)]
    )
    return merge(*streams, key=attrgetter("seq"), reverse=newest_first)


def seq_at(connection: sqlite3.Connection, at: str, *, before: bool = False) -> int:
    """Return the number of the last event not after `at`, or `before` it; 0 without one.

    Times never fall along the chain, so a binary search finds it.
    """
    low, high = 0, tip(connection)[0].count
    while low < high:
        middle = (low + high + 1) // 2
        row = connection.execute("SELECT at FROM events WHERE seq = ?", (middle,)).fetchone()
        if row is not None and (row[0] < at if before else row[0] <= at):
            low = middle
        else:
            high = middle - 1
    return low


def _pages(
    connection: sqlite3.Connection, selection: Selection, kinds: list[str] | None, *, newest_first: bool
) -> Iterator[Stored]:
    low, high = _bounds(connection, selection)
    conditions, values = _conditions(selection, kinds)
    order = "DESC" if newest_first else "ASC"
    statement = f"SELECT seq, at, body FROM events WHERE seq > ? AND seq <= ?{conditions} ORDER BY seq {order} LIMIT ?"  # noqa: S608
    size = 64  # mostly somebody looks at the first few
    while page := connection.execute(statement, (low, high, *values, size)).fetchall():
        yield from (Stored(seq, at, decoded(seq, body)) for seq, at, body in page)
        low, high = (low, page[-1][0] - 1) if newest_first else (page[-1][0], high)
        size = PAGE_ROWS


def _bounds(connection: sqlite3.Connection, selection: Selection) -> tuple[int, int]:
    low = selection.after_seq
    high = _NO_BOUND if selection.until is None else seq_at(connection, selection.until)
    if selection.since is not None:
        low = max(low, seq_at(connection, selection.since, before=True))
    return low, high


def _conditions(selection: Selection, kinds: list[str] | None) -> tuple[str, list[object]]:
    """Return the WHERE clause; its plus keeps SQLite from an index that would sort everything for each page."""
    text, values = "", list[object]()
    is_found = selection.server is not None or selection.tool is not None
    if selection.tool is not None:
        text, values = text + " AND tool = ? AND tool <> ''", [*values, column(selection.tool)]
    if selection.server is not None:
        plus = "+" if selection.tool is not None else ""
        text, values = text + f" AND {plus}server = ?", [*values, column(selection.server)]
    if selection.scope is not None:
        text, values = text + " AND scope = ?", [*values, column(selection.scope)]
    if kinds is not None:
        name = "+kind" if is_found else "kind"
        text, values = text + f" AND {name} IN ({', '.join('?' * len(kinds))})", [*values, *kinds]
    return text, values


def decoded(seq: int, body: bytes) -> LedgerEvent:
    """Return the event of a row's body.  Raises `BrokenChainError` if it is none that this version knows."""
    try:
        return decode_event(body)
    except (msgspec.MsgspecError, TypeError):
        raise BrokenChainError(seq, "it is not an event that this version knows") from None


def _is_found(body: bytes, found_by: tuple[object, ...]) -> bool:
    try:
        return lookups(decode_event(body)) == found_by
    except msgspec.MsgspecError:
        return True  # the chain's own check tells it better


MAX_CALLS: Final = 100_000
"""A busy day; some ten MiB."""

MAX_DENIALS: Final = 1_000
"""Of one server; it may name what it likes.  The calls before keep all but the path."""

_CALLS: Final = 1_000


class Retention(msgspec.Struct, frozen=True):
    """Which calls are kept: the newest so many, those of the last so many days, of so many bytes in all."""

    calls: int | None = MAX_CALLS
    days: int | None = None
    bytes: int | None = None


KEEP_LAST: Final = Retention()
KEEP_ALL: Final = Retention(calls=None)


class CallRow(msgspec.Struct, frozen=True, gc=False):
    """One call: when it ended, how, and the size of its answer.

    Attributes:
        client: the caller's name, empty with one client alone.
        program: the unverified name that it gave itself.
        denied: `read` or `write` and the path that the sandbox denied; empty for none.
        queued_ms: how long it waited for its turn.
        woke_ms: how long it waited for its server to start.
        delivery: whether its server got it, of a fault; see `Delivery`.
        seq: the number of the ledger's last event when it ended.
        dossier: of a fault, what is known about it, as JSON; see `dossier`.
        number: None before it is recorded.
    """

    at: str
    scope: str
    server: str
    tool: str
    outcome: str
    code: str = ""
    duration_ms: float = 0.0
    bytes: int = 0
    client: str = ""
    program: str = ""
    denied: str = ""
    queued_ms: float = 0.0
    woke_ms: float = 0.0
    delivery: str = ""
    seq: int = 0
    dossier: str = ""
    number: int | None = None


_CALL_COLUMNS: Final = ", ".join(CallRow.__struct_fields__)

_ROWS: Final = 50
"""Calls in one statement: of each, the thread that writes takes the interpreter's lock from the loop anew."""

_ROW_BYTES: Final = 100
"""What a row and its entries in indexes take beside its texts."""


def insert_calls(connection: sqlite3.Connection, rows: Sequence[CallRow], keep: Retention = KEEP_ALL) -> None:
    """Add calls and drop the oldest beyond what to `keep` in number and bytes, inside the caller's transaction.

    The column `upto` sums up the bytes of all rows to its own.
    """
    last = connection.execute("SELECT upto FROM calls ORDER BY number DESC LIMIT 1").fetchone()
    upto = last[0] if last is not None else 0
    places = "(" + ", ".join("?" * (len(CallRow.__struct_fields__) + 1)) + ")"
    for at in range(0, len(rows), _ROWS):
        some, values = rows[at : at + _ROWS], list[object]()
        for row in some:
            texts = row.scope, row.server, row.tool, row.client, row.program, row.denied, row.dossier
            upto += _ROW_BYTES + sum(map(len, texts))
            values += astuple(row)
            values.append(upto)
        statement = f"INSERT INTO calls({_CALL_COLUMNS}, upto) VALUES {', '.join([places] * len(some))}"  # noqa: S608
        try:
            connection.execute(statement, values)
        except UnicodeEncodeError:
            connection.execute(statement, [column(value) if isinstance(value, str) else value for value in values])
    if keep.calls is not None:
        connection.execute("DELETE FROM calls WHERE number <= (SELECT max(number) FROM calls) - ?", (keep.calls,))
    if keep.bytes is not None:
        connection.execute(_FORGET_BYTES, (upto - keep.bytes,))
    for server in {(column(row.scope), column(row.server)) for row in rows if row.denied}:
        connection.execute(_FORGET_DENIALS, (*server, MAX_DENIALS))


_FORGET_BYTES: Final = """
DELETE FROM calls WHERE number < (SELECT number FROM calls WHERE upto > ? ORDER BY number LIMIT 1)
"""

_FORGET_DENIALS: Final = """
UPDATE calls SET denied = '' WHERE denied <> '' AND scope = ?1 AND server = ?2 AND number <= (
    SELECT number FROM calls WHERE denied <> '' AND scope = ?1 AND server = ?2 ORDER BY number DESC LIMIT 1 OFFSET ?3
)
"""


def forget_days(connection: sqlite3.Connection, days: int, now: str) -> None:
    """Drop calls that are older than so many days both `now` and at the look before, inside the caller's transaction.

    A clock that is wrong for one look deletes nothing.
    """
    row = connection.execute("SELECT value FROM meta WHERE key = 'looked_at'").fetchone()
    connection.execute("INSERT OR REPLACE INTO meta VALUES('looked_at', ?)", (now,))
    if row is not None:
        oldest = datetime.fromisoformat(min(now, row[0])) - timedelta(days)
        connection.execute("DELETE FROM calls WHERE at < ?", (oldest.isoformat(),))


def select_calls(
    connection: sqlite3.Connection,
    texts: Mapping[str, str | None],
    since: str | None,
    *,
    is_denied: bool = False,
    after: int | None = None,
) -> Iterator[CallRow]:
    """Yield the calls with these column values, not before `since`; None matches any.

    The latest are first, but with `after` those beyond that number in their order.  A client is matched by its name,
    and by the name that it gave itself; `is_denied` selects those with a denied path.
    """
    wanted = {name: column(text) for name, text in texts.items() if text is not None}
    clients = " AND ? IN (client, nullif(program, ''))"
    conditions = "".join(clients if name == "client" else f" AND {name} = ?" for name in wanted)
    conditions += " AND at >= ?" if since is not None else ""
    conditions += " AND denied <> ''" if is_denied else ""
    values = [*wanted.values(), *([since] if since is not None else [])]
    beyond, order, last = ("<", "DESC", _NO_BOUND) if after is None else (">", "ASC", after)
    order += f" LIMIT {_CALLS}"
    statement = f"SELECT {_CALL_COLUMNS} FROM calls WHERE number {beyond} ?{conditions} ORDER BY number {order}"  # noqa: S608
    while page := connection.execute(statement, (last, *values)).fetchall():
        for row in page:
            read: list[Any] = [
                value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value for value in row
            ]
            yield CallRow(*read)
        last = page[-1][-1]
