"""A checkpoint store in a directory: contents by digest, and the index that names them.

    lock             flock'ed for every step, since a session and a command may both be at work
    index.jsonl      appended and synced; replaced whole when most of its lines are void
    blobs/<sha256>   a content, synced before the index names it

A process may be killed between any two steps: what the index names is whole, what it does not name is removed at the
next opening, and half a line is cut off.  A restore keeps what it overwrites as a node too, so that it can be undone;
it writes through an `Fs` only, so it cannot leave the roots that this has.
"""

import hashlib
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import anyio.to_thread

from quarterdeck.common.file_changes import replace_file, sync_directory
from quarterdeck.common.locks import acquire
from quarterdeck.config.places.paths import make_private_dir
from quarterdeck.tools.context import FileStat, Fs

from .card import MAX_FILE_BYTES, read_bounded
from .index import (
    Absent,
    CheckpointIndex,
    CheckpointNode,
    Forget,
    Gap,
    Kept,
    Line,
    Record,
    Start,
    encode,
    node_name,
    parse,
)
from .restore import PERMISSIONS, RestoredPath, Restorer

LOCK_S: Final = 10.0  # seconds that another process may hold the lock; its steps take milliseconds
MAX_DEAD_LINES: Final = 2_000  # some hundred KiB; then the index is rewritten

_logger = logging.getLogger("quarterdeck.deck")


