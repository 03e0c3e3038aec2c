"""The folder of a run: held as long as the run lives, and removed by a later run when it is no longer held.

A run that is killed removes nothing. The hold is a lock on the folder itself, which the kernel releases with the last
process that has it: the controller, and the supervisor, which may still be ending its servers.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

PREFIX: Final = "qd-run-"  # of the folder's name; `RANDOM_CHARS` follow
RANDOM_CHARS: Final = 8
SOCKET_NAME: Final = "s"
MAX_SOCKET_PATH_BYTES: Final = 103  # `sun_path` has 104 bytes on macOS and the BSDs (108 on Linux), the last one a NUL
_KEPT_NAME: Final = "kept"  # a file in a folder that its run has left for inspection


def make_held_folder() -> tuple[str, int]:
    """Make a folder. Return it with the descriptor that holds it; the folders of dead runs beside it are removed."""
    parent = _parent()
    sweep(parent, PREFIX)
    return make_held(parent, PREFIX)


def make_held(parent: str, prefix: str) -> tuple[str, int]:
    """Make a folder in `parent`, which no `sweep` removes while a process has the returned descriptor."""
    while True:
        folder = tempfile.mkdtemp(prefix=prefix, dir=parent)
        with suppress(FileNotFoundError):  # it was swept before it was held
            return folder, _hold(folder, needs_lock=False)


def keep(folder: str) -> None:
    """Protect it from later runs."""
    Path(folder, _KEPT_NAME).touch()


def sweep(parent: str, prefix: str) -> None:
    """Remove our own folders of this prefix that are neither held nor kept."""
    with os.scandir(parent) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(prefix)]
    for folder in found:
        try:
            held = _hold(folder, needs_lock=True)
        except OSError:
            continue  # a live run's, or nothing that a run has made
        if os.fstat(held).st_uid == os.geteuid() and not os.path.lexists(os.path.join(folder, _KEPT_NAME)):
            shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def _hold(folder: str, *, needs_lock: bool) -> int:
    """Return a descriptor of the folder, locked; unlocked on a file system without locks, unless it `needs_lock`.

    Raise `FileNotFoundError` if the folder is gone or another run's, `OSError` if it cannot be opened or locked.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileNotFoundError(folder) from None
        except OSError:
            if needs_lock:
                raise
        if not os.path.samestat(os.fstat(fd), os.lstat(folder)):
            raise FileNotFoundError(folder)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _parent() -> str:
    """Return the usual place for temporary files; `/tmp` if a socket's path would be too long there."""
    usual = tempfile.gettempdir()
    length = len(os.fsencode(usual)) + len(f"/{PREFIX}") + RANDOM_CHARS + len(f"/{SOCKET_NAME}")
    return usual if length <= MAX_SOCKET_PATH_BYTES else "/tmp"  # noqa: S108 - the folder in it is ours alone
