"""Follow a path by descriptors: what it leads to is held open before its place is judged.

Links are read and followed here, one after another, so that those which the kernel keeps in `/proc` (`root`, `cwd`,
`fd/7`) are texts like any other, and cannot jump into another process's view of the files. Looking at a thing never
waits for it; on Linux it is not opened for anything. What may be touched is for `roots` to decide.

Source: open(2), O_PATH; path_resolution(7); openat2(2), RESOLVE_NO_MAGICLINKS, which Python cannot ask for.
"""

import errno
import os
import stat
import sys
from collections.abc import Callable
from typing import Final, Self

import msgspec

from quarterdeck_sandbox import MAX_LINKS

if sys.platform == "darwin":
    # There is no O_PATH: a pipe and a device are opened as well, but without waiting for them.
    _LOOK: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_SYMLINK | os.O_NOCTTY | os.O_CLOEXEC
else:
    _LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC

MAX_PATH_BYTES: Final = 4095
"""Linux's PATH_MAX without its NUL: no call takes more, nor does a link lead further."""

Make = Callable[[int, str], None]
"""Creates the directory of this name in the open directory; that it has just appeared there is no error."""

Stuck = Callable[[int, str], None]
"""Gets the open directory, and the name in it, at which a walk fails; may raise a better error."""


def fault(number: int, reason: str = "") -> OSError:
    """Return the error of this number, with the system's reason unless another is given."""
    return OSError(number, reason or os.strerror(number))


