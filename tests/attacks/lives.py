"""Processes that refuse to end, or hide from whoever ends them.  Each says START once it is what it wants to be."""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from arena import life


def flag(name: str) -> Path:
    """The file that tells of a start."""
    return Path(tempfile.gettempdir()) / f"{name}.started"


def started(name: str) -> None:
    """Say so, at once, even where stdout is somebody else's business afterwards."""
    os.write(1, f"START {name}\n".encode())
    flag(name).touch()


def stay() -> None:
    """For ever."""
    while True:
        time.sleep(1)


def deaf() -> None:
    """To every signal that can be ignored."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(number, signal.SIG_IGN)


def leave() -> None:
    """Become a daemon: a session of its own, and an orphan."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)


@life
def silent_hang() -> None:
    """Neither reads nor writes."""
    started("silent_hang")
    stay()


@life
def ignore_signals() -> None:
    """Ignores whatever can be ignored."""
    deaf()
    started("ignore_signals")
    stay()


@life
def stop_self() -> None:
    """A stopped process takes no TERM."""
    started("stop_self")
    os.kill(os.getpid(), signal.SIGSTOP)


@life
def double_fork_daemon() -> None:
    """Nobody's child any more."""
    leave()
    deaf()
    started("double_fork_daemon")
    stay()


@life
def daemon_with_closed_pipes() -> None:
    """The same, and no pipe tells of it."""
    leave()
    deaf()
    started("daemon_with_closed_pipes")
    for fd in range(64):
        try:
            os.close(fd)
        except OSError:
            continue
    stay()


@life
def fork_ahead() -> None:
    """A new process for every one that is found: whoever kills the list that he has read kills the past."""
    leave()
    deaf()
    started("fork_ahead")
    while True:
        if os.fork():
            os._exit(0)
        time.sleep(0.0005)


@life
def clear_death_signal() -> None:
    """Does not want to hear of the death of whoever started it."""
    import ctypes

    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
    leave()
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
    started("clear_death_signal")
    stay()


@life
def adopt_orphans() -> None:
    """Wants to be the parent of whatever is orphaned below it, so that nobody above sees it."""
    import ctypes

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    leave_child = os.fork()
    if leave_child == 0:
        leave()
        deaf()
        started("adopt_orphans")
        stay()
    deaf()
    stay()


@life
def change_name() -> None:
    """Looks like a part of the kernel."""
    import ctypes

    leave()
    ctypes.CDLL(None).prctl(15, b"kworker/0:1", 0, 0, 0)
    started("change_name")
    stay()


@life
def hold_pipes() -> None:
    """Its parent ends, but the pipes stay open."""
    if os.fork():
        os._exit(0)
    started("hold_pipes")
    stay()


@life
def close_stdout() -> None:
    """Nobody will hear from it again, but it lives."""
    started("close_stdout")
    os.close(1)
    os.close(2)
    stay()


@life
def stopped_family() -> None:
    """Children that are stopped, in sessions of their own, some of them zombies."""
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            os.kill(os.getpid(), signal.SIGSTOP)
        if os.fork() == 0:
            os._exit(0)
    started("stopped_family")
    stay()


@life
def many_threads() -> None:
    """A process whose first thread has ended looks dead and is not."""
    import ctypes
    import threading

    threading.Thread(target=stay).start()
    started("many_threads")
    sys.stdout.flush()
    ctypes.CDLL(None).pthread_exit(None)


@life
def usurp_init() -> None:
    """Turns the first process of its namespace into one that neither ends nor hears of its owner's death."""
    # prctl(PR_SET_PDEATHSIG, 0), then pause() for ever; only for x86-64, elsewhere it just stays.
    code = b"\xbf\x01\x00\x00\x00\x31\xf6\xb8\x9d\x00\x00\x00\x0f\x05\xb8\x22\x00\x00\x00\x0f\x05\xeb\xf7"
    try:
        if Path("/proc/1/comm").read_text() != "bwrap\n":
            raise ProcessLookupError  # somebody else's: leave it alone
        instruction = int(Path("/proc/1/syscall").read_text().split()[-1], 16)
        with open("/proc/1/mem", "r+b", buffering=0) as memory:
            memory.seek(instruction)
            memory.write(code)
    except OSError:
        pass
    # An orphan's end wakes it.
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.05)
        os._exit(0)
    time.sleep(0.2)
    started("usurp_init")
    stay()
