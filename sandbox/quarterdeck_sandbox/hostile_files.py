"""Read the beginning of a file that a hostile program may have made: bounded, and never waiting for anybody.

Follow symbolic links one by one, so that each is known.

A temporary folder that a hostile program could write to, and its removal whatever that has left there.

`tempfile` cannot: before Python 3.11.8 it opens up what it may not remove through symbolic links (CVE-2023-6597), it
gives up with an exception on folders that are too deep, and a signal that ends us leaves its folders behind.
"""

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

MAX_LINKS: Final = 40
"""Of one path; as many as the kernel follows."""


@dataclass(frozen=True, slots=True)
class Followed:
    """Where a path leads.

    Attributes:
        real: without any link; an existing path or not.
        links: (where, to what) in the order met; each `where` has no link in its own folder.
        endless: there are too many links to arrive.
    """

    real: str
    links: tuple[tuple[str, str], ...] = ()
    endless: bool = False


def follow(path: str) -> Followed:
    """Follow the absolute `path`."""
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
        try:
            target = os.readlink(here)
        except OSError:
            done = here
            continue
        if len(links) == MAX_LINKS:
            return Followed(here, tuple(links), endless=True)
        links.append((here, target))
        if target.startswith("/"):
            done = ""
        pending += target.split("/")[::-1]
    return Followed(done or "/", tuple(links))


_SHELL: Final = "/bin/sh"

_REMOVE_AT_END: Final = 'read -r _; chmod -R u+rwX -- "$FOLDER"; exec rm -rf -- "$FOLDER"'
"""Its stdin is a pipe from us, which the kernel closes when we end, however we do."""


@contextmanager
def temporary_folder(prefix: str, place: str | None = None) -> Iterator[str]:
    """Its path, without symbolic links; it and all that is in it are removed in the end, when nothing writes there.

    It is made in `place`, or where the system keeps temporary files; a signal that kills us removes it too.
    """
    folder = os.path.join(os.path.realpath(place or tempfile.gettempdir()), prefix + secrets.token_hex(8))
    with _removed_if_killed(folder):
        os.mkdir(folder, 0o700)
        try:
            yield folder
        finally:
            remove(folder)


@contextmanager
def _removed_if_killed(folder: str) -> Iterator[None]:
    """Within the block, a process waits for our end, to remove the folder then; it starts before the folder is made."""
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


def remove(folder: str) -> None:
    """Remove it with all that is in it, closed and deep folders too; what the system refuses to remove stays."""
    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
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


def read_text(path: str, most_bytes: int) -> str:
    """Its first `most_bytes` as text, what is no UTF-8 replaced; a pipe that nobody writes to is empty.

    Raises:
        OSError: it cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with open(fd, "rb") as file:
        return (file.read(most_bytes) or b"").decode(errors="replace")
