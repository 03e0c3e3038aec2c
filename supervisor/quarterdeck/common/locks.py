"""File locks (`flock`) that say whether a process lives: the kernel lets go of them when it dies.  Blocking."""

import errno
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

LOCK_NAME: Final = "lock"
"""Name of the locked file in a directory that lives as long as its process."""

STAGING_GRACE_S: Final = 60.0
"""Seconds after which a hidden directory counts as abandoned: it is renamed within microseconds."""

_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors that tell of us, not of a lock: it counts as held, or what is alive would be removed."""

POLL_S: Final = 0.01
"""Seconds between two attempts to take a held lock."""


def make_locked_directory(path: Path, fill: Callable[[Path], None] = lambda _: None) -> int:
    """Make the directory `path`, 0700, with a `LOCK_NAME` in it that this process holds. Return the lock's descriptor,
    which child processes do not inherit; closing it unlocks. Raise OSError if it cannot be made.

    It is made, locked and filled under a hidden name first, so that it is never visible unlocked or half made.
    """
    staging = path.with_name(f".{path.name}")
    staging.mkdir(mode=0o700)
    lock = -1
    try:
        lock = os.open(staging / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fill(staging)
        staging.rename(path)
    except BaseException:
        if lock >= 0:
            os.close(lock)
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return lock


def is_abandoned(path: Path) -> bool:
    """Whether the hidden directory `path` was left by a process that died while it made it."""
    try:
        return time.time() - path.lstat().st_mtime > STAGING_GRACE_S
    except OSError:
        return False


def tell(path: Path, said: bytes) -> int:
    """Write `said` of this process to the file at `path`, which is locked before it gets its name. Return the lock's
    descriptor, which child processes do not inherit; the words count until it is closed. Raise OSError and leave the
    old words if that fails.
    """
    draft = path.with_name(f".{path.name}.new")  # of one name, so that what a killed process left is taken away
    with suppress(FileNotFoundError):
        os.unlink(draft)
    fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(fd, said)
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        os.close(fd)
        raise
    return fd


def read_told(path: Path, max_bytes: int) -> bytes | None:
    """Return what a living process says of itself by `tell`; None without one."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return None if acquire(fd, operation=fcntl.LOCK_SH) else os.read(fd, max_bytes)
    except OSError:
        return None
    finally:
        os.close(fd)


def is_held(path: Path) -> bool:
    """Whether a process holds the lock at `path`; not when there is none: it is half made, or half removed."""
    with unless_held(path, fcntl.LOCK_SH) as is_free:
        return not is_free


@contextmanager
def unless_held(path: Path, operation: int = fcntl.LOCK_EX) -> Iterator[bool]:
    """Yield whether the lock at `path` is free; if so, hold it (`LOCK_EX` or `LOCK_SH`) inside the block."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        yield error.errno not in _NO_ROOM
        return
    try:
        try:
            is_free = acquire(lock, operation=operation)
        except OSError:
            is_free = False
        yield is_free
    finally:
        os.close(lock)


def acquire(
    fd: int, wait_s: float = 0.0, *, operation: int = fcntl.LOCK_EX, given_up: threading.Event | None = None
) -> bool:
    """Lock an open file. Return whether that was possible within `wait_s`, and before `given_up` was set.

    Raise OSError if it cannot be locked at all.
    """
    given_up, deadline = given_up or threading.Event(), time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline or given_up.wait(POLL_S):
                return False
        else:
            return True


@contextmanager
def holding_directory(path: Path, wait_s: float) -> Iterator[None]:
    """Hold a lock for changing files of this directory inside the block. Raise TimeoutError if another process holds it
    for longer than `wait_s`, OSError if the directory cannot be locked.
    """
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not acquire(lock, wait_s):
            raise TimeoutError(errno.ETIMEDOUT, "another command changes it")
        yield
    finally:
        os.close(lock)
