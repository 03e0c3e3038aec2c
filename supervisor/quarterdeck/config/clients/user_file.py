"""Read a file that belongs to the user and another program, and replace it whole, with a copy beside it.

Kept are mode, owner, access list, byte order mark, and a symbolic link, whose target is replaced.
"""

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from quarterdeck.common.file_changes import replace_entry, replacing
from quarterdeck.common.text_file import MissingFileError, TextFileError, read_text

MAX_BYTES: Final = 64 * 1024 * 1024
"""Claude Code keeps its history in the file that names servers; files of tens of megabytes have been seen."""


class UserFileError(Exception):
    """The file cannot be read or written; the message names it and says why, without its content."""


@dataclass(frozen=True, slots=True)
class UserFile:
    """A file as it was read: `path` is its name as given, beside which copies are put, `target` where it really is.

    `text` lacks the byte order `mark`, and is empty without a file, whose `status` is None then.
    """

    path: Path
    target: Path
    text: str = ""
    mark: bytes = b""
    status: os.stat_result | None = None


def read_user_file(path: Path) -> UserFile:
    """Read the file at `path`, which need not exist.  Raises `UserFileError` if it is unreadable, not a regular file,
    too large, or not UTF-8.
    """
    target = Path(os.path.realpath(path))
    try:
        read = read_text(target, MAX_BYTES)
    except MissingFileError:
        return UserFile(path, target)
    except TextFileError as error:
        raise UserFileError(f"{path} {error}") from error
    return UserFile(path, target, read.text, read.mark, read.status)


def write_user_file(file: UserFile, text: str, now: datetime, *, is_private: bool = False) -> Path | None:
    """Replace the content of `file`, and keep a copy of the old one beside it, readable by its owner only.

    The file must not have changed since it was read; `now` names the copy.  With `is_private`, its mode becomes 0600,
    and a missing directory's 0700.  Returns the copy's path, or None without a file.  Raises `UserFileError`, with the
    file unchanged, if it cannot be written.
    """
    try:
        _check_unchanged(file)
        file.target.parent.mkdir(mode=0o700 if is_private else 0o777, parents=True, exist_ok=True)
        backup = _back_up(file, now)
        _replace(file.target, file.mark + text.encode(), file.status, is_private=is_private)
    except OSError as error:
        raise UserFileError(f"{file.path} cannot be written: {error.strerror or error}") from error
    return backup


def backups(path: Path) -> list[Path]:
    """Return the copies beside `path`, newest first."""
    prefix = f"{path.name}.quarterdeck-"
    try:
        names = [name for name in os.listdir(path.parent) if name.startswith(prefix) and name.endswith(".bak")]
    except OSError:
        return []
    return [path.with_name(name) for name in sorted(names, reverse=True)]


def is_open_to_others(file: UserFile) -> bool:
    """Return whether modes of the file and its parent folders let another user, or its group, read it.

    A file that does not exist yet is created private.
    """
    if file.status is None:
        return False
    return opens_to_others(file.status.st_mode, [folder.stat().st_mode for folder in file.target.parents])


def opens_to_others(file_mode: int, folder_modes: Iterable[int]) -> bool:
    """Return whether these modes let a user other than the owner read a file below these folders."""
    modes = [*folder_modes]
    group = all(mode & (stat.S_IXGRP | stat.S_IXOTH) for mode in modes)  # whatever the folder's group
    others = all(mode & stat.S_IXOTH for mode in modes)
    return bool((group and file_mode & stat.S_IRGRP) or (others and file_mode & stat.S_IROTH))


def _check_unchanged(file: UserFile) -> None:
    try:
        now = os.stat(file.target)
    except FileNotFoundError:
        if file.status is None:
            return
        raise UserFileError(f"{file.path} is gone: run this again") from None
    was = file.status
    if was is None or (now.st_ino, now.st_size, now.st_mtime_ns) != (was.st_ino, was.st_size, was.st_mtime_ns):
        raise UserFileError(f"{file.path} was changed by another program just now: run this again")
    if not os.access(file.target, os.W_OK):
        raise UserFileError(f"{file.path} is read-only: make it writable, or change it where it comes from")


def _back_up(file: UserFile, now: datetime) -> Path | None:
    if file.status is None:
        return None
    backup = file.path.with_name(f"{file.path.name}.quarterdeck-{now:%Y%m%dT%H%M%S.%fZ}.bak")
    with replacing(backup) as copy:  # its name holds the microsecond
        if os.geteuid() == 0:
            os.fchown(copy.fileno(), file.status.st_uid, file.status.st_gid)
        copy.write(file.mark + file.text.encode())
    return backup


def _replace(target: Path, data: bytes, previous: os.stat_result | None, *, is_private: bool) -> None:
    directory, thing = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), None
    try:
        if is_private:
            owner = previous or os.fstat(directory)
            previous = os.stat_result((stat.S_IFREG | 0o600, 0, 0, 1, owner.st_uid, owner.st_gid, 0, 0, 0, 0))
        elif previous is not None:
            thing = os.open(target.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        replace_entry(directory, target.name, data, previous, thing)
    finally:
        if thing is not None:
            os.close(thing)
        os.close(directory)
