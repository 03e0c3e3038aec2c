"""Write a file whole or not at all.  Blocking."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

DRAFT_PREFIX: Final = ".quarterdeck-"
"""Of a file that is being written, until it takes its name."""


_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""What a file system without hard links answers."""


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
    """A file to write, which takes the name `path` when the block ends; if that raises, all is as it was.

    The file is called by its draft's name until then (`file.name`).

    Args:
        path: of the file; a link there is replaced itself.
        dir_fd: where a relative path starts; the working directory by default.
        mode: of the file, less what the process's umask takes away.
        is_locked: nobody else writes this file now: drafts share one name, so that interrupted ones do not pile up.
            It lies in a directory of ours, which has to keep the name, too.
        must_be_new: leave a file that is there already.
        is_kept: whether it is on the disk when the block has ended; false for what no restart of the machine survives.

    Raises:
        FileExistsError: there is a file, and `must_be_new`.
        OSError: it cannot be written.
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
    """Give the draft the name `path`, if that is free."""
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
    """Write a file that its owner alone may read; see `replacing`.

    Raises:
        FileExistsError: there is a file, and `must_be_new`.
        OSError: it cannot be written; what was there is still there.
    """
    with replacing(path, is_locked=is_locked, must_be_new=must_be_new, is_kept=is_kept) as file:
        file.write(data)


def sync_directory(path: str | os.PathLike[str], *, dir_fd: int | None = None) -> None:
    """Bring the names in a directory to the disk.

    Raises:
        OSError: that failed.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
