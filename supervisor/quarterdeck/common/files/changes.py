"""Change entries of a directory that is held open: replace a file, make a directory, remove a tree.

Nothing here follows a link, or looks at a path: whether the directory may be changed is for the caller to know.
"""

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Final

from .path_walk import fault
from .replace import replacing

MAX_DEPTH: Final = 128
"""Of a tree that is removed: each level holds a descriptor, and they are shared by all sessions."""

_ACCESS_LIST: Final = "system.posix_acl_access"

_BATCH: Final = 10_000
"""Names that are held at a time while a directory is emptied."""

_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Check = Callable[[], None]
"""Raises when the work is no longer wanted."""


def replace_entry(
    directory: int, name: str, data: bytes, previous: os.stat_result | None, thing: int | None = None
) -> None:
    """Put a file with `data` at `name`, whole and on disk, or leave all as it was.

    Args:
        directory: descriptor of the directory.
        name: in it.
        data: what it is to hold.
        previous: of the file that is replaced, whose mode and owner the new one gets; None for a file of its own.
        thing: a descriptor of that file, whose access list and attributes the new one gets, if it is given.

    Raises:
        OSError: it cannot be, or the owner cannot be kept.
    """
    with replacing(name, dir_fd=directory, mode=0o666 if previous is None else 0o600) as file:
        file.write(data)
        file.flush()
        if previous is None:
            _give_to_owner_of(directory, file.fileno())
        else:
            _make_like(file.fileno(), previous)
            if thing is not None and sys.platform == "linux":
                _copy_attributes(thing, file.fileno())


def make_directory(directory: int, name: str) -> None:
    """Make a directory.

    Raises:
        OSError: it cannot be, or something has that name.
    """
    os.mkdir(name, dir_fd=directory)
    if os.geteuid() == 0:
        with suppress(FileNotFoundError, NotADirectoryError), _opened(directory, name) as fd:
            # Another one can have taken its place: an empty one of root's is no loss to anybody.
            if os.fstat(fd).st_uid == 0 and not os.listdir(fd):
                _give_to_owner_of(directory, fd)


def remove_directory(directory: int, name: str, thing: int, check: Check) -> None:
    """Remove all that is in the directory `thing`, a descriptor, and then `name`, which is its name.

    What cannot be removed ends it; what was removed by then is gone.

    Raises:
        OSError: it cannot be, or is too deep.
    """
    with _opened(thing, ".") as fd:
        _empty(fd, 1, check)
    os.rmdir(name, dir_fd=directory)


def _empty(fd: int, depth: int, check: Check) -> None:
    if depth > MAX_DEPTH:
        raise fault(errno.ENAMETOOLONG, f"there are more than {MAX_DEPTH} directories in each other: use `rm -r`")
    while batch := _some(fd):
        for name, is_directory in batch:
            check()
            with suppress(FileNotFoundError):  # somebody else was faster
                if is_directory:
                    with _opened(fd, name) as inner:
                        _empty(inner, depth + 1, check)
                    os.rmdir(name, dir_fd=fd)
                else:
                    os.unlink(name, dir_fd=fd)


def _some(fd: int) -> list[tuple[str, bool]]:
    with os.scandir(fd) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, _BATCH)]


@contextmanager
def _opened(directory: int, name: str) -> Iterator[int]:
    fd = os.open(name, _LIST, dir_fd=directory)
    try:
        yield fd
    finally:
        os.close(fd)


def _give_to_owner_of(directory: int, fd: int) -> None:
    """As root, let what we made belong to whom the place belongs: commands there run as that user."""
    if os.geteuid() == 0:
        owner = os.fstat(directory)
        with suppress(PermissionError):  # a root without that capability
            os.fchown(fd, owner.st_uid, owner.st_gid)


def _make_like(fd: int, previous: os.stat_result) -> None:
    own = os.fstat(fd)
    if (own.st_uid, own.st_gid) != (previous.st_uid, previous.st_gid):
        try:
            os.fchown(fd, previous.st_uid, previous.st_gid)
        except PermissionError:
            owner = f"uid {previous.st_uid}, gid {previous.st_gid}"
            raise fault(errno.EPERM, f"its owner ({owner}) could not be kept, so it was left as it is") from None
    # After the owner, whose change clears bits.  Set-id bits go, as with any other way to write.
    os.fchmod(fd, stat.S_IMODE(previous.st_mode) & ~(stat.S_ISUID | stat.S_ISGID))


if sys.platform == "linux":

    def _copy_attributes(thing: int, fd: int) -> None:
        """Give `fd` the extended attributes of `thing`, among them the access list, and none of its directory's.

        Without its list, the mode's bits would say something else: those of the group are the list's mask.
        """
        source = f"/proc/self/fd/{thing}"
        try:
            wanted = {name: os.getxattr(source, name) for name in os.listxattr(source) if _is_users(name)}
            for name in filter(_is_users, os.listxattr(fd)):
                if name not in wanted:
                    os.removexattr(fd, name)
            for name, value in wanted.items():
                os.setxattr(fd, name, value)
        except OSError as error:
            if error.errno != errno.ENOTSUP:
                reason = f"its access list and attributes could not be kept: {error.strerror}"
                raise fault(error.errno or errno.EPERM, reason) from None


def _is_users(name: str) -> bool:
    """Whether a file's owner decides on this attribute; the others are the system's, such as capabilities."""
    return name.startswith("user.") or name == _ACCESS_LIST
