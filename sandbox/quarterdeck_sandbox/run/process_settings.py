"""Settings of our own processes: open files, who is killed first for memory, the allocator, adoption."""

import ctypes
import os
import resource
import signal
import sys
from enum import IntEnum
from pathlib import Path
from typing import Final

_PORTABLE: Final = 10_240  # open files: the most that macOS takes where the hard limit is none (OPEN_MAX)


class OomScore(IntEnum):
    """Points above the supervisor's; a thousand is the whole memory of the machine."""

    ZYGOTE = 150
    WORKER = 300
    CONFINED = 600


MOST_OOM_SCORE: Final = 1000
_SCORE: Final = Path("/proc/self/oom_score_adj")

ALONE_BYTES: Final = 128 * 1024
"""Blocks of memory from this size on are mapped alone: glibc's own first choice."""

_M_MMAP_THRESHOLD: Final = -3
_SET_DEATH_SIGNAL: Final = 1
_SET_CHILD_SUBREAPER: Final = 36
LIBC: Final = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long

_open_files_before: int | None = None

_raised = 0  # by how much this process's score is above the supervisor's; a fork goes on from it


def raise_open_files_limit() -> int:
    """Raise the soft limit of open files to the hard one, and return it.

    A program that uses `select` breaks above 1,024 files, so children start with `open_files_of_children`, the old
    limit.
    """
    global _open_files_before
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, _PORTABLE):
        if soft != resource.RLIM_INFINITY and (wanted == resource.RLIM_INFINITY or wanted > soft):
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            except (OSError, ValueError):
                continue  # more than this system takes
            _open_files_before = soft if _open_files_before is None else _open_files_before
            break
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def open_files_of_children() -> int:
    """Return the soft limit for children, with which this process was started; 0 if none was raised."""
    return _open_files_before or 0


def raise_oom_score(points: int) -> None:
    """Have this process killed sooner when memory runs out (Linux): `points` above the supervisor's.

    Servers go first, then workers, then the zygote, and the supervisor last.  A process without rights may only raise
    its score, so each is raised from its parent's.  What is confined raises its own before its program begins (the
    gate, or what is started before it).  With limits alone, the program may lower it again, to ours; a read-only /proc
    in bubblewrap, and Landlock, forbid that.
    """
    global _raised
    if (present := _present()) is None or points <= _raised:
        return
    try:
        with open(_SCORE, "wb", buffering=0) as file:
            file.write(b"%d" % min(MOST_OOM_SCORE, present + points - _raised))
    except OSError:
        return  # a container that forbids it
    _raised = points


def oom_score_of_confined() -> int | None:
    """Return the score of a program that this process confines; None if the system has no scores."""
    present = _present()
    return None if present is None else min(MOST_OOM_SCORE, present + OomScore.CONFINED - _raised)


def _present() -> int | None:
    try:
        with open(_SCORE, "rb", buffering=0) as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def give_back_large_blocks() -> bool:
    """Have glibc return large blocks of memory as soon as they are free; return whether it will, here and in forks.

    By itself glibc moves the size from which a block is mapped alone up to that of the largest block that was freed, at
    most 32 MiB.  From then on a large result lies in the heap, and one small object behind it keeps all of it: after
    some dozens of aborted large results a `serve` stayed at their peak.  Here the size is fixed.  Not for embedding
    programs: their memory is their own.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(LIBC, "mallopt", None)  # musl has none, and needs none
    return mallopt is not None and mallopt(_M_MMAP_THRESHOLD, ALONE_BYTES) == 1


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends (Linux)."""
    control_process(_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Be killed when the thread that started us ends (Linux); the caller checks that it had not ended before."""
    control_process(_SET_DEATH_SIGNAL, signal.SIGKILL)


def set_process_name(name: bytes) -> None:
    """Be called `name`, of which the kernel keeps 15 bytes."""
    with open("/proc/self/comm", "wb", buffering=0) as file:
        file.write(name)


def control_process(option: int, *arguments: int) -> None:
    """Call prctl(2); elsewhere than on Linux do nothing.  Raise OSError if the kernel refuses."""
    if sys.platform != "linux":
        return
    # Variadic in C: each argument must be a whole register, and those that are not used zero.
    whole = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    if LIBC.prctl(option, *whole) < 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}: {os.strerror(ctypes.get_errno())}")
