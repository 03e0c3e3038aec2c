"""Look at the filesystem and record what was seen, so that a later check can tell whether it still holds.

Code that decides what a sandbox shows looks through these functions, which mean the same as those of `os` and
`os.path`; a test holds `program/`, `view/` and `run/confine` to that.  Within `observing` each question is asked once
and its answer kept in an `Observations`, whose `changed` asks again.  So a decision can be reused while nothing that it
rests on has changed.

    glance    absent, a link and its target, a folder, a file, something else
    status    mode, owner, group and number of names, where they decide
    stamp     identity, size and times of a file or folder whose content decides

A file that changes twice within a tick of the file system's clock keeps its stamp: `is_settled` is False for content
read so soon after a change, which must not be reused (git's "racy" index).  Outside `observing` nothing is recorded.
"""

import errno
import os
import stat as modes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import msgspec

from .hostile_files import Followed, open_regular
from .hostile_files import follow as follow_links

SETTLED_NS: Final = 2_000_000_000  # the coarsest clock of a file system in use, FAT's
_FOLDER: Final = "d"
_FILE: Final = "f"
_OTHER: Final = "o"
_LINK: Final = "@"  # prefix of a link's target
_ABSENT: Final = ""

_Stamp = tuple[int, int, int, int, int]


class Status(msgspec.Struct, frozen=True, array_like=True):
    """The fields of `os.stat` that decide something; the number of names is a regular file's, else 1."""

    st_mode: int
    st_uid: int
    st_gid: int
    st_nlink: int


class Observations(msgspec.Struct):
    """The findings by path; they can be sent to another process of ours and checked there."""

    glances: dict[str, str] = {}
    statuses: dict[str, Status] = {}
    stamps: dict[str, _Stamp | None] = {}
    accesses: dict[str, dict[int, bool]] = {}
    is_settled: bool = True

    def changed(self) -> str:
        """Return the first path whose finding differs now; empty if none does."""
        for path, glance in self.glances.items():
            if _glance(path) != glance:
                return path
        for path, status in self.statuses.items():
            try:
                if _status_of(os.lstat(path)) != status:
                    return path
            except OSError:
                return path
        for path, stamp in self.stamps.items():
            if _stamp(path) != stamp:
                return path
        for path, asked in self.accesses.items():
            for mode, allowed in asked.items():
                if os.access(path, mode) is not allowed:
                    return path
        return ""


class _Observer:
    def __init__(self) -> None:
        self.seen = Observations({}, {}, {}, {})
        self._followed: dict[str, Followed] = {}
        self._listed: dict[str, tuple[str, ...]] = {}
        self._read: dict[tuple[str, int], bytes] = {}

    def glance(self, path: str) -> str:
        found = self.seen.glances.get(path)
        if found is None:
            if self.seen.glances.get(path[: path.rfind("/")]) == _ABSENT:
                return _ABSENT  # said already by the folder
            found = self.seen.glances[path] = _glance(path)
        return found

    def follow(self, path: str) -> Followed:
        followed = self._followed.get(path)
        if followed is None:
            followed = self._followed[path] = follow_links(path, self._target)
        return followed

    def _target(self, path: str) -> str:
        seen = self.glance(path)
        return seen[1:] if seen.startswith(_LINK) else _ABSENT

    def status(self, path: str) -> Status:
        """Return the status of a path that is no link, or of the link itself."""
        found = self.seen.statuses.get(path)
        if found is None:
            self.glance(path)  # which says that there is none, where there is none
            found = self.seen.statuses[path] = _status_of(os.lstat(path))
        return found

    def access(self, path: str, mode: int) -> bool:
        asked = self.seen.accesses.setdefault(path, {})
        if mode not in asked:
            asked[mode] = os.access(path, mode)
        return asked[mode]

    def listing(self, path: str) -> tuple[str, ...]:
        if (found := self._listed.get(path)) is None:
            self._stamp(path)
            found = self._listed[path] = tuple(os.listdir(path))
        return found

    def content(self, path: str, most_bytes: int) -> bytes:
        if (found := self._read.get((path, most_bytes))) is None:
            self._stamp(path)
            found = self._read[path, most_bytes] = _content(path, most_bytes)
        return found

    def _stamp(self, path: str) -> None:
        """Record the stamp before reading, so that a change meanwhile shows, also if the read fails."""
        stamp = self.seen.stamps.setdefault(path, _stamp(path))
        if stamp is not None and max(stamp[3:]) > time.time_ns() - SETTLED_NS:
            self.seen.is_settled = False


