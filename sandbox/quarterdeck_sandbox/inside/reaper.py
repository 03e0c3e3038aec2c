"""The resident parent of a program where no PID namespace holds its tree together: nothing outlives this process.

Every orphan of the tree comes here (Linux).  When the program ends, or the leash is dropped by an owner who is gone
or wants it all to end, whatever is left is killed: at one stroke where Landlock lets our signals reach nothing else;
elsewhere it is stopped first, so that it hardly can fork ahead of us.  We exit as the program did: its status, or 128
plus the number of its signal.
"""

import os
import select
import signal
import sys
import time

import gate
import kernel

KILL_ROUNDS = 2000
"""Of two milliseconds: four seconds, then we leave the rest to our owner's own sweep."""

ROUND_S = 0.002
NO_STATUS = 137
"""As if killed: the program was gone before anybody could ask."""


def main(control: str, leash: str, wants_apart: str = "0", oom_score: "str | None" = None) -> None:
    """Never returns.

    `control` and `leash` are descriptors; `wants_apart` is 1 where the program will be confined by Landlock, and so may
    we; `oom_score` is what we and all below us get, None where the system has no scores.
    """
    control_fd, leash_fd = int(control), int(leash)
    gate.raise_oom_score(oom_score)
    kernel.adopt_orphans()
    # Not killed: it has to end what it adopted.  But one that is stopped does not see that the leash was dropped.
    kernel.tell_end_of_parent(signal.SIGCONT)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    is_apart = wants_apart == "1" and _set_apart()
    parent = os.getpid()
    program = os.fork()
    if program == 0:
        os.close(leash_fd)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        kernel.die_with_parent()
        if os.getppid() == parent:
            gate.main(control_fd)
        os._exit(gate.EXIT_REFUSED)
    for fd in (control_fd, 0, 1, 2):
        os.close(fd)
    status = _wait(program, leash_fd)
    status = _kill_all(program, status, is_apart=is_apart)
    os._exit(NO_STATUS if status is None else _exit_status(status))


def _set_apart() -> bool:
    """Whether our signals reach nothing but what is below us, from here on."""
    if kernel.abi() < kernel.SCOPES_SINCE:
        return False
    kernel.forbid_new_privileges()
    kernel.set_apart(with_files=True)
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:
        return True
    return False  # what reaches our owner would reach the whole machine


def _wait(program: int, leash_fd: int) -> int | None:
    """Reap until the program has ended or the leash is dropped; the program's status, if it is known."""
    wake_r, wake_w = os.pipe()
    os.set_blocking(wake_r, False)
    os.set_blocking(wake_w, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    while True:
        status, _ = _reap(program)
        if status is not None:
            return status
        readable, _, _ = select.select([leash_fd, wake_r], [], [])
        if wake_r in readable:
            os.read(wake_r, 4096)
        if leash_fd in readable and not os.read(leash_fd, 1):
            return None


def _reap(program: int) -> tuple[int | None, bool]:
    """Take every child that has ended; the program's wait status when it is one of them, and whether any is left."""
    found = None
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return found, True
            if pid == program:
                found = status
    except ChildProcessError:
        return found, False


def _kill_all(program: int, status: int | None, *, is_apart: bool) -> int | None:
    for _ in range(KILL_ROUNDS):
        if is_apart:
            # All that we may signal, but for ourselves; no fork is faster, the kernel holds them all up for it.
            _send([-1], signal.SIGKILL)
        else:
            alive = _descendants() if sys.platform == "linux" else [-program]  # its group: all that can be told
            _send(alive, signal.SIGSTOP)
            _send(alive, signal.SIGKILL)
        reaped, is_any_left = _reap(program)
        status = reaped if status is None else status
        if not is_any_left:
            break
        time.sleep(ROUND_S)
    return status


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass  # gone, or under a user of its own making that we may not touch


def _descendants() -> list[int]:
    """Every process below us."""
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        pid = todo.pop()
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as children:
                    below = [int(child) for child in children.read().split()]
                found += below
                todo += below
        except OSError:
            continue
    return found


def _exit_status(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
