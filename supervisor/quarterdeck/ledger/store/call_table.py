"""The table of calls: what was called, how it ended, what it cost.  Not chained, and rotated.

`CallLog` writes it in batches: no call waits for the disk, and a note that cannot be kept is dropped.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from time import time
from typing import Final, NamedTuple

import msgspec

from quarterdeck.ledger.errors import LedgerError
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.tools import CallEnd, WireResult

from .database import audit_time
from .migrations import column, text_of

MAX_CALLS: Final = 100_000
"""A busy day; some ten MiB.  The oldest make room."""

_PAGE: Final = 1_000


class CallRow(msgspec.Struct, frozen=True, gc=False):
    """One call.

    Attributes:
        at: when it ended, as events say it.
        outcome: how; `code` says why when it failed.
        bytes: of its answer.
    """

    at: str
    scope: str
    server: str
    tool: str
    outcome: str
    code: str = ""
    duration_ms: float = 0.0
    bytes: int = 0


def insert_calls(connection: sqlite3.Connection, rows: Iterable[CallRow], keep: int = MAX_CALLS) -> None:
    """Add calls and drop the oldest beyond `keep`, inside the caller's transaction."""
    connection.executemany(
        "INSERT INTO calls(at, scope, server, tool, outcome, code, duration_ms, bytes) VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (*map(column, (row.at, row.scope, row.server, row.tool, row.outcome, row.code)), row.duration_ms, row.bytes)
            for row in rows
        ],
    )
    connection.execute("DELETE FROM calls WHERE id <= (SELECT max(id) FROM calls) - ?", (keep,))


def select_calls(
    connection: sqlite3.Connection,
    *,
    scope: str | None = None,
    server: str | None = None,
    tool: str | None = None,
    since: str | None = None,
    limit: int | None = None,
) -> Iterator[CallRow]:
    """The calls that are wanted, the last one first."""
    return islice(_pages(connection, {"scope": scope, "server": server, "tool": tool}, since), limit)


def _pages(connection: sqlite3.Connection, texts: dict[str, str | None], since: str | None) -> Iterator[CallRow]:
    wanted = {name: column(text) for name, text in texts.items() if text is not None}
    conditions = "".join(f" AND {name} = ?" for name in wanted) + (" AND at >= ?" if since is not None else "")
    values = [*wanted.values(), *([since] if since is not None else [])]
    statement = (
        "SELECT id, at, scope, server, tool, outcome, code, duration_ms, bytes FROM calls"  # noqa: S608  # names are ours
        f" WHERE id < ?{conditions} ORDER BY id DESC LIMIT {_PAGE}"
    )
    before = 2**62
    while page := connection.execute(statement, (before, *values)).fetchall():
        for _, *row, duration_ms, size in page:
            at, scope, server, tool, outcome, code = map(text_of, row)
            yield CallRow(at, scope, server, tool, outcome, code, duration_ms, size)
        before = page[-1][0]


FLUSH_S: Final = 1.0
"""How long a note waits for others."""

MAX_WAITING: Final = 20_000
"""Notes that wait for the disk; with more, new ones are dropped and counted."""

_log = logging.getLogger("quarterdeck.ledger")


class _Note(NamedTuple):
    """A call as it is noted; made into a row where there is time."""

    at: float
    scope: str
    server: str
    tool: str
    outcome: str
    code: str
    duration_s: float
    size: int


class CallLog:
    """Notes of one process, from the event loop.

    Args:
        keep: takes the rows of a batch.
    """

    def __init__(self, keep: Callable[[Sequence[CallRow]], Awaitable[None]]) -> None:
        self._keep = keep
        self._notes: list[_Note] = []
        self._dropped = 0
        self._flushing: asyncio.Task[None] | None = None

    def note(self, scope: str, server: str, tool: str, duration_s: float, end: CallEnd | None) -> None:
        """A call has ended; `end` None when its caller gave up."""
        if len(self._notes) >= MAX_WAITING:
            self._dropped += 1
            return
        why = (end.code or str(end.kind)) if isinstance(end, ProtocolFault) else ""
        size = len(end.body) if isinstance(end, WireResult) else 0
        self._notes.append(_Note(time(), scope, server, tool, _outcome(end), why, duration_s, size))
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush_soon())

    async def close(self) -> None:
        """Keep what waits."""
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.gather(self._flushing, return_exceptions=True)
        await self._flush()

    async def _flush_soon(self) -> None:
        await asyncio.sleep(FLUSH_S)
        self._flushing = None
        await self._flush()

    async def _flush(self) -> None:
        notes, self._notes = self._notes, []
        if not notes:
            return
        try:
            await self._keep([_row(note) for note in notes])
        except LedgerError as error:
            _log.warning("%d calls were not recorded: %s", len(notes), error)
        if self._dropped:
            _log.warning("%d calls were not recorded: the disk is too slow", self._dropped)
            self._dropped = 0


def _outcome(end: CallEnd | None) -> str:
    if end is None:
        return "cancelled"
    if isinstance(end, ProtocolFault):
        return "fault"
    return "error" if end.is_error else "ok"


def _row(note: _Note) -> CallRow:
    return CallRow(audit_time(note.at), *note[1:6], round(note.duration_s * 1000, 3), note.size)
