"""The files of a seal: make a tree read-only; read it whole, or by what the file system says of each file.  Blocking.

Each folder is opened from the one above it and no link is followed, so that a swap between a look and the opening of a
file leads nowhere else.
"""

import errno
import hashlib
import os
import stat
import struct
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck.common.words import size

from .manifest import Bounds, Entry, Kind, SealError, link_problem, name_key, name_problem, too_large

_CHUNK_BYTES: Final = 1024 * 1024
_PACK: Final = struct.Struct("<4Q").pack
_MASK: Final = 2**64 - 1
"""An archive may have set any time, before 1970 and after 2262."""

_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Without O_NONBLOCK a FIFO would block us until another process writes to it."""

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Stamps(msgspec.Struct, frozen=True):
    """What the file system says of each entry of a tree, in the order in which the tree was read.

    Attributes:
        paths: with a NUL between them.
        numbers: of each path 32 bytes: size, times of writing and of any change in nanoseconds, inode.
    """

    paths: str
    numbers: bytes


class Reading(msgspec.Struct, frozen=True):
    """A tree as it was read, the tree itself first.

    Attributes:
        times: by path: seconds since the epoch at which the entry was last changed, by the ctime, which nobody sets.
    """

    entries: tuple[Entry, ...]
    stamps: Stamps
    times: dict[str, float]


def read_tree(root: Path, bounds: Bounds, *, close: bool = False) -> Reading:
    """Return every entry of the tree with its hash; with `close`, make all of them read-only first.

    Raises:
        SealError: `hostile_tree`, `too_large` or `changed` (while it was read).
        OSError: something cannot be read.
    """
    fd = os.open(root, _OPEN_FOLDER)
    try:
        reader = _Reader(bounds, close=close)
        reader.read_folder(fd, "", 0)
    finally:
        os.close(fd)
    kinds = {entry.path: entry.kind for entry in reader.entries}
    for entry in reader.entries:
        if entry.kind is Kind.LINK and (problem := link_problem(entry, kinds)):
            raise _hostile(entry.path, problem)
    stamps = Stamps("\0".join(entry.path for entry in reader.entries), b"".join(reader.numbers))
    return Reading(tuple(reader.entries), stamps, reader.times)


def is_untouched(root: Path, stamps: Stamps) -> bool:
    """Return whether the file system says of every entry what it said when these stamps were taken.

    A name that was added, removed or replaced changes its folder's times, so the folders need no listing.
    """
    look = os.stat
    fd = os.open(root, _OPEN_FOLDER)
    try:
        paths = stamps.paths.split("\0")
        numbers = b"".join([_numbers(look(path, dir_fd=fd, follow_symlinks=False)) for path in paths])
    except (OSError, ValueError):
        return False
    finally:
        os.close(fd)
    return numbers == stamps.numbers


def _numbers(found: os.stat_result) -> bytes:
    return _PACK(found.st_size, found.st_mtime_ns & _MASK, found.st_ctime_ns & _MASK, found.st_ino)


class _Reader:
    def __init__(self, bounds: Bounds, *, close: bool) -> None:
        self.entries: Final[list[Entry]] = []
        self.numbers: Final[list[bytes]] = []
        self.times: Final[dict[str, float]] = {}
        self._bounds: Final = bounds
        self._close: Final = close
        self._bytes = 0

    def read_folder(self, fd: int, path: str, depth: int) -> None:
        """Read an open folder and all below it."""
        if depth > self._bounds.depth:
            raise too_large(f"{path} lies more than {self._bounds.depth} folders deep")
        if self._close:
            os.fchmod(fd, 0o555)
        self._add(Entry(path or ".", Kind.FOLDER), os.fstat(fd))
        names: dict[str, str] = {}
        with os.scandir(fd) as listed:
            found = sorted(each.name for each in islice(listed, self._bounds.entries + 1))
        for name in found:
            inner = f"{path}/{name}" if path else name
            if problem := name_problem(name):
                raise _hostile(inner, problem)
            if (other := names.setdefault(name_key(name), name)) != name:
                raise _hostile(inner, f"has a name that some file systems take for {other}")
            self._read(fd, name, inner, depth)

    def _read(self, folder: int, name: str, path: str, depth: int) -> None:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            self._add(Entry(path, Kind.LINK, hash=os.readlink(name, dir_fd=folder)), status)
            return
        is_folder = stat.S_ISDIR(status.st_mode)
        if not is_folder and not stat.S_ISREG(status.st_mode):
            raise _hostile(path, "is a pipe, a socket or a device")
        fd = os.open(name, _OPEN_FOLDER if is_folder else _OPEN_FILE, dir_fd=folder)
        try:
            if is_folder:
                self.read_folder(fd, path, depth + 1)
            else:
                self._read_file(fd, path)
        finally:
            os.close(fd)

    def _read_file(self, fd: int, path: str) -> None:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_mode & (stat.S_ISUID | stat.S_ISGID):
            raise _hostile(path, "runs as another user (setuid)")
        self._bytes += status.st_size
        if self._bytes > self._bounds.total_bytes:
            raise too_large(f"with {path} it has more than {size(self._bounds.total_bytes)}")
        is_executable = bool(status.st_mode & stat.S_IXUSR)
        if self._close:
            os.fchmod(fd, 0o555 if is_executable else 0o444)
            status = os.fstat(fd)
        digest, read_bytes = hashlib.sha256(), 0
        while chunk := os.read(fd, min(_CHUNK_BYTES, status.st_size - read_bytes + 1)):
            digest.update(chunk)
            read_bytes += len(chunk)
            if read_bytes > status.st_size:
                break
        if read_bytes != status.st_size:
            raise SealError("changed", f"{path} was changed while it was read", "try again")
        self._add(Entry(path, Kind.FILE, is_executable, read_bytes, digest.hexdigest()), status)

    def _add(self, entry: Entry, status: os.stat_result) -> None:
        if len(self.entries) > self._bounds.entries:
            raise too_large(f"it has more than {self._bounds.entries:,} files and folders")
        self.entries.append(entry)
        self.numbers.append(_numbers(status))
        self.times[entry.path] = status.st_ctime


def _hostile(path: str, problem: str) -> SealError:
    return SealError("hostile_tree", f"{path} {problem}", "no package needs this: look at what it installs")
