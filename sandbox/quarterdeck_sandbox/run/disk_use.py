"""Measure how much room directories take, whatever a hostile program has put there.

Links, sparse files, a million files, ten thousand levels: nothing leads out of a tree, and a walk ends in time.
Blocking.
"""

import math
import os
import stat
import time
from collections.abc import Iterable
from typing import Final

from quarterdeck_sandbox.policy.limits import DiskUse

WALK_S: Final = 1.0
"""One walk through scratch files takes at most so long, and tells what it has seen by then: some 300,000 files."""

MAX_ENTRIES: Final = 1_000_000  # of one walk; a home full of package caches has a tenth
HELD_LEVELS: Final = 32  # directories on the way down that are held open
BLOCK_BYTES: Final = 512  # the unit of `st_blocks` on every system

_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""How each directory is opened."""


def measure_disk_use(path: str | os.PathLike[str], most_entries: int = MAX_ENTRIES) -> DiskUse:
    """Return the room that `path` takes, a file or a directory with its content; nothing if it is absent."""
    walk = _Walk(most_entries, math.inf)
    try:
        status = os.lstat(path)
    except OSError:
        return DiskUse()
    walk.count(status, status.st_dev)
    if stat.S_ISDIR(status.st_mode):
        walk.through(path)
    return walk.result()


def disk_use(directories: Iterable[str], within_s: float = WALK_S) -> DiskUse:
    """Return what lies below these directories, on their own file systems; they themselves are not counted."""
    walk = _Walk(MAX_ENTRIES, time.monotonic() + within_s)
    for directory in directories:
        walk.through(directory)
    return walk.result()


class _Walk:
    """A walk through trees, depth first; mounts inside are left out."""

    def __init__(self, most_entries: int, until: float) -> None:
        self.size_bytes = self.files = 0
        self.is_whole = True
        self._left = most_entries
        self._until = until
        self._linked: set[tuple[int, int]] = set()

    def result(self) -> DiskUse:
        return DiskUse(self.size_bytes, self.files, self.is_whole)

    def through(self, path: str | os.PathLike[str]) -> None:
        fd = self._open(path, None)
        if fd < 0:
            return
        descent = _Descent(fd)
        device = os.fstat(fd).st_dev
        levels = [self._look(fd, device)]
        try:
            while levels:
                if not levels[-1]:
                    self.is_whole &= descent.leave()
                    del levels[descent.depth :]
                elif (below := self._open(levels[-1].pop(), descent.fd)) >= 0:
                    descent.enter(below)
                    levels.append(self._look(below, device))
        finally:
            descent.close()

    def _open(self, name: str | os.PathLike[str], directory: int | None) -> int:
        try:
            return os.open(name, _LIST, dir_fd=directory)
        except OSError:
            self.is_whole = False
            return -1

    def _look(self, fd: int, device: int) -> list[str]:
        """Count a directory's entries, and return the names of its directories."""
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
        """Add one entry of a tree on this device; return whether it is a directory of it."""
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


class _Descent:
    """The directory where a walk is, and the way back up.  Owns `fd`; `close` it in the end.

    The uppermost directories of the way are held open, so that moving one of them ends no walk; so is the one above, as
    a directory without the right to search it has no `..`.  The others are found by `..`, checked to be the same.
    """

    def __init__(self, fd: int) -> None:
        self._way = [(fd, _identity(fd))]

    @property
    def fd(self) -> int:
        return self._way[-1][0]

    @property
    def depth(self) -> int:
        return len(self._way)

    def enter(self, fd: int) -> None:
        self._way.append((fd, _identity(fd)))
        if (passed := len(self._way) - 3) >= HELD_LEVELS and self._way[passed][0] >= 0:
            os.close(self._way[passed][0])
            self._way[passed] = (-1, self._way[passed][1])

    def leave(self) -> bool:
        """Go back up; return False if what is above was moved meanwhile: then up to the next one that is held open."""
        left, _ = self._way.pop()
        try:
            if not self._way or self.fd >= 0:
                return True
            try:
                above = os.open("..", _LIST, dir_fd=left)
            except OSError:
                above = -1
            if above >= 0 and _identity(above) == self._way[-1][1]:
                self._way[-1] = (above, self._way[-1][1])
                return True
            if above >= 0:
                os.close(above)
        finally:
            os.close(left)
        while self.fd < 0:
            self._way.pop()
        return False

    def close(self) -> None:
        for fd, _ in self._way:
            if fd >= 0:
                os.close(fd)


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
