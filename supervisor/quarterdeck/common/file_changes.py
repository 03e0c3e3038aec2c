"""Change files whole or not at all: replace one, make a directory, remove a tree. Blocking.

Functions that take a directory's descriptor follow no link and look at no path; the caller has judged the directory.
"""

import errno
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

from .path_walk import fault

DRAFT_PREFIX: Final = ".quarterdeck-"
"""Prefix of a file's name while it is written."""

_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of a file system without hard links."""

MAX_DEPTH: Final = 128
"""Deepest tree that is removed: each level holds a descriptor, which all sessions share."""

_ACCESS_LIST: Final = "system.posix_acl_access"

_BATCH: Final = 10_000
"""Names that are held at a time while a directory is emptied."""

_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Check = Callable[[], None]
"""Raises when the work is no longer wanted."""


@contextmanager
def replacing(
    path: str | os.PathLike[str],
    *,
    dir_fd: int | None = None,
    mode: int = 0o600,
    is_locked: bool = False,
    must_be_new: bool = False,
    is_kept: bool = True,
) -> Iterator[BinaryIO]:
    """Yield a file that takes the name `path` when the block ends; if that raises, nothing changes.

    The file has its draft's name until then (`file.name`). Raise FileExistsError if there is a file and `must_be_new`,
    OSError if it cannot be written.

    Args:
        path: of the file; a link there is itself replaced.
        dir_fd: where a relative path starts; the working directory by default.
        mode: of the file, less the process's umask.
        is_locked: no other process writes this file now: drafts share one name, so that interrupted ones do not pile
            up. It lies in a directory of ours, whose names are synced, too.
        must_be_new: leave an existing file.
        is_kept: whether it is synced to disk; false for what no restart of the machine survives.
    """
    folder, name = os.path.split(os.fspath(path))
    draft = os.path.join(folder, f".{name}.new" if is_locked else f"{DRAFT_PREFIX}{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_TRUNC if is_locked else os.O_EXCL)

    def create(name: str, _: int) -> int:
        return os.open(name, flags, mode, dir_fd=dir_fd)

    file = open(draft, "wb", opener=create)  # noqa: SIM115 - only what was created here may be removed below
    try:
        with file:
            yield file
            file.flush()
            if is_kept:
                os.fsync(file.fileno())
        if must_be_new:
            _take_name(draft, path, dir_fd)
        else:
            os.replace(draft, path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException:
        # On a full disk it would take the room that other files need.
        with suppress(OSError):
            os.unlink(draft, dir_fd=dir_fd)
        raise
    if is_kept:
        try:
            sync_directory(folder or ".", dir_fd=dir_fd)
        except OSError:
            if is_locked:
                raise
            # A user's directory may be on a file system that cannot do it; the file is in place.


def _take_name(draft: str, path: str | os.PathLike[str], dir_fd: int | None) -> None:
    try:
        os.link(draft, path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Without hard links an empty file takes the name first, for a moment.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(path, flags, 0o600, dir_fd=dir_fd))
        os.replace(draft, path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    else:
        os.unlink(draft, dir_fd=dir_fd)


def replace_file(
    path: Path, data: bytes, *, is_locked: bool = False, must_be_new: bool = False, is_kept: bool = True
) -> None:
    """Write a file that only its owner may read; see `replacing`, also for the errors."""
    with replacing(path, is_locked=is_locked, must_be_new=must_be_new, is_kept=is_kept) as file:
        file.write(data)


def sync_directory(path: str | os.PathLike[str], *, dir_fd: int | None = None) -> None:
    """Sync a directory's names to disk. Raise OSError if that fails."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_entry(
    directory: int, name: str, data: bytes, previous: os.stat_result | None, thing: int | None = None
) -> None:
    """Put a file with `data` at `name` in the open `directory`, whole and on disk, or change nothing. It gets the mode
    and owner of the `previous` file, if any, and the access list and attributes of that file's descriptor `thing`, if
    given.

    Raise OSError if that fails, or the owner cannot be kept.
    """
    with replacing(name, dir_fd=directory, mode=0o666 if previous is None else 0o600) as file:
        file.write(data)
        file.flush()
        if previous is None:
            give_to_owner_of(directory, file.fileno())
        else:
            _make_like(file.fileno(), previous)
            if thing is not None and sys.platform == "linux":
                _copy_attributes(thing, file.fileno())


def make_directory(directory: int, name: str) -> None:
    """Make a directory. Raise OSError if that fails, or the name is taken."""
    os.mkdir(name, dir_fd=directory)
    if os.geteuid() == 0:
        with suppress(FileNotFoundError, NotADirectoryError), _opened(directory, name) as fd:
            # Another one can have taken its place: an empty one of root's is no loss to anybody.
            if os.fstat(fd).st_uid == 0 and not os.listdir(fd):
                give_to_owner_of(directory, fd)


def remove_directory(directory: int, name: str, thing: int, check: Check) -> None:
    """Remove everything in the open directory `thing`, then its `name`. Raise OSError at the first entry that cannot be
    removed, or if the tree is too deep; entries removed by then are gone.
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


def give_to_owner_of(directory: int, fd: int) -> None:
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
    """Return whether a file's owner controls this attribute; the others, such as capabilities, are the system's."""
    return name.startswith("user.") or name == _ACCESS_LIST
