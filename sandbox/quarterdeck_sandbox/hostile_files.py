"""Read and remove files that a hostile program may have made.

Nothing here waits for the other end of a pipe, reads without a bound, or follows a link unless it says so.
What a file means, and what is said of one that cannot be used, is for whoever asks.  Blocking.
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

MAX_LINKS: Final = 40
"""Of one path; as many as the kernel follows."""

MAX_NAMES: Final = 5_000
"""Of one directory of a `HostileTree`."""

MAX_FILE_BYTES: Final = 1024 * 1024
"""Of one file of a `HostileTree`; a larger one counts as none."""

_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Without O_NONBLOCK a FIFO would hold us until somebody writes to it."""

_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_REMOVED: Final = " (deleted)"
"""What Linux appends to the path of a thing that is in no directory any more."""

_SHELL: Final = "/bin/sh"

_REMOVE_AT_END: Final = 'read -r _; chmod -R u+rwX -- "$FOLDER"; exec rm -rf -- "$FOLDER"'
"""Its stdin is a pipe from us, which the kernel closes when we end, however we do."""


class Followed(msgspec.Struct, frozen=True):
    """Where a path leads.

    Attributes:
        real: without any link; an existing path or not.
        links: (where, to what) in the order met; each `where` has no link in its own folder.
        endless: there are too many links to arrive.
    """

    real: str
    links: tuple[tuple[str, str], ...] = ()
    endless: bool = False


def follow(path: str, target_of: Callable[[str], str] | None = None) -> Followed:
    """Follow the symbolic links of the absolute `path` one by one, so that each is known.

    `target_of` says what the link at a path leads to, and nothing where there is none.
    """
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
    """What the link at `path` leads to, as it is written there; empty where there is no link."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def path_of_fd(fd: int) -> str:
    """Where the thing held open is at this moment, absolute and without links; where it was, if it was removed.

    Raises:
        OSError: nobody can tell.
    """
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
    """A directory, a pipe, a socket or a device is where a file was to be read."""


@contextmanager
def open_regular(
    path: str | os.PathLike[str], *, dir_fd: int | None = None, follow_link: bool = True
) -> Iterator[BinaryIO]:
    """A regular file, open for reading within the block.

    A relative path starts at `dir_fd`.  `follow_link` is about a link at its end; those before are always followed.

    Raises:
        NotRegularError: something else is there.
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
    """The first `most_bytes` of a regular file as text, what is no UTF-8 replaced; links are followed.

    Raises:
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        return file.read(most_bytes).decode(errors="replace")


class HostileTree:
    """A directory tree, opened by its root and read without leaving it.

    Every step is opened from the one before it and no link is followed, so that a swap between looking and opening
    leads nowhere else.

    Args:
        root: its own path may lead through symbolic links.

    Raises:
        OSError: the root cannot be opened.
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
        """What a directory holds, sorted, at most `MAX_NAMES`; nothing when there is none."""
        with suppress(OSError, ValueError), self._folder(steps) as fd, os.scandir(fd) as entries:
            return sorted(entry.name for entry in islice(entries, MAX_NAMES))
        return []

    def read(self, *steps: str) -> bytes | None:
        """A regular file's content; None when there is none that can be read whole."""
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
        """When a file or directory was last written, by the clock of its file system; 0 when there is none."""
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
    """A name of a directory's entry, and nothing that leads elsewhere."""
    if not step or "/" in step or step in {".", ".."}:
        raise ValueError(f"{step[:64]!r} is not the name of a file")
    return step


@contextmanager
def temporary_folder(prefix: str, place: str | None = None) -> Iterator[str]:
    """A folder's path, without symbolic links; it is removed in the end with all that is in it.

    It is made in `place`, or where the system keeps temporary files; a signal that kills us removes it too.
    `tempfile` does not do: before Python 3.11.8 it opens up what it may not remove through symbolic links
    (CVE-2023-6597), it raises on folders that are too deep, and a signal that ends us leaves its folders behind.
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
    """Within the block, a process waits for our end, to remove the folder then; it starts before the folder is made."""
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
    """Remove a folder with all that is in it, closed and deep ones too; what the system refuses to remove stays."""
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
