"""Read and remove files that a hostile program may have made.

Nothing here waits for the other end of a pipe, reads without a bound, or follows a link unless it says so.  Blocking.
"""

import errno
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import msgspec

if sys.platform == "darwin":
    import fcntl

MAX_LINKS: Final = 40  # of one path; as many as the kernel follows
MAX_NAMES: Final = 5_000  # of one directory of a `HostileTree`
MAX_FILE_BYTES: Final = 1024 * 1024  # of one file of a `HostileTree`; a larger one is not read

_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Without O_NONBLOCK a FIFO would block us until another process writes to it."""

_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_REMOVED: Final = " (deleted)"  # Linux appends this to the path of a file that no longer has a name
_SHELL: Final = "/bin/sh"

_REMOVE_AT_END: Final = 'read -r _; chmod -R u+rwX -- "$FOLDER"; exec rm -rf -- "$FOLDER"'
"""Its stdin is our pipe, which the kernel closes at our end, however we end."""


class Followed(msgspec.Struct, frozen=True):
    """Where a path leads."""

    real: str  # without any link; an existing path or not
    # (where, to what) in the order met; each `where` has no link in its own folder
    links: tuple[tuple[str, str], ...] = ()
    endless: bool = False  # there are too many links to arrive


def follow(path: str, target_of: Callable[[str], str] | None = None) -> Followed:
    """Follow the links of the absolute `path` one by one; `target_of` returns a link's target, or an empty text."""
    target_of = target_of or link_target
    pending, done = path.split("/")[::-1], ""
    links: list[tuple[str, str]] = []
    while pending:
        part = pending.pop()
        if part in {"", "."}:
            continue
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        here = f"{done}/{part}"
        if not (target := target_of(here)):
            done = here
            continue
        if len(links) == MAX_LINKS:
            return Followed(here, tuple(links), endless=True)
        links.append((here, target))
        if target.startswith("/"):
            done = ""
        pending += target.split("/")[::-1]
    return Followed(done or "/", tuple(links))


def link_target(path: str) -> str:
    """Return the text of the link at `path`; empty if there is no link."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def path_of_fd(fd: int) -> str:
    """Return an open file's path, absolute, without links; its last one if removed.  Raise OSError if unknown."""
    if sys.platform == "darwin":
        return os.fsdecode(fcntl.fcntl(fd, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    try:
        place = os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:
        reason = "without /proc, which is not mounted here, no path can be judged"
        raise OSError(errno.ENOSYS, reason) from None
    if not place.endswith(_REMOVED):
        return place
    with suppress(OSError):
        if os.path.samestat(os.lstat(place), os.fstat(fd)):
            return place  # it really bears that name
    return place.removesuffix(_REMOVED)


class NotRegularError(OSError):
    """A directory, pipe, socket or device instead of a regular file."""


@contextmanager
def open_regular(
    path: str | os.PathLike[str], *, dir_fd: int | None = None, follow_link: bool = True
) -> Iterator[BinaryIO]:
    """Open a regular file for reading. A relative path starts at `dir_fd`; `follow_link` applies to the last component
    only.

    Raises:
        NotRegularError: it is another kind of file.
        OSError: it cannot be opened.
    """
    fd = os.open(path, _READ | (0 if follow_link else os.O_NOFOLLOW), dir_fd=dir_fd)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NotRegularError(errno.EINVAL, "it is not a regular file")
        with open(fd, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(fd)


def read_text(path: str, most_bytes: int) -> str:
    """Return the first `most_bytes` of a regular file, invalid UTF-8 replaced.  Raise OSError if unreadable."""
    with open_regular(path) as file:
        return file.read(most_bytes).decode(errors="replace")


class HostileTree:
    """A directory tree, opened by its root (through links, if need be; OSError if impossible) and read without leaving
    it.

    Every step is opened from the one before it and no link is followed, so a swap between look and open leads nowhere
    else.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._root)

    def names(self, *steps: str) -> list[str]:
        """Return a directory's entries, sorted, at most `MAX_NAMES`; empty if there is no directory."""
        with suppress(OSError, ValueError), self._folder(steps) as fd, os.scandir(fd) as entries:
            return sorted(entry.name for entry in islice(entries, MAX_NAMES))
        return []

    def read(self, *steps: str) -> bytes | None:
        """Return a regular file's content; None if it cannot be read whole."""
        try:
            with (
                self._folder(steps[:-1]) as fd,
                open_regular(_checked(steps[-1]), dir_fd=fd, follow_link=False) as file,
            ):
                data = file.read(MAX_FILE_BYTES + 1)
        except (OSError, ValueError):
            return None
        return data if len(data) <= MAX_FILE_BYTES else None

    def changed_at(self, *steps: str) -> float:
        """Return when a file or directory was last written, by its file system's clock; 0 if there is none."""
        with suppress(OSError, ValueError), self._folder(steps[:-1]) as fd:
            status = os.stat(_checked(steps[-1]), dir_fd=fd, follow_symlinks=False)
            return 0.0 if stat.S_ISLNK(status.st_mode) else status.st_mtime
        return 0.0

    @contextmanager
    def _folder(self, steps: tuple[str, ...]) -> Iterator[int]:
        current = os.dup(self._root)
        try:
            for step in steps:
                inner = os.open(_checked(step), _LIST, dir_fd=current)
                os.close(current)
                current = inner
            yield current
        finally:
            os.close(current)


def _checked(step: str) -> str:
    """Return `step` if it names a directory's entry and leads nowhere else."""
    if not step or "/" in step or step in {".", ".."}:
        raise ValueError(f"{step[:64]!r} is not the name of a file")
    return step


@contextmanager
def temporary_folder(prefix: str, place: str | None = None) -> Iterator[str]:
    """Make a folder in `place`, or where the system keeps temporary files; yield its path, which has no links; remove
    it.

    A signal that kills us removes it, too.  `tempfile` does not do: before Python 3.11.8 it opens up through links what
    it may not remove (CVE-2023-6597), it raises on folders that are too deep, and a signal that ends us leaves its
    folders.
    """
    import tempfile  # imported only here: `ps` needs no temporary folder

    folder = os.path.join(os.path.realpath(place or tempfile.gettempdir()), prefix + secrets.token_hex(8))
    with _removed_if_killed(folder):
        os.mkdir(folder, 0o700)
        try:
            yield folder
        finally:
            remove_tree(folder)


@contextmanager
def _removed_if_killed(folder: str) -> Iterator[None]:
    """Have another process, started before the folder is made, remove the folder if we end within the block."""
    import subprocess

    try:
        waiting = subprocess.Popen(
            [_SHELL, "-c", _REMOVE_AT_END],
            env={"PATH": os.defpath, "FOLDER": folder},  # our PATH may begin with a folder that the program can write
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # a signal to our process group is not for it
        )
    except OSError:
        yield  # without a shell, or another process, the folder is removed at the end of the block alone
        return
    with waiting:
        try:
            yield
        finally:
            waiting.kill()


def remove_tree(folder: str) -> None:
    """Remove a folder with its content, closed and deep parts included; what the system refuses to remove stays."""
    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        import subprocess

        # Neither of them follows a link that it meets, or has a limit of depth.
        for command in (("chmod", "-R", "u+rwX"), ("rm", "-rf")):
            with suppress(OSError):
                subprocess.run(
                    [*command, "--", folder],
                    check=False,
                    env={"PATH": os.defpath},  # on ours may be a folder that the program could write to
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
