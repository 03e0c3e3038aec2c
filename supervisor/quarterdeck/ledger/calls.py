"""What was called, how it ended and what it cost: a table beside the chain, not chained, and rotated.  Blocking."""

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

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
