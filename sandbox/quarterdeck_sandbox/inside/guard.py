"""What ends a bubblewrap together with its owner until bubblewrap itself can: a child that stays behind in its group.

bwrap asks for a death signal only after it has made the first process of its sandbox, and that one asks only once it is
told to go on.  Whoever kills bwrap between the two, as its owner's end does, leaves a process that waits for ever for
what nobody will say.  It is still in the process group that bwrap leads: the guard, which is in there too, kills that
when the leash is dropped.  A byte at the leash says that it is needed no more.
"""

import os
import signal

import gate


def main(leash: str, oom_score: str, *argv: str) -> None:
    """Leave a guard at the descriptor `leash`, and replace this process by `argv`, with its program as a path.

    Both get the score `oom_score`, unless it is empty: inside bubblewrap scores are read-only.
    """
    leash_fd = int(leash)
    gate.raise_oom_score(oom_score or None)
    if os.getpgrp() != os.getpid():
        os._exit(gate.EXIT_REFUSED)  # what is killed must be ours alone
    if os.fork() == 0:
        _watch(leash_fd)
    os.close(leash_fd)
    try:
        os.execv(argv[0], argv)  # noqa: S606 - the whole point
    except OSError:
        os._exit(gate.EXIT_NO_EXEC)


def _watch(leash: int) -> None:
    for fd in (0, 1, 2):
        os.close(fd)
    gate.close_others(leash)
    if not os.read(leash, 1):
        os.kill(0, signal.SIGKILL)
    os._exit(0)
