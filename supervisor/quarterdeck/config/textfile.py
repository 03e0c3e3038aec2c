"""Read a small file that a user named: bounded, never blocking, as UTF-8 text.

Below every reader of this package; knows nothing of what the text means.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from quarterdeck.config.owners import ROOT, other_writer

_BOM: Final = b"\xef\xbb\xbf"
"""Editors on Windows put it first; it is no part of the text."""


class TextFileError(Exception):
    """A file cannot be used; the text says why, names no path and shows nothing of the content."""


def read_text(
    path: Path,
    limit_bytes: int,
    *,
    private: bool = False,
    is_own_word: bool = False,
    within: Callable[[str], bool] | None = None,
) -> str:
    """The text of a regular file, without its byte order mark.

    Args:
        path: a symbolic link is followed.
        limit_bytes: a larger file is refused.
        private: refuse a file that is not ours, or that others may read or write.
        is_own_word: what it says is done in the user's name, so as root refuse one that another user may change.
        within: whether a file at this place, which is absolute and without links, may be read; None for anywhere.

    Raises:
        TextFileError: the file is missing, unreadable, not a regular file, too large, not private, another's, no UTF-8.
    """
    try:
        if is_own_word and os.geteuid() == ROOT and (problem := other_writer(path)):
            raise TextFileError(f"is not read as root: {problem}")
        # Without O_NONBLOCK a FIFO would hold us until somebody writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if within is not None and not within(_whereabouts(descriptor)):
                raise TextFileError("lies outside of the project, whose files may use only what is in it")
            _check(os.fstat(descriptor), private=private)
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(limit_bytes + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise TextFileError(f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise TextFileError("cannot be read: its path holds characters that no path may hold") from error
    if len(data) > limit_bytes:
        raise TextFileError(f"is larger than {limit_bytes} bytes")
    return _decode(data.removeprefix(_BOM))


def _whereabouts(descriptor: int) -> str:
    """What is open decides, not the path: a link on it may be swapped at any time."""
    from quarterdeck.kernel.files.walking import whereabouts

    return whereabouts(descriptor)


def _check(status: os.stat_result, *, private: bool) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise TextFileError("is not a regular file")
    if private and status.st_uid != os.geteuid():
        raise TextFileError("belongs to another user")
    if private and status.st_mode & 0o077:
        raise TextFileError(f"may be used by others (mode {stat.S_IMODE(status.st_mode):04o}): run chmod 600 on it")


def _decode(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise TextFileError(f"line {line}, column {column}: not UTF-8 text") from error
