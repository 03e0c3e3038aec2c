"""The ledger's files: its database, made, recognised and opened, and the head beside it.  Blocking.

    <state>/ledger/    0700
    ledger.db      SQLite in WAL mode
    head           where the chain ends, kept apart from it: one line, `<count> <hash>`
    lock, holder   module `lease`
    backup/        heads that were given up

Its tables:

    events      the chain; the columns after `hash` repeat the body's members for lookups, and `verify` compares them
    documents   whole definitions and the like by their hash; `seq` is the first event of the append that brought it
    calls       past calls, by numbers that are never given again; neither chained nor kept for ever
    meta        `quarterdeck`: the version that made this schema; `looked_at`: when old calls were last looked for

The head is written after the events that it names are on the disk: it may lag behind and is never ahead.  A database is
examined through a read-only connection before a writable one is opened: SQLite tidies up whatever it opens for writing,
and a damaged one must stay as it is for its repair.  Errors are those of module `errors`; a foreign file in the place
of a ledger is left as it is.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from time import time_ns
from typing import Final

from quarterdeck.common.file_changes import replace_file, sync_directory
from quarterdeck.config.places.paths import UnsafePathError, make_private_dir, privacy_problem
from quarterdeck.ledger.errors import (
    CorruptLedgerError,
    ForeignFileError,
    LedgerWriteError,
    MissingHeadError,
    MissingLedgerError,
    NewerLedgerError,
    OlderLedgerError,
    TruncatedLedgerError,
    UnsafeLedgerError,
    UnusableLedgerError,
)
from quarterdeck.ledger.events.chain import Head
from quarterdeck_protocol.identity import CLIENT_VERSION

APPLICATION_ID: Final = 0x51644C67
"""`QdLg` in the file's header: tells our databases from other programs'."""

SCHEMA_VERSION: Final = 7
"""Earlier ones were never released."""

_SCHEMA: Final = """
CREATE TABLE events(
    seq INTEGER PRIMARY KEY, at TEXT NOT NULL, body BLOB NOT NULL, hash BLOB NOT NULL,
    kind TEXT NOT NULL, scope TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL
);
CREATE TABLE documents(hash TEXT PRIMARY KEY, seq INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE INDEX events_of_server ON events(server);
CREATE INDEX events_of_tool ON events(tool) WHERE tool <> '';
CREATE INDEX events_of_kind ON events(kind);
CREATE INDEX documents_by_seq ON documents(seq);
CREATE TABLE calls(
    number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, scope TEXT NOT NULL, server TEXT NOT NULL,
    tool TEXT NOT NULL, outcome TEXT NOT NULL, code TEXT NOT NULL, duration_ms REAL NOT NULL, bytes INTEGER NOT NULL,
    client TEXT NOT NULL, program TEXT NOT NULL, denied TEXT NOT NULL, queued_ms REAL NOT NULL, woke_ms REAL NOT NULL,
    delivery TEXT NOT NULL, seq INTEGER NOT NULL, dossier TEXT NOT NULL, upto INTEGER NOT NULL
);
CREATE INDEX calls_of_server ON calls(server);
CREATE INDEX calls_denied ON calls(scope, server) WHERE denied <> '';
"""

DATABASE_NAME: Final = "ledger.db"
BACKUP_NAME: Final = "backup"

BUSY_S: Final = 10.0
"""Seconds that a step of another process may lock us out; a large append takes one."""

PAGE_BYTES: Final = 8192
"""Holds two dozen events; larger pages are read no quicker."""

CACHE_KIB: Final = 16 * 1024
_MAGIC: Final = b"SQLite format 3\0"

_DAMAGE: Final = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
"""SQLite's codes for a damaged file; a plain error is a missing table."""


def open_for_reading(directory: Path) -> sqlite3.Connection:
    """Return a connection that changes nothing, alongside any writer."""
    path = directory / DATABASE_NAME
    try:
        is_there = path.is_symlink() or path.exists()
    except OSError as error:
        raise UnusableLedgerError(path, error.strerror or str(error)) from error
    if not is_there:
        raise MissingLedgerError(path)
    if problem := privacy_problem(directory):
        raise UnsafeLedgerError(f"{directory} {problem}")
    return _look(path)


def prepare(directory: Path) -> None:
    """Make the directory and its database if missing, and recognise the one that is there."""
    path = directory / DATABASE_NAME
    try:
        make_private_dir(directory)
        if not (path.is_symlink() or path.exists()):
            _require_nothing(directory)
            _create(path)
    except UnsafePathError as error:
        raise UnsafeLedgerError(str(error)) from error
    except (OSError, sqlite3.Error) as error:
        raise UnusableLedgerError(path, getattr(error, "strerror", None) or str(error)) from error
    _look(path).close()


def open_for_writing(directory: Path) -> sqlite3.Connection:
    """Return the writer's connection to a database that was prepared."""
    path = directory / DATABASE_NAME
    with reading(path), closed_on_failure(_connect(path, "rw")) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
        return connection


def audit_time() -> str:
    """Return now in ISO-8601 UTC with milliseconds and `Z`."""
    second, milliseconds = divmod(time_ns() // 1_000_000, 1000)
    return f"{_to_the_second(second)}.{milliseconds:03}Z"


@lru_cache(maxsize=4)
def _to_the_second(second: int) -> str:
    # Kept, since thousands of calls end within one second, and each is recorded with its time.
    return datetime.fromtimestamp(second, UTC).isoformat().removesuffix("+00:00")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into `CorruptLedgerError` for a damaged file, `UnusableLedgerError` for an
    unreachable one.
    """
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code is None or code & 0xFF in _DAMAGE or code == sqlite3.SQLITE_IOERR_SHORT_READ:
            raise CorruptLedgerError(path, str(error)) from error
        raise UnusableLedgerError(path, str(error)) from error
    except UnicodeDecodeError as error:
        # A name in a damaged schema, which the library fails to put into its own message.
        raise CorruptLedgerError(path, "its schema is not text") from error


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit all of the block, or nothing and raise `LedgerWriteError`."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            with suppress(sqlite3.Error):  # the error that led here is the one to tell
                connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.IntegrityError):
            raise LedgerWriteError(str(error), "another process wrote to it; end that one and restart this") from error
        if isinstance(error, sqlite3.Error):
            raise LedgerWriteError(str(error)) from error
        raise


@contextmanager
def closed_on_failure(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Close the connection if the block raises."""
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode if '=' in mode else f'mode={mode}'}",
        uri=True,
        timeout=BUSY_S,
        isolation_level=None,
        check_same_thread=False,
    )
    with closed_on_failure(connection):
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute("PRAGMA trusted_schema = OFF")
        return connection