_observer: ContextVar[_Observer | None] = ContextVar("observer", default=None)


@contextmanager
def observing() -> Iterator[Observations]:
    """Record what is seen within the block, each question once; a nested block records into the outer one."""
    outer = _observer.get()
    if outer is not None:
        yield outer.seen
        return
    observer = _Observer()
    token = _observer.set(observer)
    try:
        yield observer.seen
    finally:
        _observer.reset(token)


def follow(path: str) -> Followed:
    """Follow links as `hostile_files.follow`."""
    observer = _observer.get()
    return follow_links(path) if observer is None else observer.follow(path)


def realpath(path: str) -> str:
    """As `os.path.realpath`; of a path with endless links, where following them ended."""
    return follow(path if path.startswith("/") else os.path.join(os.getcwd(), path)).real


def exists(path: str) -> bool:
    """As `os.path.exists`."""
    return _kind(path) != _ABSENT


def lexists(path: str) -> bool:
    """As `os.path.lexists`."""
    return _glance_at(path) != _ABSENT


def isdir(path: str) -> bool:
    """As `os.path.isdir`."""
    return _kind(path) == _FOLDER


def isfile(path: str) -> bool:
    """As `os.path.isfile`."""
    return _kind(path) == _FILE


def islink(path: str) -> bool:
    """As `os.path.islink`."""
    return _glance_at(path).startswith(_LINK)


def readlink(path: str) -> str:
    """Return a link's text; empty if there is no link."""
    return _glance_at(path).removeprefix(_LINK) if islink(path) else ""


def stat(path: str) -> Status:
    """As `os.stat`."""
    observer = _observer.get()
    if observer is None:
        return _status_of(os.stat(path))
    followed = observer.follow(path)
    if followed.endless:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return observer.status(followed.real)


def lstat(path: str) -> Status:
    """As `os.lstat`."""
    observer = _observer.get()
    return _status_of(os.lstat(path)) if observer is None else observer.status(_entry(path, observer))


def access(path: str, mode: int) -> bool:
    """As `os.access`."""
    observer = _observer.get()
    return os.access(path, mode) if observer is None else observer.access(path, mode)


def listdir(path: str) -> tuple[str, ...]:
    """As `os.listdir`."""
    observer = _observer.get()
    return tuple(os.listdir(path)) if observer is None else observer.listing(path)


def read(path: str, most_bytes: int) -> bytes:
    """Return the first `most_bytes` of a regular file, following links.  Raise OSError if it cannot be read."""
    observer = _observer.get()
    return _content(path, most_bytes) if observer is None else observer.content(path, most_bytes)


def read_text(path: str, most_bytes: int) -> str:
    """As `read`, as text with invalid UTF-8 replaced."""
    return read(path, most_bytes).decode(errors="replace")


def _kind(path: str) -> str:
    observer = _observer.get()
    if observer is None:
        try:
            return _kind_of(os.stat(path).st_mode)
        except (OSError, ValueError):
            return _ABSENT
    followed = observer.follow(path)
    return _ABSENT if followed.endless else observer.glance(followed.real)


def _glance_at(path: str) -> str:
    observer = _observer.get()
    return _glance(path) if observer is None else observer.glance(_entry(path, observer))


def _entry(path: str, observer: _Observer) -> str:
    """Return the path of the same folder entry without links before it, so that each look is at one thing."""
    folder, _, name = path.rpartition("/")
    if not folder or name in {"", ".", ".."}:
        return path
    real = observer.follow(folder).real
    return path if real == folder else f"{real.rstrip('/')}/{name}"


def _glance(path: str) -> str:
    try:
        mode = os.lstat(path).st_mode
        return _LINK + os.readlink(path) if modes.S_ISLNK(mode) else _kind_of(mode)
    except (OSError, ValueError):
        return _ABSENT


def _kind_of(mode: int) -> str:
    return _FOLDER if modes.S_ISDIR(mode) else _FILE if modes.S_ISREG(mode) else _OTHER


def _status_of(status: os.stat_result) -> Status:
    # Of a folder it is how many folders are in it, which changes and decides nothing.
    names = status.st_nlink if modes.S_ISREG(status.st_mode) else 1
    return Status(status.st_mode, status.st_uid, status.st_gid, names)


def _stamp(path: str) -> _Stamp | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _content(path: str, most_bytes: int) -> bytes:
    with open_regular(path) as file:
        return file.read(most_bytes)
