"""Read a small file that a user named: bounded, never blocking, as UTF-8 text.

Below every reader of this package; knows nothing of what the text means.

Tell whether somebody other than the user and root may change what a path names.

Above: readers of what is the user's own word.  A path is another's word when its file, a directory that leads to it,
or a link on the way may be changed by another; where the sticky bit is set (`/tmp`) others may add, but not replace.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from quarterdeck_sandbox.hostile_files import follow
from quarterdeck_sandbox.view.paths import ancestors

ROOT: Final = 0


def other_writer(path: str | os.PathLike[str]) -> str | None:
    """Who else may change what `path` names, as a sentence about it with the remedy; None for nobody.

    What cannot be looked at is nobody's: whoever opens it says why.
    """
    followed = follow(os.path.join(os.getcwd(), os.fspath(path)))
    own = {ROOT, os.geteuid()}
    for place in (followed.real, *(link for link, _ in followed.links)):
        for step in ancestors(place):
            try:
                status = os.lstat(step)
            except OSError:
                continue
            if problem := _problem(step, status, own):
                return problem
    return None


def _problem(path: str, status: os.stat_result, own: set[int]) -> str | None:
    if status.st_uid not in own:
        return f"{path} belongs to uid {status.st_uid}, who can change what is read: {_remedy('chown', path)}"
    if stat.S_ISLNK(status.st_mode) or (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
        return None
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_own_group(status)):
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        return f"{path} may be changed by other users (mode {mode}): {_remedy('chmod', path)}"
    return None


def _is_own_group(status: os.stat_result) -> bool:
    """Many systems give each user a group of their own, which nobody else is in; root's is another matter."""
    return os.geteuid() != ROOT and status.st_gid == os.getegid()


def _remedy(what: str, path: str) -> str:
    owner = "root" if os.geteuid() == ROOT else str(os.geteuid())
    return f"run `chown {owner} {path}`" if what == "chown" else f"run `chmod go-w {path}`"


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
    from .path_walk import whereabouts

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
