"""The schema of the ledger's database, as the steps that lead to it: a new one takes them all, an older one the rest.

events      the chain; the columns after `hash` repeat what the body says, for lookups, and `verify` compares them
documents   whole definitions and the like by their hash; `seq` is the first event of the append that brought it
calls       what was called; neither chained nor kept for ever
meta        `quarterdeck`: the version that made this schema
"""

import sqlite3
from collections.abc import Callable
from typing import Final

from quarterdeck.ledger.events.events import (
    LISTED,
    Approved,
    Blocked,
    Enrolled,
    Gone,
    LedgerEvent,
    Retired,
    Seen,
    decode_event,
)

APPLICATION_ID: Final = 0x51644C67
"""`QdLg` in the file's header: tells our databases from other programs'."""

Column = str | bytes
"""A text; as bytes when a lone surrogate keeps it from being one to SQLite."""

BATCH: Final = 5_000
"""Rows that are held at a time."""

_CHAIN: Final = """
CREATE TABLE events(seq INTEGER PRIMARY KEY, at TEXT NOT NULL, body BLOB NOT NULL, hash BLOB NOT NULL);
CREATE TABLE documents(hash TEXT PRIMARY KEY, seq INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""

_LOOKUPS: Final = """
ALTER TABLE events ADD COLUMN kind TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN scope TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN server TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN tool TEXT NOT NULL DEFAULT '';
CREATE INDEX events_of_server ON events(server);
CREATE INDEX events_of_tool ON events(tool) WHERE tool <> '';
CREATE INDEX events_of_kind ON events(kind);
CREATE INDEX documents_by_seq ON documents(seq);
CREATE TABLE calls(
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, scope TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL,
    outcome TEXT NOT NULL, code TEXT NOT NULL, duration_ms REAL NOT NULL, bytes INTEGER NOT NULL
);
CREATE INDEX calls_of_server ON calls(server);
"""


def make_chain(connection: sqlite3.Connection) -> None:
    """Nothing to version 0: the chain alone."""
    _run(connection, _CHAIN)


def add_lookups(connection: sqlite3.Connection) -> None:
    """Version 0 to 1: events are found by server, tool and kind; calls are recorded."""
    _run(connection, _LOOKUPS)
    done = 0
    while rows := connection.execute(
        "SELECT seq, body FROM events WHERE seq > ? ORDER BY seq LIMIT ?", (done, BATCH)
    ).fetchall():
        connection.executemany(
            "UPDATE events SET kind = ?, scope = ?, server = ?, tool = ? WHERE seq = ?",
            [(*lookups(decode_event(body)), seq) for seq, body in rows],
        )
        done = rows[-1][0]


def add_clients(connection: sqlite3.Connection) -> None:
    """Version 1 to 2: calls name their client."""
    _run(connection, "ALTER TABLE calls ADD COLUMN client TEXT NOT NULL DEFAULT ''")


def add_offers(connection: sqlite3.Connection) -> None:
    """Version 2 to 3: events may be of prompts, resources, templates and capabilities, which older readers refuse."""


def add_programs(connection: sqlite3.Connection) -> None:
    """Migrate version 3 to 4: add to calls the name by which their client introduced itself."""
    _run(connection, "ALTER TABLE calls ADD COLUMN program TEXT NOT NULL DEFAULT ''")


STEPS: Final[tuple[Callable[[sqlite3.Connection], None], ...]] = (add_lookups, add_clients, add_offers, add_programs)
"""Step N leads from version N to N + 1.  Each runs inside the caller's transaction."""

SCHEMA_VERSION: Final = len(STEPS)


def migrate(connection: sqlite3.Connection, version: int, made_by: str) -> None:
    """Take the steps from `version`, in one transaction: a failure or a crash leaves the old schema."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in STEPS[version:]:
            step(connection)
        connection.execute("INSERT OR REPLACE INTO meta VALUES('quarterdeck', ?)", (made_by,))
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def lookups(event: LedgerEvent) -> tuple[str, Column, Column, Column]:
    """What an event is found by: kind, scope, server and tool, or the name or URI of what else the server lists."""
    tool = ""
    if isinstance(event, Enrolled | Retired):
        tool = event.tool
    elif isinstance(event, Seen | Gone | Approved | Blocked) and event.subject in LISTED:
        tool = event.name
    return type(event).__struct_config__.tag, column(event.scope), column(event.server), column(tool)  # type: ignore[return-value]  # a str, as each class says


def column(text: str) -> Column:
    """A text as SQLite takes it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def text_of(value: Column) -> str:
    """The text of a column."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")


def _run(connection: sqlite3.Connection, script: str) -> None:
    # Not executescript, which commits the transaction that is open.
    for statement in script.split(";"):
        if statement.strip():
            connection.execute(statement)
