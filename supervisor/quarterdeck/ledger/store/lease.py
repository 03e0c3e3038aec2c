"""The ledger's one writing process, for as long as it lives.  Blocking.

    lock      flock'ed by that process; the kernel lets go when it dies
    holder    its description of itself, flock'ed by it too, before the file gets its name

So `holder` is believed only while the very process that wrote it is alive: a file that a killed one left is not locked.
Neither descriptor is inherited by programs that we start.
"""

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import msgspec

from quarterdeck.common.locks import acquire, read_told, tell
from quarterdeck.config.places.paths import UnsafePathError, make_private_dir
from quarterdeck.ledger.errors import LedgerError, UnsafeLedgerError, UnusableLedgerError
from quarterdeck.ledger.events.events import decode_json, encode_json

LOCK_NAME: Final = "lock"

DAEMON: Final = "daemon"
"""The command of the daemon, which no person types."""

HOLDER_NAME: Final = "holder"

_MAX_HOLDER_BYTES: Final = 64 * 1024
"""A dozen paths of the longest kind."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A process's description of itself: its configuration's digest, its command, and where its control socket is.

    The daemon's command is `DAEMON`; `url` is where it serves HTTP, None for stdio alone.
    """

    pid: int
    digest: str
    config_paths: tuple[str, ...] = ()
    command: str = ""
    runtime_directory: str = ""
    started_at: str = ""
    url: str | None = None

    def __str__(self) -> str:
        if self.command == DAEMON:
            return f"the daemon (process {self.pid})"
        return f"quarterdeck {self.command} (process {self.pid})" if self.command else f"process {self.pid}"

    @property
    def ending(self) -> str:
        """How to end it, in the imperative."""
        return "end it with `quarterdeck down`" if self.command == DAEMON else "end it first"


class LeaseHeldError(LedgerError):
    """Another process writes this ledger; `holder` is its description, None while it has none yet."""

    def __init__(self, directory: Path, holder: Holder | None, wanted: Holder) -> None:
        super().__init__(_held_message(directory, holder, wanted))
        self.holder = holder


class Lease:
    """The right to write; a context manager, or `release` it."""

    def __init__(self, directory: Path, lock: int) -> None:
        self._directory = directory
        self._lock = lock
        self._told = -1

    def update(self, holder: Holder) -> None:
        """Replace the description of this process.  Raises `OSError`, with the old one still there."""
        told = tell(self._directory / HOLDER_NAME, encode_json(holder))
        if self._told >= 0:
            os.close(self._told)
        self._told = told

    def release(self) -> None:
        """Give up the lease.  Repeatable."""
        if self._lock < 0:
            return
        if self._told >= 0:
            with suppress(OSError):
                os.unlink(self._directory / HOLDER_NAME)
            os.close(self._told)
        os.close(self._lock)
        self._told = self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def take_lease(
    directory: Path, holder: Holder, *, wait_s: float = 0.0, given_up: threading.Event | None = None
) -> Lease:
    """Take the lease of the ledger in `directory`, which is made if missing.

    Waits for another writer, `wait_s` at most, and until `given_up` is set.  Raises `LeaseHeldError` if another still
    holds it, `LedgerError` if the directory cannot be used.
    """
    try:
        make_private_dir(directory)
        lock = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except UnsafePathError as error:
        raise UnsafeLedgerError(str(error)) from error
    except OSError as error:
        raise UnusableLedgerError(directory, error.strerror or str(error)) from error
    lease = Lease(directory, lock)
    try:
        if not acquire(lock, wait_s, given_up=given_up):
            raise LeaseHeldError(directory, read_holder(directory), holder)
        lease.update(holder)
    except OSError as error:
        lease.release()
        raise UnusableLedgerError(directory, error.strerror or str(error)) from error
    except BaseException:
        lease.release()
        raise
    return lease


def read_holder(directory: Path) -> Holder | None:
    """Return the description of the process that holds the lease now; None without either."""
    said = read_told(directory / HOLDER_NAME, _MAX_HOLDER_BYTES)
    try:
        return decode_json(said, Holder) if said is not None else None
    except msgspec.MsgspecError:
        return None


def _held_message(directory: Path, holder: Holder | None, wanted: Holder) -> str:
    if holder is None:
        return f"another Quarterdeck starts or ends in {directory}: try again, or name another with --state-dir"
    if not wanted.digest or holder.command == DAEMON:
        return f"{holder} writes the ledger in {directory}: {holder.ending}, or name another directory with --state-dir"
    if holder.digest != wanted.digest:
        return f"{holder} uses {directory} for another configuration: name another directory with --state-dir"
    where = f" at {holder.url}" if holder.url else ""
    return f"{holder} runs this configuration already{where}: join it, or {holder.ending}"