def _look(path: Path) -> sqlite3.Connection:
    _require_database(path)
    with reading(path), closed_on_failure(_connect(path, _mode(path))) as connection:
        application: int = connection.execute("PRAGMA application_id").fetchone()[0]
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION_ID:
            raise ForeignFileError(path, "another program's database")
        if version > SCHEMA_VERSION:
            raise NewerLedgerError(path, version, SCHEMA_VERSION, _made_by(connection))
        if version < SCHEMA_VERSION:
            raise OlderLedgerError(path, version)
        return connection


def _made_by(connection: sqlite3.Connection) -> str:
    try:
        row = connection.execute("SELECT value FROM meta WHERE key = 'quarterdeck'").fetchone()
    except sqlite3.Error:
        return ""
    return str(row[0]) if row else ""


def _require_database(path: Path) -> None:
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise ForeignFileError(path, "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a regular file")
        with open(path, "rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise UnusableLedgerError(path, error.strerror or str(error)) from error
    if not magic:
        raise ForeignFileError(path, "an empty file")
    if magic != _MAGIC:
        raise ForeignFileError(path, "not a database, or its first bytes are damaged")


def _mode(path: Path) -> str:
    """Return how to read: where nothing can be written and nothing is pending, SQLite must do without its locks."""
    return "mode=ro" if _is_pending(path) or os.access(path.parent, os.W_OK) else "immutable=1"


def _is_pending(path: Path) -> bool:
    """Return whether there are events that are not in the database's own file yet."""
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def _require_nothing(directory: Path) -> None:
    """Check that a missing database never existed."""
    path = directory / DATABASE_NAME
    head = read_head(directory, 0)
    if head is not None and head.count:
        raise TruncatedLedgerError(0, head.count)
    if _is_pending(path):
        raise CorruptLedgerError(path, "it is gone, and its -wal file is there")


def _create(path: Path) -> None:
    """Make an empty one under another name first, so that no process sees half of it."""
    draft = path.with_name(f".{path.name}.new")
    _remove_draft(draft)
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with closing(_connect(draft, "rw")) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
            connection.execute("INSERT INTO meta VALUES('quarterdeck', ?)", (CLIENT_VERSION,))
        os.rename(draft, path)
    finally:
        _remove_draft(draft)
    sync_directory(path.parent)


def _remove_draft(draft: Path) -> None:
    for name in (draft.name, f"{draft.name}-wal", f"{draft.name}-shm"):
        with suppress(FileNotFoundError):
            os.unlink(draft.with_name(name))


HEAD_NAME: Final = "head"
_MAX_BYTES: Final = 1024


def read_head(directory: Path, count: int) -> Head | None:
    """Return the head that `directory` keeps; None without one.  Raises `MissingHeadError` for something else beside
    `count` events, `OSError` if it cannot be read.
    """
    path = directory / HEAD_NAME
    try:
        with open(path, "rb") as file:
            return Head.parse(file.read(_MAX_BYTES).decode("ascii"))
    except FileNotFoundError:
        return None
    except ValueError:
        raise MissingHeadError(path, count, "contains no head") from None


def write_head(directory: Path, head: Head) -> None:
    """Store `head` whole, and on the disk when this returns.  Raises `OSError`, with the old one still there."""
    replace_file(directory / HEAD_NAME, f"{head}\n".encode("ascii"), is_locked=True)
