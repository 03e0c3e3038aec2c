"""A checkpoint store in files: every call of `write` and `edit` is a node that can be undone, with all after it.

It outlives the session, so that a person can undo later.  What a restore overwrites is kept as a node too: an undo can
be undone.  Restoring writes through an `Fs` only, so it cannot be led out of the roots that this has.
"""

import logging
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import anyio.to_thread

from quarterdeck.kernel.backends import Fs

from .checkpoint import MAX_FILE_BYTES, OpenNode, read_bounded
from .checkpoint_disk import CheckpointDisk
from .checkpoint_index import Absent, CheckpointIndex, CheckpointNode, Forget, Gap, Kept, Record, node_name
from .checkpoint_restore import PERMISSIONS, RestoredPath, bring_back

MAX_TOTAL_BYTES: Final = 512 * 1024 * 1024
"""Of all contents of one session; the oldest nodes make room."""

MAX_NODES: Final = 10_000
"""Of one session; some megabytes of index."""

DEFAULT_NODE: Final = "session"
"""Who recorded, when nobody began a node."""

RESTORE_NODE: Final = "restore"

_logger = logging.getLogger("quarterdeck.deck")

T = TypeVar("T")


@dataclass(slots=True)
class _Node:
    """A node; it has its name once something was recorded."""

    tool: str
    name: str | None = None


class FileCheckpointStore:
    """A `NodeStore` over one directory, which it makes when something is first recorded.

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
        """Begin the node `<number>-<name>`; what is recorded from now on belongs to it."""
        self._current = _Node(name)
        return self._current

    async def record(self, path: str, previous: bytes | None) -> None:
        """See `CheckpointStore.record`; of a file that is too large only a gap is kept.

        Raises:
            OSError: it cannot be kept.
            UnsafePathError: others may use the directory.
        """
        node = self._current
        await _in_thread(lambda: self._record(node, path, previous, is_last=True))

    async def record_gap(self, path: str, reason: str) -> None:
        """See `NodeStore.record_gap`."""
        node = self._current
        await _in_thread(lambda: self._record_gap(node, path, reason))

    async def forget(self, node: OpenNode) -> None:
        """See `NodeStore.forget`."""
        if isinstance(node, _Node) and node.name is not None:
            name = node.name
            await _in_thread(lambda: self._forget(name))

    async def nodes(self) -> list[CheckpointNode]:
        """All nodes, oldest first.

        Raises:
            OSError: they cannot be read.
            UnsafePathError: others may use the directory.
        """
        return await _in_thread(lambda: self._read(CheckpointIndex.nodes))

    async def restore(self, node: str, fs: Fs) -> list[RestoredPath]:
        """Bring every file that `node` or a later one was about to change back to what it was before them all.

        File by file, each whole or not at all; what was done, or why not, is said of each.  What is too large to be
        kept for an undo of this is left as it is.  The same again after an interruption does the rest.  Files that a
        node made are deleted, directories that it made are not.

        Args:
            node: the oldest call to undo.
            fs: what may be read and written, by absolute paths.

        Raises:
            UnknownNodeError: there is no such node.
            OSError: the store cannot be read.
            UnsafePathError: others may use the directory.
        """
        plan = await _in_thread(lambda: self._read(lambda index: index.plan(node)))
        undo = _Node(RESTORE_NODE)

        async def keep(path: str) -> None:
            content = await read_bounded(path, fs, self._max_file_bytes)
            if content is None:
                most = f"{self._max_file_bytes:,} bytes"
                raise OSError(f"it holds more than {most} now, which could not be brought back: move it away")
            # Older nodes make room only at the end: they are what is being restored.
            await _in_thread(lambda: self._record(undo, path, content, is_last=False))

        async def keep_absence(path: str) -> None:
            await _in_thread(lambda: self._record(undo, path, None, is_last=False))

        async def content_of(kept: Kept) -> bytes:
            return await _in_thread(lambda: self._disk.read_blob(kept))

        # Deletions first: a file may have to come back where a directory of new ones stands.
        order = sorted(plan, key=lambda record: not isinstance(record, Absent))
        done = [await bring_back(record, fs, content_of, keep, keep_absence) for record in order]
        await _in_thread(self._tidy)
        return done

    def _record(self, node: _Node, path: str, previous: bytes | None, *, is_last: bool) -> None:
        if previous is not None and len(previous) > self._max_file_bytes:
            self._record_gap(node, path, f"it was larger than {self._max_file_bytes:,} bytes")
            return
        with self._disk.locked() as index:
            name = _name(node, index)
            if index.has(name, path):
                return
            record: Record
            if previous is None:
                record = Absent(name, path, _now())
            else:
                mode, uid, gid = _mode_and_owner(path)
                digest = self._disk.write_blob(previous)
                record = Kept(name, path, _now(), digest, len(previous), mode, uid, gid)
            self._disk.append([record])
            node.name = name
            if is_last:
                self._disk.tidy()

    def _record_gap(self, node: _Node, path: str, reason: str) -> None:
        with self._disk.locked() as index:
            name = _name(node, index)
            if not index.has(name, path):
                self._disk.append([Gap(name, path, _now(), reason)])
                node.name = name

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


def _name(node: _Node, index: CheckpointIndex) -> str:
    return node.name or node_name(index.next_number, node.tool)


def _mode_and_owner(path: str) -> tuple[int | None, int | None, int | None]:
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None, None, None
    if not stat.S_ISREG(status.st_mode):
        return None, None, None
    return status.st_mode & PERMISSIONS, status.st_uid, status.st_gid


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def _in_thread(work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work)
