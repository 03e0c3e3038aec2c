"""What we keep in the state directory, what of it is in use, and its removal.

    servers/<configuration>/<server>/    a server's private home, temporary files, log
    workspaces/<workspace>/              the home of native commands, and sessions
    ledger, token, secrets               records: removed only when they are named

Servers have written what is in there: nothing in it is trusted, no link is followed, and what is not below the state
directory is not touched.  A directory is taken away under another name first, so that a server that starts at that
moment gets a new one.  Blocking.

How much room a directory takes, whatever a hostile program has put there: links, sparse files, ten thousand levels.

Blocking.  Never follows a link, opens nothing but directories.
"""

import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import psutil

from quarterdeck_sandbox.hostile_files import remove

from .paths import SessionPaths
from .runtime_directory import find_live

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


RECORDS: Final = re.compile(r"ledger.*|token|secrets")
"""Names in the state directory of what cannot be made again."""

_TAKEN_AWAY: Final = re.compile(r"\.purged-[0-9a-f]{16}")
"""What a removal that was interrupted has left."""


class Kind(StrEnum):
    """What a leftover is."""

    SERVER = "server"
    WORKSPACE = "workspace"
    RECORD = "record"
    REST = "rest"


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing that can be removed as a whole.

    Attributes:
        name: a server's id, else the name on disk.
        digest: of the configuration that a server belongs to; empty for others.
        used_by: why it must stay now; empty when it need not.
    """

    kind: Kind
    path: Path
    name: str
    digest: str = ""
    used_by: str = ""

    def measured(self) -> Measure:
        """The room that it takes."""
        return measure(self.path)


class RemovalError(Exception):
    """A leftover is still there; the text says why, and what to do."""


def find_leftovers(state: Path, live: frozenset[str]) -> list[Leftover]:
    """All there is below the state directory, without its links and what we do not know.

    Args:
        state: the state directory; it need not exist.
        live: digests of configurations that a process uses, see `live_digests`.
    """
    state = Path(os.path.realpath(state))
    found: list[Leftover] = []
    for folder in _folders(state / "servers"):
        if _TAKEN_AWAY.fullmatch(folder.name):
            found.append(Leftover(Kind.REST, folder, folder.name))
            continue
        used = "it is running" if folder.name in live else ""
        for server in _folders(folder):
            is_rest = _TAKEN_AWAY.fullmatch(server.name) is not None
            kind = Kind.REST if is_rest else Kind.SERVER
            found.append(Leftover(kind, server, server.name, folder.name, "" if is_rest else used))
    for folder in _folders(state / "workspaces"):
        is_rest = _TAKEN_AWAY.fullmatch(folder.name) is not None
        used = "a session is open" if not is_rest and _has_session(folder) else ""
        found.append(Leftover(Kind.REST if is_rest else Kind.WORKSPACE, folder, folder.name, "", used))
    used = "something is running" if live else ""
    return found + [Leftover(Kind.RECORD, path, path.name, "", used) for path in _records(state)]


def live_digests(roots: Iterable[Path]) -> frozenset[str]:
    """The configurations that a process uses whose runtime directory is in one of `roots`."""
    return frozenset().union(*(find_live(root) for root in roots))


def remove_leftover(leftover: Leftover, state: Path) -> None:
    """Remove it whole; its directory too, once that is empty.

    Raises:
        RemovalError: it is in use, is not below `state`, or cannot be removed.
    """
    state, path = Path(os.path.realpath(state)), leftover.path
    if leftover.used_by:
        raise RemovalError(f"{path} is left, since {leftover.used_by}: stop it first")
    if Path(os.path.realpath(path)) != path or state not in path.parents:
        raise RemovalError(f"{path} is left, since it is not really below {state}: remove the link to it")
    if mounted := _mounted_in(path):
        raise RemovalError(f"{path} is left, since {mounted} is mounted in it: unmount that first")
    taken = path if _TAKEN_AWAY.fullmatch(path.name) else path.with_name(f".purged-{secrets.token_hex(8)}")
    try:
        path.rename(taken)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RemovalError(f"{path} cannot be removed: {error.strerror or error}") from error
    remove(str(taken))
    if os.path.lexists(taken):
        owner = "; part of it belongs to another user: run this as root" if os.geteuid() != 0 else ""
        raise RemovalError(f"{taken}, which was {path}, cannot be removed whole{owner}")
    with suppress(OSError):  # it holds others
        if path.parent != state:
            path.parent.rmdir()


def _folders(path: Path) -> Iterator[Path]:
    """Its directories, no links; none when it is itself a link, or not there."""
    if path.is_symlink():
        return
    with suppress(OSError):
        for name in sorted(os.listdir(path)):
            folder = path / name
            if folder.is_dir() and not folder.is_symlink():
                yield folder


def _records(state: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from (state / name for name in sorted(os.listdir(state)) if RECORDS.fullmatch(name))


def _has_session(workspace: Path) -> bool:
    """Whether a process holds the lock of one of its sessions."""
    return any(_is_locked(SessionPaths(folder).lock) for folder in _folders(workspace / "sessions"))


def _is_locked(path: Path) -> bool:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(lock)


def _mounted_in(path: Path) -> str | None:
    """A file system that is mounted at `path` or below: what it shows is somebody else's."""
    points = (Path(part.mountpoint) for part in psutil.disk_partitions(all=True))
    return next((str(point) for point in points if point == path or path in point.parents), None)
