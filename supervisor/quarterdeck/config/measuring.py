"""How much room a directory takes, whatever a hostile program has put there: links, sparse files, ten thousand levels.

Blocking.  Never follows a link, opens nothing but directories.
"""

import os
import stat
from dataclasses import dataclass
from typing import Final

MAX_ENTRIES: Final = 1_000_000
"""Entries that are looked at; a home full of package caches has a tenth."""

_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""How each directory is opened."""

_BLOCK: Final = 512
"""The unit of `st_blocks` on every system."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What a tree takes.

    Attributes:
        size_bytes: on disk: holes of a file count nothing, and a file with several names once.
        is_whole: False when some of it could not be looked at, so that there is more.
    """

    size_bytes: int = 0
    files: int = 0
    is_whole: bool = True


def measure(path: str | os.PathLike[str], limit: int = MAX_ENTRIES) -> Measure:
    """The room that `path` takes, a file or a directory with all that is in it; nothing when it is not there."""
    try:
        status = os.lstat(path)
    except OSError:
        return Measure()
    if not stat.S_ISDIR(status.st_mode):
        return Measure(status.st_blocks * _BLOCK, 1)
    walk = _Walk(status, limit)
    walk.run(path)
    return Measure(walk.size_bytes, walk.files, walk.is_whole)


class _Walk:
    """One walk, depth first."""

    def __init__(self, root: os.stat_result, limit: int) -> None:
        self.size_bytes = root.st_blocks * _BLOCK
        self.files = 1
        self.is_whole = True
        self._left = limit
        self._device = root.st_dev
        self._seen: set[int] = set()

    def run(self, path: str | os.PathLike[str]) -> None:
        """Look at all of it."""
        fd = self._open(path, None)
        if fd < 0:
            return
        descent = _Descent(fd)
        levels = [self._look(fd)]
        try:
            while True:
                if not levels[-1]:
                    levels.pop()
                    if not descent.leave():
                        return
                elif (below := self._open(levels[-1].pop(), descent.fd)) >= 0:
                    descent.enter(below)
                    levels.append(self._look(below))
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

    def _look(self, fd: int) -> list[str]:
        """Count what is in a directory; the names of its directories."""
        inner = []
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    if self._left <= 0:
                        self.is_whole = False
                        break
                    self._left -= 1
                    if self._count(entry):
                        inner.append(entry.name)
        except OSError:
            self.is_whole = False
        return inner

    def _count(self, entry: os.DirEntry[str]) -> bool:
        """Add one entry; whether it is a directory that belongs to this tree."""
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            self.is_whole = False
            return False
        is_directory = stat.S_ISDIR(status.st_mode)
        if status.st_dev != self._device:
            return False  # something else is mounted there
        if status.st_nlink > 1 and not is_directory:
            if status.st_ino in self._seen:
                return False
            self._seen.add(status.st_ino)
        self.files += 1
        self.size_bytes += status.st_blocks * _BLOCK
        return is_directory


class _LostError(Exception):
    """What is above is not where we came from: the tree was moved meanwhile."""


class _Descent:
    """A directory that is held open, and the way back up from it.  Owns `fd`; close it in the end.

    Two descriptors at a time, whatever the depth: the way up is `..`, checked to be where we came from.
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

    def leave(self) -> bool:
        """Go back up; whether there was an up to go to.

        Raises:
            _LostError: the way is gone.
        """
        self._way.pop()
        if not self._way:
            return False
        if self._above >= 0:
            os.close(self.fd)
            self.fd, self._above = self._above, -1
            return True
        try:
            above = os.open("..", _LIST, dir_fd=self.fd)
        except OSError as error:
            raise _LostError from error
        os.close(self.fd)
        self.fd = above
        if _identity(above) != self._way[-1]:
            raise _LostError
        return True

    def close(self) -> None:
        """Let go of what is open."""
        for fd in {self.fd, self._above} - {-1}:
            os.close(fd)


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
