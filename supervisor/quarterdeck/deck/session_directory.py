"""The directory of one session of native tools: locked while the session lives, kept for a while after it.

    <state>/workspaces/<digest>/sessions/<ULID>/
        lock                       flock'ed by the process whose session it is; the kernel lets go when it dies
        checkpoints plans memory.md   kept; a session that leaves none of them leaves no directory
        outputs .indusvx-bg tmp    gone when the session ends

A directory is made and locked under a hidden name first, so that nobody takes one that is not locked yet for a dead
one.  Blocking; used from threads.
"""

import fcntl
import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from ulid import ULID

from quarterdeck.config.paths import SessionPaths, WorkspacePaths
from quarterdeck_sandbox.temporary import remove

KEPT_SESSIONS: Final = 20
"""Of one workspace, the live ones not counted; older ones are removed, with their checkpoints."""

STAGING_GRACE_S: Final = 60.0
"""A hidden directory is renamed within microseconds; a minute old, it was left by a process that died there."""

_NAME: Final = re.compile(r"\.?[0-9A-HJKMNP-TV-Z]{26}")
"""A ULID, sorted by time."""


class SessionDirectory:
    """A locked directory of this process; see `create`."""

    def __init__(self, paths: SessionPaths, lock: int) -> None:
        self.paths: Final = paths
        self._lock = lock

    @classmethod
    def create(cls, workspace: WorkspacePaths) -> Self:
        """Make one, and make room for it: the oldest dead ones beyond `KEPT_SESSIONS` are removed.

        Raises:
            UnsafePathError: a directory above it is not ours alone.
            OSError: it cannot be made.
        """
        workspace.create()
        name = str(ULID())
        staging = workspace.session(f".{name}")
        staging.directory.mkdir(mode=0o700)
        lock = os.open(staging.lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            staging.outputs.mkdir(mode=0o700)
            paths = workspace.session(name)
            staging.directory.rename(paths.directory)
        except BaseException:
            os.close(lock)
            shutil.rmtree(staging.directory, ignore_errors=True)
            raise
        prune(workspace)
        return cls(paths, lock)

    def close(self) -> None:
        """Remove what nobody needs any more, then let go of the lock.  Repeatable."""
        if self._lock < 0:
            return
        _forget(self.paths)
        for path in (self.paths.checkpoints, self.paths.plans):
            with suppress(OSError):
                path.rmdir()
        with suppress(OSError):  # somebody was faster
            if os.listdir(self.paths.directory) == [self.paths.lock.name]:
                shutil.rmtree(self.paths.directory, ignore_errors=True)
        os.close(self._lock)
        self._lock = -1


def prune(workspace: WorkspacePaths, keep: int = KEPT_SESSIONS) -> tuple[str, ...]:
    """Remove all but the `keep` newest sessions that have ended, and what was left by ones that were killed.

    A live one is never touched.

    Returns:
        the names of what was removed.
    """
    ended = [name for name in sorted(_names(workspace), reverse=True) if _has_ended(workspace.session(name))]
    whole = [name for name in ended if not name.startswith(".")]
    for name in whole[:keep]:
        _forget(workspace.session(name))
    removed = [*(name for name in ended if name.startswith(".")), *whole[keep:]]
    for name in removed:
        remove(str(workspace.session(name).directory))
    return tuple(removed)


def _forget(paths: SessionPaths) -> None:
    """Remove what is of no use without its session."""
    for path in (paths.outputs, paths.captures):
        shutil.rmtree(path, ignore_errors=True)
    remove(str(paths.tmp))  # closed or deep, as commands may have left it


def _names(workspace: WorkspacePaths) -> list[str]:
    try:
        return [name for name in os.listdir(workspace.sessions) if _NAME.fullmatch(name)]
    except FileNotFoundError:
        return []


def _has_ended(paths: SessionPaths) -> bool:
    """Whether no process holds the lock; of a half made one, whether its maker must be dead."""
    if paths.directory.name.startswith("."):
        return _age_s(paths.directory) > STAGING_GRACE_S
    try:
        lock = os.open(paths.lock, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return True  # it is being removed, or was half removed
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(lock)


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.lstat().st_mtime
    except OSError:
        return 0.0