class DamagedBlobError(OSError):
    """A kept content is missing or altered."""


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
        """Yield the current index, while no other process changes it; without `create` and a directory it is empty, and
        nothing may be appended. Raise `OSError` if the directory cannot be used, or stays locked, and `UnsafePathError`
        if other users may write to it.
        """
        if not create and not self._directory.is_dir():
            yield CheckpointIndex()
            return
        make_private_dir(self._directory)
        make_private_dir(self._blobs)
        descriptor = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if not acquire(descriptor, LOCK_S):
                raise TimeoutError(f"another process has held {self._directory / 'lock'} for {LOCK_S:g} s")
            self._refresh()
            yield self._index
        finally:
            os.close(descriptor)

    def append(self, lines: Iterable[Line]) -> None:
        """Append lines to file and index. Raise `OSError` if they could not be written; then none counts."""
        lines = list(lines)
        is_new = self._seen is None
        data = b"".join(map(encode, [Start(1, 1), *lines] if is_new else lines))
        descriptor = os.open(self._index_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._seen = None  # until the whole is written, what the file holds is unknown
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
            seen = _identity(os.fstat(descriptor))
        finally:
            os.close(descriptor)
        if is_new:
            sync_directory(self._directory)
        for line in lines:
            self._index.apply(line)
        self._seen = seen

    def tidy(self) -> None:
        """Drop the oldest nodes beyond the bounds, and rewrite the index where much of it is void."""
        if self._index.make_room(self._max_bytes, self._max_nodes) or self._index.dead_lines > MAX_DEAD_LINES:
            replace_file(self._index_path, b"".join(map(encode, self._index.lines())), is_locked=True)
            self._index.dead_lines = 0
            self._seen = _identity(self._index_path.stat())
            self.sweep()

    def write_blob(self, data: bytes) -> str:
        """Keep `data`. Return its digest."""
        digest = hashlib.sha256(data).hexdigest()
        path = self._blobs / digest
        try:
            if path.stat().st_size == len(data):
                return digest
        except FileNotFoundError:
            pass
        replace_file(path, data, is_locked=True)
        return digest

    def read_blob(self, kept: Kept) -> bytes:
        """Return a kept content. Raise `DamagedBlobError` if it is missing or altered."""
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
        """Reread the index if another process has changed it."""
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


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


MAX_TOTAL_BYTES: Final = 512 * 1024 * 1024  # of all contents of one session; the oldest nodes are dropped for room
MAX_NODES: Final = 10_000  # of one session; some megabytes of index
DEFAULT_NODE: Final = "session"  # the name of the node for records outside of any call
RESTORE_NODE: Final = "restore"


T = TypeVar("T")


@dataclass(slots=True)
class _Node:
    """A node; it has its name once something was recorded."""

    tool: str
    name: str | None = None


class FileCheckpointStore:
    """A `NodeStore` over one directory, made at the first record.

    Several stores, in several processes, may work on one directory at once.
    """

    def __init__(
        self,
        directory: Path,
        *,
        max_file_bytes: int = MAX_FILE_BYTES,
        max_total_bytes: int = MAX_TOTAL_BYTES,
        max_nodes: int = MAX_NODES,
    ) -> None:
        self._disk = CheckpointDisk(directory, max_total_bytes, max_nodes)
        self._max_file_bytes = max_file_bytes
        self._current = _Node(DEFAULT_NODE)

    def begin_node(self, name: str) -> _Node:
        """Begin the node `<number>-<name>`; the next records belong to it."""
        self._current = _Node(name)
        return self._current

    async def record(self, path: str, previous: bytes | None) -> None:
        """See `CheckpointStore.record`; of a file that is too large only a gap is recorded.

        Raise `OSError` if it cannot be kept, `UnsafePathError` if other users may write to the directory.
        """
        node = self._current
        await anyio.to_thread.run_sync(lambda: self._record(node, path, previous, is_last=True))

    async def record_gap(self, path: str, reason: str) -> None:
        """See `NodeStore.record_gap`."""
        node = self._current
        await anyio.to_thread.run_sync(lambda: self._record(node, path, reason, is_last=True))

    async def forget(self, node: object) -> None:
        """See `NodeStore.forget`."""
        if isinstance(node, _Node) and node.name is not None:
            name = node.name
            await anyio.to_thread.run_sync(lambda: self._forget(name))

    async def nodes(self) -> list[CheckpointNode]:
        """Return all nodes, oldest first. Raise `OSError` or `UnsafePathError` if the directory cannot be used."""
        return await anyio.to_thread.run_sync(lambda: self._read(CheckpointIndex.nodes))

    async def restore(self, node: str, fs: Fs) -> list[RestoredPath]:
        """Restore every file that `node` or a later one was about to change to its state before them all. Raise
        `UnknownNodeError`, `OSError` if the store cannot be read, `UnsafePathError` if other users may write to it.

        Each file is restored whole or not at all, and reported. A file too large to be kept for an undo of this is left
        as it is. Repeating it after an interruption does the rest. Files that a node made are deleted, directories that
        it made are not.
        """
        plan = await anyio.to_thread.run_sync(lambda: self._read(lambda index: index.plan(node)))
        undo = _Node(RESTORE_NODE)

        async def keep(path: str, present: FileStat | None) -> None:
            content = await read_bounded(path, fs, self._max_file_bytes) if present is not None else None
            if present is not None and content is None:
                most = f"{self._max_file_bytes:,} bytes"
                raise OSError(f"it holds more than {most} now, which could not be brought back: move it away")
            # Older nodes make room only at the end: they are what is being restored.
            await anyio.to_thread.run_sync(lambda: self._record(undo, path, content, is_last=False))

        async def content_of(kept: Kept) -> bytes:
            return await anyio.to_thread.run_sync(lambda: self._disk.read_blob(kept))

        restorer = Restorer(fs, content_of, keep)
        # Deletions first: a file may have to come back where a directory of new ones stands.
        order = sorted(plan, key=lambda record: not isinstance(record, Absent))
        done = [await restorer.bring_back(record) for record in order]
        await anyio.to_thread.run_sync(self._tidy)
        return done

    def _record(self, node: _Node, path: str, previous: bytes | str | None, *, is_last: bool) -> None:
        """Record a content, None for no file, or in words why there is a gap; after the last older nodes make room."""
        if isinstance(previous, bytes) and len(previous) > self._max_file_bytes:
            previous = f"it was larger than {self._max_file_bytes:,} bytes"
        with self._disk.locked() as index:
            name = node.name or node_name(index.next_number, node.tool)
            if index.has(name, path):
                return
            at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            record: Record
            if previous is None:
                record = Absent(name, path, at)
            elif isinstance(previous, str):
                record = Gap(name, path, at, previous)
            else:
                record = Kept(name, path, at, self._disk.write_blob(previous), len(previous), *_mode_and_owner(path))
            self._disk.append([record])
            node.name = name
            if is_last:
                self._disk.tidy()

    def _forget(self, name: str) -> None:
        with self._disk.locked() as index:
            digests = index.digests(name)
            self._disk.append([Forget(name)])
            self._disk.sweep(digests)

    def _read(self, question: Callable[[CheckpointIndex], T]) -> T:
        with self._disk.locked(create=False) as index:
            return question(index)

    def _tidy(self) -> None:
        with self._disk.locked():
            self._disk.tidy()


def _mode_and_owner(path: str) -> tuple[int | None, int | None, int | None]:
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None, None, None
    if not stat.S_ISREG(status.st_mode):
        return None, None, None
    return status.st_mode & PERMISSIONS, status.st_uid, status.st_gid