class FoundPath(msgspec.Struct):
    """The end of a walk. It owns its descriptors, which are good for looking and for `*at` calls only.

    Attributes:
        thing: what is there, with its `status`; None when nothing is.
        directory: that it is in, or would be, by its `name`; none for `/` and for a path that ends in `..`.
        must_be_directory: whether it is missing, but the path says that it is a directory, by a slash at its end.
        place: where it was, or would have been, when that was judged.
    """

    thing: int | None
    directory: int | None = None
    name: str = ""
    status: os.stat_result | None = None
    must_be_directory: bool = False
    place: str = ""

    @property
    def is_directory(self) -> bool:
        """Whether a directory is there."""
        return self.status is not None and stat.S_ISDIR(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        """Whether a regular file is there."""
        return self.status is not None and stat.S_ISREG(self.status.st_mode)

    def held(self) -> tuple[int, os.stat_result]:
        """Return the thing and its status. Raise FileNotFoundError if nothing is there."""
        if self.thing is None or self.status is None:
            raise fault(errno.ENOENT)
        return self.thing, self.status

    def close(self) -> None:
        """Close both descriptors."""
        for fd in (self.thing, self.directory):
            if fd is not None:
                os.close(fd)
        self.thing = self.directory = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def join(path: str, cwd: str) -> str:
    """Return a caller's `path` from `cwd`, neither shortened nor looked up. Raise OSError if it names nothing."""
    if not path:
        raise fault(errno.ENOENT, "an empty path names nothing")
    if path == "~" or path.startswith("~/"):
        raise fault(errno.EINVAL, "`~` is not expanded: write the path out, or begin with `./~` for that very name")
    if "\0" in path:
        raise fault(errno.EINVAL, "no path holds a NUL character")
    whole = os.path.join(cwd, path)
    try:
        size = len(os.fsencode(whole))
    except UnicodeEncodeError:
        raise fault(errno.EILSEQ, "it holds half of a surrogate pair, which no path does") from None
    if size > MAX_PATH_BYTES:
        raise fault(errno.ENAMETOOLONG)
    return whole


def walk(path: str, *, follow_last: bool = True, make: Make | None = None, stuck: Stuck | None = None) -> FoundPath:
    """Follow the absolute `path` to its end; only its last part may be missing, unless `make` creates it. A link at the
    end is followed if `follow_last`, or if a slash is behind it; `stuck` gets a failure. Raise OSError as the kernel
    would.
    """
    return _PathWalk(path, follow_last, make, stuck).to_its_end()


class _PathWalk:
    def __init__(self, path: str, follow_last: bool, make: Make | None, stuck: Stuck | None) -> None:
        self._pending = path.split("/")[::-1]
        self._follow_last = follow_last
        self._make = make
        self._stuck = stuck
        self._links = 0
        self._spot = _top()

    def to_its_end(self) -> FoundPath:
        try:
            while self._pending and (here := self._spot.thing) is not None:
                name = self._pending.pop()
                try:
                    self._step(here, name)
                except OSError:
                    if self._stuck is not None:
                        self._stuck(here, name)
                    raise
        except BaseException:
            self._spot.close()
            raise
        return self._spot

    def _step(self, here: int, name: str) -> None:
        if name in {"", "."}:
            if not self._spot.is_directory:
                raise fault(errno.ENOTDIR)
            return
        try:
            thing = self._look(here, name)
        except FileNotFoundError:
            if any(part not in {"", "."} for part in self._pending):
                raise
            self._arrive(FoundPath(None, here, name, must_be_directory=bool(self._pending)))
            return
        try:
            status = os.fstat(thing)
            if stat.S_ISLNK(status.st_mode) and (self._follow_last or self._pending):
                self._follow(_text_of(thing, here, name))
                os.close(thing)
                return
        except BaseException:
            os.close(thing)
            raise
        self._arrive(FoundPath(thing, here, name, status) if name != ".." else FoundPath(thing, status=status))

    def _look(self, here: int, name: str) -> int:
        try:
            return os.open(name, _LOOK, dir_fd=here)
        except FileNotFoundError:
            if self._make is None:
                raise
        self._make(here, name)
        return os.open(name, _LOOK, dir_fd=here)

    def _follow(self, target: str) -> None:
        self._links += 1
        if self._links > MAX_LINKS:
            raise fault(errno.ELOOP)
        self._pending += target.split("/")[::-1]
        if target.startswith("/"):
            self._arrive(_top())

    def _arrive(self, spot: FoundPath) -> None:
        if self._spot.thing == spot.directory:
            self._spot.thing = None
        self._spot.close()
        self._spot = spot


def _top() -> FoundPath:
    thing = os.open("/", _LOOK)
    return FoundPath(thing, status=os.fstat(thing))


def _text_of(link: int, directory: int, name: str) -> str:
    if sys.platform == "darwin":
        return os.readlink(name, dir_fd=directory)
    return os.readlink("", dir_fd=link)


def open_file(spot: FoundPath) -> int:
    """Open the very file that was looked at, for reading. Raise OSError if it is not a regular file, or unreadable."""
    thing, status = spot.held()
    if spot.is_directory:
        raise fault(errno.EISDIR)
    if not spot.is_file:
        raise fault(errno.EINVAL, "it is not a regular file, but a pipe, a socket or a device")
    # Some regular files of the kernel let a reader wait.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    if sys.platform != "darwin":
        return os.open(f"/proc/self/fd/{thing}", flags)
    fd = os.open(spot.name, flags | os.O_NOFOLLOW, dir_fd=spot.directory)
    if not os.path.samestat(os.fstat(fd), status):
        os.close(fd)
        raise fault(errno.EAGAIN, "it was replaced while it was being opened: try again")
    return fd


def may_write(spot: FoundPath) -> bool:
    """Return whether the system would let us write into the thing."""
    thing, _ = spot.held()
    if sys.platform == "darwin":
        return os.access(spot.name, os.W_OK, dir_fd=spot.directory, follow_symlinks=False)
    return os.access(f"/proc/self/fd/{thing}", os.W_OK)


def open_directory(spot: FoundPath) -> int:
    """Open the very directory that was looked at, for listing. Raise OSError if it is none, or unreadable."""
    thing, _ = spot.held()
    return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=thing)
