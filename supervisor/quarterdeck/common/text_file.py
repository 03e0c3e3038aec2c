"""Read a small text file that a user named: bounded, never blocking, UTF-8; and tell who else may change it. Blocking.

A path is another user's word if that user may change its file, a directory that leads to it, or a link on the way; with
the sticky bit set (`/tmp`) others may add, but not replace.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck_sandbox import NotRegularError, ancestors, follow, open_regular, path_of_fd

ROOT: Final = 0

_MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark, which editors on Windows put first."""


class TextFileError(Exception):
    """A file cannot be used; the text says why, without its path and content."""


class MissingFileError(TextFileError):
    """The file does not exist."""


class TextFile(msgspec.Struct, frozen=True):
    """The text of a file without its byte order mark, that mark if it has one, and its status."""

    text: str
    mark: bytes
    status: os.stat_result


def read_text(
    path: Path,
    limit_bytes: int,
    *,
    private: bool = False,
    is_own_word: bool = False,
    within: Callable[[str], bool] | None = None,
) -> TextFile:
    """Read a regular file. Raise MissingFileError if there is none, TextFileError if it is unreadable, not a regular
    file, too large, not private, another's, or not UTF-8.

    Args:
        path: a symbolic link is followed.
        limit_bytes: a larger file is refused.
        private: refuse a file that is not ours, or that others may read or write.
        is_own_word: it speaks in the user's name, so as root refuse a file that another user may change.
        within: whether the file at this absolute path without links may be read; None for anywhere.
    """
    try:
        if is_own_word and os.geteuid() == ROOT and (problem := other_writer(path)):
            raise TextFileError(f"is not read as root: {problem}")
        with open_regular(path) as file:
            # What is open decides, not the path: a link on it may be swapped at any time.
            if within is not None and not within(path_of_fd(file.fileno())):
                raise TextFileError("lies outside of the project, whose files may use only what is in it")
            status = os.fstat(file.fileno())
            if private:
                _require_private(status)
            data = file.read(limit_bytes + 1)
    except FileNotFoundError as error:
        raise MissingFileError(f"cannot be read: {error.strerror}") from error
    except NotRegularError as error:
        raise TextFileError("is not a regular file") from error
    except OSError as error:
        raise TextFileError(f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise TextFileError("cannot be read: its path holds characters that no path may hold") from error
    if len(data) > limit_bytes:
        raise TextFileError(f"is larger than {limit_bytes} bytes")
    text = data.removeprefix(_MARK)
    return TextFile(_decode(text), data[: len(data) - len(text)], status)


def _require_private(status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise TextFileError("belongs to another user")
    if status.st_mode & 0o077:
        raise TextFileError(f"may be used by others (mode {stat.S_IMODE(status.st_mode):04o}): run chmod 600 on it")


def _decode(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise TextFileError(f"line {line}, column {column}: not UTF-8 text") from error


def other_writer(path: str | os.PathLike[str]) -> str | None:
    """Return who else may change what `path` names, as a sentence with the remedy, or None. Unreadable parts are
    skipped: opening the file reports them.
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
    """Return whether it is the user's own group, which many systems make for each user; root's has other members."""
    return os.geteuid() != ROOT and status.st_gid == os.getegid()


def _remedy(what: str, path: str) -> str:
    owner = "root" if os.geteuid() == ROOT else str(os.geteuid())
    return f"run `chown {owner} {path}`" if what == "chown" else f"run `chmod go-w {path}`"
