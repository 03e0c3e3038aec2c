"""A checkpoint store's directory: contents by digest, and the index that names them.  Blocking; used from threads.

    lock             flock'ed for every step, since a session and a command may both be at work
    index.jsonl      appended and synced; replaced whole when it has become mostly void
    blobs/<sha256>   a content, synced before the index names it

A process may be killed between any two steps: what the index names is whole, what it does not name is swept at the
next opening, and half a line is cut off.
"""

import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from quarterdeck.config.paths import make_private_dir

from .checkpoint_index import CheckpointIndex, Kept, Line, Start, encode, parse

LOCK_S: Final = 10.0
"""How long another process may hold the lock; its steps take milliseconds."""

LOCK_POLL_S: Final = 0.005

MAX_DEAD_LINES: Final = 2_000
"""Some hundred KiB; then the index is written anew."""

_logger = logging.getLogger("quarterdeck.deck")


class DamagedBlobError(OSError):
    """A kept content is missing, or is not what was kept."""


class CheckpointDisk:
    """One store's files; every method but `read_blob` belongs inside `locked`."""

    def __init__(self, directory: Path, max_bytes: int, max_nodes: int) -> None:
        self._directory = directory
        self._index_path = directory / "index.jsonl"
        self._blobs = directory / "blobs"
        self._max_bytes = max_bytes
        self._max_nodes = max_nodes
        self._index = CheckpointIndex()
        self._seen: tuple[int, int, int] | None = None
        self._is_swept = False

    @contextmanager
    def locked(self, *, create: bool = True) -> Iterator[CheckpointIndex]:
        """The index of this moment, while no other process changes it.

        Args:
            create: make the directory when there is none; else the index is empty, and nothing may be appended.

        Raises:
            OSError: the directory cannot be used, or stays locked.
            UnsafePathError: others may use the directory.
        """
        if not create and not self._directory.is_dir():
            yield CheckpointIndex()
            return
        make_private_dir(self._directory)
        make_private_dir(self._blobs)
        descriptor = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _lock(descriptor, self._directory)
            self._refresh()
            yield self._index
        finally:
            os.close(descriptor)

    def append(self, lines: Iterable[Line]) -> None:
        """Add lines to file and index.

        Raises:
            OSError: they could not be written; then none counts.
        """
        lines = list(lines)
        is_new = self._seen is None
        data = b"".join(map(encode, [Start(1, 1), *lines] if is_new else lines))
        descriptor = os.open(self._index_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._seen = None  # until the whole is written, what the file holds is unknown
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
            seen = _identity(os.fstat(descriptor))
        finally:
            os.close(descriptor)
        if is_new:
            _sync_directory(self._directory)
        for line in lines:
            self._index.apply(line)
        self._seen = seen

    def tidy(self) -> None:
        """Drop the oldest nodes where a bound is exceeded, and write the index anew where much of it is void."""
        if self._index.make_room(self._max_bytes, self._max_nodes) or self._index.dead_lines > MAX_DEAD_LINES:
            self._replace(self._index_path, b"".join(map(encode, self._index.lines())))
            self._index.dead_lines = 0
            self._seen = _identity(self._index_path.stat())
            self.sweep()

    def write_blob(self, data: bytes) -> str:
        """Keep `data`; its digest."""
        digest = hashlib.sha256(data).hexdigest()
        path = self._blobs / digest
        try:
            if path.stat().st_size == len(data):
                return digest
        except FileNotFoundError:
            pass
        self._replace(path, data)
        return digest

    def read_blob(self, kept: Kept) -> bytes:
        """A kept content.

        Raises:
            DamagedBlobError: it is not there, or is another.
        """
        try:
            with open(self._blobs / kept.digest, "rb") as file:
                data = file.read(kept.size + 1)
        except OSError as error:
            raise DamagedBlobError(f"what was kept of it cannot be read: {error.strerror}") from error
        if hashlib.sha256(data).hexdigest() != kept.digest:
            raise DamagedBlobError("what was kept of it is damaged")
        return data

    def sweep(self, names: Iterable[str] | None = None) -> None:
        """Remove the contents, those of `names` or all, that the index does not name."""
        for name in os.listdir(self._blobs) if names is None else names:
            if not self._index.uses(name):
                (self._blobs / name).unlink(missing_ok=True)

    def _refresh(self) -> None:
        """Read the index again when another process has changed it."""
        try:
            seen = _identity(self._index_path.stat())
        except FileNotFoundError:
            self._index, self._seen = CheckpointIndex(), None
            return
        if seen != self._seen:
            self._index, length, damaged = parse(self._index_path.read_bytes())
            if damaged:
                _logger.warning("%s: %d lines cannot be read and are left out", self._index_path, damaged)
            if length < seen[1]:
                os.truncate(self._index_path, length)
                seen = _identity(self._index_path.stat())
            self._seen = seen if length else None
        if not self._is_swept:
            self.sweep()
            self._is_swept = True

    def _replace(self, path: Path, data: bytes) -> None:
        """Write a file of ours whole or not at all; the name of the half-done one is free, for the lock is held."""
        draft = path.with_name(path.name + ".new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
            os.replace(draft, path)
        except BaseException:
            # On a full disk it would take the room that the user's own file needs.
            with suppress(OSError):
                os.unlink(draft)
            raise
        finally:
            os.close(descriptor)
        _sync_directory(path.parent)


def _lock(descriptor: int, directory: Path) -> None:
    deadline = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"another process has held {directory / 'lock'} for {LOCK_S:g} s") from None
        time.sleep(LOCK_POLL_S)


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
