"""Starts of sandboxes that come no further than their clone: bwrap has made a process, and does not let it go on.

What it tells its owner in between does not fit into the pipe.  As a program, `stuck_starts.py HOME` begins one,
says the pids of all its processes, and waits to be killed.
"""

import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import FileIO
from pathlib import Path
from typing import Final

import psutil
import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from quarterdeck_protocol.policy_values import Tier
from quarterdeck_sandbox.policy.confinement import Confinement
from quarterdeck_sandbox.run import spawn
from support.sandbox.confinements import TierHome, this_machine
from support.waiting import eventually

PIPE_BYTES: Final = 4096
"""The kernel's smallest pipe."""

_PROCESSES: Final = 3
"""bwrap, its guard, and the first process of the sandbox."""


@contextmanager
def stuck() -> Iterator[None]:
    """Within the block, what bwrap tells its owner does not fit."""
    made = spawn.pipe
    pipes: list[FileIO] = []

    def full(cleanup: ExitStack) -> tuple[FileIO, FileIO]:
        read, write = made(cleanup)
        if not pipes:
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            write.write(b" " * PIPE_BYTES)
        pipes.append(write)
        return read, write

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spawn, "pipe", full)
        yield


def confinement(place: TierHome) -> Confinement:
    return place.shell("sleep 1000", machine=this_machine())


def pids_of(leader: int) -> list[int]:
    """Those of a start that is stuck: of its bwrap, which is given, and of what is in its process group."""

    def group() -> list[int]:
        return [process.pid for process in psutil.Process(leader).children() if os.getpgid(process.pid) == leader]

    return [leader, *eventually(lambda: len(found := group()) == _PROCESSES - 1 and found)]


def main(home: str) -> None:
    """Begin one, say its pids, wait."""
    confined = confinement(TierHome(Tier.BUBBLEWRAP, Path(home)))
    with ExitStack() as pipes, stuck():
        channel = spawn.GateChannel()
        child, *_ = spawn.spawn_bubblewrap(confined, channel.theirs.fileno(), spawn.Stdio.PIPES, pipes)
        sys.stdout.write(" ".join(map(str, pids_of(child.pid))) + "\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
