"""Spawn what a sandbox begins with: bwrap, which makes the namespaces and blocks, or a reaper.  The gate follows.

Nothing is awaited here: who is spawned is owned from its first moment.
"""

import marshal
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from enum import Enum
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Final

from quarterdeck_protocol.policy import Tier
from quarterdeck_sandbox.enforce import bubblewrap
from quarterdeck_sandbox.view.closed_paths import outermost, steps
from quarterdeck_sandbox.view.mounts import MountKind

from .confinement import Confinement
from .process_settings import oom_score_of_confined
from .unnamed_file import unnamed_file

GATE_FOLDER: Final = str(Path(__file__).parents[1] / "inside")

INTERPRETER: Final = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
"""What runs the gate: ours without its virtual environment, of which the gate needs nothing."""

BOOT: Final = "import sys; sys.path.insert(0, sys.argv[1]); import {0}; {0}.main(*map(int, sys.argv[2:]))"
"""The gate's folder is not on an isolated interpreter's path; imported as modules, they need not be compiled anew."""


class Stdio(Enum):
    """What a process's three standard streams are."""

    PIPES = "pipes"
    FOREGROUND = "foreground"
    """Stdin and stdout are ours, stderr is a pipe: somebody tries a command out."""


def spawn_bubblewrap(
    confinement: Confinement, control_fd: int, stdio: Stdio, pipes: ExitStack
) -> tuple[subprocess.Popen[bytes], FileIO, FileIO]:
    """The child, where it tells of itself, and what it waits for; the pipes end with `pipes`.

    Args:
        confinement: what to build.
        control_fd: the gate's end of its conversation.
        stdio: what the program's streams are.
        pipes: owns both pipes.
    """
    info, info_w = _pipe(pipes)
    blocked, block = _pipe(pipes)
    with ExitStack() as cleanup:
        fds: list[int] = []
        put = partial(_put, cleanup, fds)
        gate_fds = [control_fd]
        ends: list[FileIO] = []
        if stdio is Stdio.PIPES:
            # Past bwrap, which would hold them open: that the program closed its stdout must be seen.
            stdin, stdin_w = _pipe(cleanup)
            stdout, stdout_w = _pipe(cleanup)
            gate_fds += [stdin.fileno(), stdout_w.fileno()]
            ends = [stdin_w, stdout]
        fds += gate_fds
        words = bubblewrap.arguments(confinement, GATE_FOLDER, put)
        flags = ["--args", str(put("\0".join(words) + "\0")), "--info-fd", str(info_w.fileno())]
        flags += ["--block-fd", str(blocked.fileno())]
        if confinement.seccomp:
            flags += ["--seccomp", str(put(confinement.seccomp))]
        argv = [confinement.machine.bubblewrap.path, *flags, "--", *_gate(bubblewrap.INSIDE, "gate", *gate_fds)]
        fds += [info_w.fileno(), blocked.fileno()]
        devices = bubblewrap.fixed_devices(confinement)
        child = _popen(_closed_first(confinement, argv, put, devices), fds, subprocess.DEVNULL if ends else None)
        if ends:
            child.stdin, child.stdout = (FileIO(os.dup(end.fileno()), end.mode) for end in ends)
    info_w.close()
    blocked.close()
    return child, info, block


def spawn_reaper(confinement: Confinement, control_fd: int, stdio: Stdio) -> tuple[subprocess.Popen[bytes], int]:
    """The child, and its leash: closed, it kills all that it has adopted; Landlock helps where it confines them."""
    leash, ours = os.pipe()
    try:
        with ExitStack() as cleanup:
            fds = [control_fd, leash]
            numbers = [*fds, int(confinement.tier is Tier.LANDLOCK)]
            if (score := oom_score_of_confined()) is not None:
                numbers.append(score)
            argv = _gate(GATE_FOLDER, "reaper", *numbers)
            argv = _closed_first(confinement, argv, partial(_put, cleanup, fds))
            return _popen(argv, fds, subprocess.PIPE if stdio is Stdio.PIPES else None), ours
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(leash)


def _closed_first(
    confinement: Confinement, argv: list[str], put: Callable[[bytes], int], devices: Sequence[str] = ()
) -> list[str]:
    """`argv`, started where what it may not write is read-only, where that takes mounts: it costs an interpreter."""
    opened = None
    if confinement.writes_by_mounts:
        mounts = confinement.view.mounts
        opened = list(outermost(mount.source for mount in mounts if mount.kind is MountKind.WRITE))
    elif not confinement.view.closed and not devices:
        return argv
    closed = [*((device, True) for device in devices), *steps(confinement.view)]
    order = {"open": opened, "steps": closed, "argv": argv, "oom_score": oom_score_of_confined()}
    return readonly_argv(put(marshal.dumps(order)))


def readonly_argv(order_fd: int) -> list[str]:
    """What carries out the order of `inside/readonly` that this descriptor holds."""
    return _gate(GATE_FOLDER, "readonly", order_fd)


def _put(cleanup: ExitStack, fds: list[int], data: str | bytes) -> int:
    """A descriptor that holds `data`, kept in `fds` until the end of `cleanup`."""
    fd = unnamed_file(data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data)
    cleanup.callback(os.close, fd)
    fds.append(fd)
    return fd


def _gate(folder: str, module: str, *numbers: int) -> list[str]:
    return [INTERPRETER, "-I", "-S", "-c", BOOT.format(module), folder, *map(str, numbers)]


def _popen(argv: list[str], fds: list[int], streams: int | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        stdin=streams,
        stdout=streams,
        stderr=subprocess.PIPE,
        bufsize=0,
        cwd="/",
        env={},
        pass_fds=fds,
        start_new_session=True,
    )


def _pipe(cleanup: ExitStack) -> tuple[FileIO, FileIO]:
    read, write = os.pipe()
    return cleanup.enter_context(FileIO(read, "r")), cleanup.enter_context(FileIO(write, "w"))
