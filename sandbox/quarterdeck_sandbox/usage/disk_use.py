"""Measure how much room directories take, whatever a hostile program has put there.

Links, sparse files, a million files, ten thousand levels: nothing leads out of a tree, and a walk ends in time.
Blocking.
"""

import math
import os
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from quarterdeck_sandbox.policy.limits import Space

WALK_S: Final = 1.0
"""One walk through scratch files takes at most so long, and tells what it has seen by then: some 300,000 files."""

MAX_ENTRIES: Final = 1_000_000
"""Of one walk; a home full of package caches has a tenth."""

BLOCK_BYTES: Final = 512
"""The unit of `st_blocks` on every system."""

_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""How each directory is opened."""


@dataclass(frozen=True, slots=True)
class DiskUse:
    """The room that files take.

    Attributes:
        size_bytes: on disk: holes of a file count nothing, and a file with several names once.
        files: all entries.
        is_whole: False when some of it could not be looked at, so that there is more.
    """

    size_bytes: int = 0
    files: int = 0
    is_whole: bool = True


def measure_disk_use(path: str | os.PathLike[str], most_entries: int = MAX_ENTRIES) -> DiskUse:
    """The room that `path` takes, a file or a directory with all that is in it; nothing when it is not there."""
    walk = _Walk(most_entries, math.inf)
    try:
        status = os.lstat(path)
    except OSError:
        return DiskUse()
    walk.count(status, status.st_dev)
    if stat.S_ISDIR(status.st_mode):
        walk.through(path)
    return DiskUse(walk.size_bytes, walk.files, walk.is_whole)


def disk_use(directories: Iterable[str], within_s: float = WALK_S) -> Space:
    """What lies below these directories, on their own file systems; they themselves are not counted."""
    walk = _Walk(MAX_ENTRIES, time.monotonic() + within_s)
    for directory in directories:
        walk.through(directory)
    return Space(walk.size_bytes, walk.files)


class _Walk:
    """A walk through trees, depth first; what is mounted in one is left out."""

    def __init__(self, most_entries: int, until: float) -> None:
        self.size_bytes = self.files = 0
        self.is_whole = True
        self._left = most_entries
        self._until = until
        self._linked: set[tuple[int, int]] = set()

    def through(self, path: str | os.PathLike[str]) -> None:
        """Count all that is in a directory."""
        fd = self._open(path, None)
        if fd < 0:
            return
        descent = _Descent(fd)
        device = os.fstat(fd).st_dev
        levels = [self._look(fd, device)]
        try:
            while levels:
                if not levels[-1]:
                    levels.pop()
                    descent.leave()
                elif (below := self._open(levels[-1].pop(), descent.fd)) >= 0:
                    descent.enter(below)
                    levels.append(self._look(below, device))
        except _LostError:
            self.is_whole = False
        finally:
            descent.close()

    def _open(self, name: str | os.PathLike[str], directory: int | None) -> int:
        """A directory; -1 when it cannot be entered."""
        try:
            return os.open(name, _LIST, dir_fd=directory)
        except OSError:
            self.is_whole = False
            return -1

    def _look(self, fd: int, device: int) -> list[str]:
        """Count what is in a directory; the names of its directories."""
        inner = []
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    if self._left <= 0 or time.monotonic() > self._until:
                        self.is_whole = False
                        break
                    self._left -= 1
                    try:
                        is_inner = self.count(entry.stat(follow_symlinks=False), device)
                    except OSError:
                        self.is_whole = False
                        continue
                    if is_inner:
                        inner.append(entry.name)
        except OSError:
            self.is_whole = False
        return inner

    def count(self, status: os.stat_result, device: int) -> bool:
        """Add one entry of a tree on this device; whether it is a directory of it."""
        if status.st_dev != device:
            return False
        is_directory = stat.S_ISDIR(status.st_mode)
        if status.st_nlink > 1 and not is_directory:
            if (key := (device, status.st_ino)) in self._linked:
                return False
            self._linked.add(key)
        self.files += 1
        self.size_bytes += status.st_blocks * BLOCK_BYTES
        return is_directory


class _LostError(Exception):
    """What is above is not where we came from: the tree was moved meanwhile."""


class _Descent:
    """A directory that is held open, and the way back up from it: `..`, checked to be where we came from.

    Owns `fd`; close it in the end.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._above = -1
        self._way = [_identity(fd)]

    def enter(self, fd: int) -> None:
        """Go into a directory, which was opened in this one."""
        if self._above >= 0:
            os.close(self._above)
        # A directory without the right to search it has no `..` either: the one above is held open.
        self._above, self.fd = self.fd, fd
        self._way.append(_identity(fd))

    def leave(self) -> None:
        """Go back up, if this is not where we began.

        Raises:
            _LostError: the way is gone.
        """
        self._way.pop()
        if not self._way:
            return
        if self._above >= 0:
            os.close(self.fd)
            self.fd, self._above = self._above, -1
            return
        try:
            above = os.open("..", _LIST, dir_fd=self.fd)
        except OSError as error:
            raise _LostError from error
        os.close(self.fd)
        self.fd = above
        if _identity(above) != self._way[-1]:
            raise _LostError

    def close(self) -> None:
        """Let go of what is open."""
        for fd in {self.fd, self._above} - {-1}:
            os.close(fd)


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
