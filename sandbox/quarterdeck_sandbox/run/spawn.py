"""Spawn what a sandbox begins with, bwrap or a reaper, and talk to the gate inside it until the program runs.

Nothing is awaited while something is spawned: it is owned from its first moment. What the gate reports is written by
our own code inside the sandbox, before anything hostile runs there; it is bounded and checked all the same. See
`native/gate.h` for what travels. Helpers here hand a program more than its command line should show, and end a helper
process with the thread that spawned it.
"""

import array
import os
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from functools import partial
from io import FileIO
from typing import Final

import anyio

from quarterdeck_protocol.policy_values import Tier
from quarterdeck_sandbox.gate.order import encode_closing
from quarterdeck_sandbox.gate.program import command
from quarterdeck_sandbox.policy import tiers
from quarterdeck_sandbox.policy.confinement import Confinement, Report
from quarterdeck_sandbox.policy.machine import Machine
from quarterdeck_sandbox.policy.mounts import Mount, MountKind
from quarterdeck_sandbox.program.launch import LaunchError
from quarterdeck_sandbox.view.closed_paths import outermost, steps

from .packaged_bwrap import program_of
from .process_settings import oom_score_of_confined
from .processes import state_of

REPORT_BYTES: Final = 64 * 1024  # larger than any report; more is no report
GATE_S: Final = 15.0  # from spawn to report; a machine under heavy load takes a second
_CREDENTIALS: Final = struct.Struct("3i")

_Ancillary = list[tuple[int, int, bytes]]


class Stdio(Enum):
    """The kind of a process's three standard streams."""

    PIPES = "pipes"
    FOREGROUND = "foreground"  # stdin and stdout are ours, stderr is a pipe: a user tries a command


def spawn_bubblewrap(
    confinement: Confinement, control_fd: int, stdio: Stdio, pipes: ExitStack
) -> tuple[subprocess.Popen[bytes], int, FileIO, FileIO]:
    """Spawn bwrap; return the child, its guard's leash, the pipe that tells its child's pid, and the one it waits for.

    When the leash is dropped before the guard is dismissed, all in bwrap's process group is killed.  `control_fd` is
    the gate's end of its conversation; `pipes` owns both pipes, the caller the leash.
    """
    info, info_w = pipe(pipes)
    blocked, block = pipe(pipes)
    with ExitStack() as cleanup:
        fds: list[int] = []
        put = partial(put_in_descriptor, cleanup, fds)
        gate_fds = [control_fd]
        ends: list[FileIO] = []
        if stdio is Stdio.PIPES:
            # Past bwrap, which would hold them open: that the program closed its stdout must be seen.
            stdin, stdin_w = pipe(cleanup)
            stdout, stdout_w = pipe(cleanup)
            gate_fds += [stdin.fileno(), stdout_w.fileno()]
            ends = [stdin_w, stdout]
        fds += gate_fds
        gate = confinement.machine.gate
        words = tiers.arguments(confinement, gate, partial(_hold, cleanup, fds))
        flags = ["--args", str(put("\0".join(words) + "\0")), "--info-fd", str(info_w.fileno())]
        flags += ["--block-fd", str(blocked.fileno())]
        if confinement.seccomp:
            flags += ["--seccomp", str(put(confinement.seccomp))]
        argv = [program_of(confinement.machine), *flags, "--", *command(tiers.INSIDE, "gate", *gate_fds)]
        fds += [info_w.fileno(), blocked.fileno()]
        argv = _closed_first(confinement, argv, put, tiers.fixed_devices(confinement))
        with _leash() as (leash, ours):
            score = oom_score_of_confined()
            argv = command(gate, "guard", leash, "" if score is None else score, *argv)
            child = _popen(argv, [*fds, leash], subprocess.DEVNULL if ends else None)
        if ends:
            child.stdin, child.stdout = (FileIO(os.dup(end.fileno()), end.mode) for end in ends)
    info_w.close()
    blocked.close()
    return child, ours, info, block


def spawn_reaper(confinement: Confinement, control_fd: int, stdio: Stdio) -> tuple[subprocess.Popen[bytes], int]:
    """Spawn a reaper; return the child, and its leash: when that is closed, it kills all that it has adopted."""
    with ExitStack() as cleanup, _leash() as (leash, ours):
        fds = [control_fd, leash]
        numbers = [*fds, int(confinement.tier is Tier.LANDLOCK)]
        if (score := oom_score_of_confined()) is not None:
            numbers.append(score)
        argv = command(confinement.machine.gate, "reaper", *numbers)
        argv = _closed_first(confinement, argv, partial(put_in_descriptor, cleanup, fds))
        return _popen(argv, fds, subprocess.PIPE if stdio is Stdio.PIPES else None), ours


@contextmanager
def _leash() -> Iterator[tuple[int, int]]:
    """Yield the child's end, which is closed at the end, and ours, which is the caller's unless there was an error."""
    leash, ours = os.pipe()
    try:
        yield leash, ours
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(leash)


def is_bound_to_bubblewrap(init_pid: int) -> bool:
    """Return whether a sandbox's first process, whose gate has reported, is sure to be killed when its bwrap ends.

    It asks for that after it has started the gate, just before it begins to wait for it, and sleeps nowhere between.
    """
    return state_of(init_pid) == b"S"


def kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill a child that leads a session, with its process group, which has the first process of a bwrap's sandbox.

    That one outlives a bwrap that is killed before the go, and may be unknown to everyone else.
    """
    if child.returncode is None:  # not reaped: the group is still its own
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def _closed_first(
    confinement: Confinement, argv: list[str], put: Callable[[bytes], int], devices: Sequence[str] = ()
) -> list[str]:
    """Return `argv`, started where what it may not write is read-only, if that takes mounts."""
    opened = None
    if confinement.writes_by_mounts:
        mounts = confinement.view.mounts
        opened = list(outermost(mount.source for mount in mounts if mount.kind is MountKind.WRITE))
    elif not confinement.view.closed and not devices:
        return argv
    closed = [*((device, True) for device in devices), *steps(confinement.view)]
    order = encode_closing(argv, closed, opened=opened, oom_score=oom_score_of_confined())
    return command(confinement.machine.gate, "readonly", put(order))


def put_in_descriptor(cleanup: ExitStack, fds: list[int], data: str | bytes) -> int:
    """Return a descriptor that holds `data`, kept in `fds` until the end of `cleanup`."""
    fd = unnamed_file(data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data)
    cleanup.callback(os.close, fd)
    fds.append(fd)
    return fd


def _hold(cleanup: ExitStack, fds: list[int], mount: Mount) -> int:
    """Return a descriptor with the content of a file that is made, or copied, as `put_in_descriptor`."""
    if mount.kind is MountKind.DATA:
        return put_in_descriptor(cleanup, fds, mount.source)
    fd = os.open(mount.source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    cleanup.callback(os.close, fd)
    fds.append(fd)
    return fd


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


def pipe(cleanup: ExitStack) -> tuple[FileIO, FileIO]:
    """Return both ends of a pipe, to read and to write, closed at the end of `cleanup`."""
    read, write = os.pipe()
    return cleanup.enter_context(FileIO(read, "r")), cleanup.enter_context(FileIO(write, "w"))


class GateChannel:
    """The conversation with one gate; always `close` it."""

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair()
        self._early = b""
        self._ours.setblocking(False)  # noqa: FBT003 - takes no keyword
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)

    async def send_order(self, order: bytes, entrances: Collection[int] = ()) -> None:
        """Send the whole order, as `gate/order` encodes it, with the entrances of control groups to join."""
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", entrances))] if entrances else []
        await self._send(len(order).to_bytes(8, "big") + order, passed)

    async def receive_listeners(self, count: int) -> list[socket.socket]:
        """Return the order's listening sockets; fewer if the gate failed.  Raise LaunchError if it ended."""
        listeners: list[socket.socket] = []
        try:
            while len(listeners) < count:
                data, ancillary = await self._receive(1, socket.CMSG_SPACE(4 * count))
                if not data:
                    raise LaunchError("spawn_failed", "the sandbox ended before it could listen")
                passed = _passed(ancillary)
                if not passed:
                    self._early = data
                    break
                listeners += [socket.socket(fileno=fd) for fd in passed]
        except BaseException:
            for listener in listeners:
                listener.close()
            raise
        return listeners

    async def receive_report(self) -> Report | None:
        """Return the gate's findings; None if it ended without a word."""
        data, pid = self._early, 0
        while b"\n\n" not in data:
            piece, ancillary = await self._receive(REPORT_BYTES)
            if not piece or len(data) + len(piece) > REPORT_BYTES:
                return None
            data += piece
            pid = _sender(ancillary) or pid
        facts: dict[str, tuple[str, ...]] = {}
        for line in data.decode(errors="replace").split("\n"):
            key, _, value = line.partition(" ")
            if key:
                facts[key] = (*facts.get(key, ()), value)
        if failure := facts.get("failed"):
            number, _, step = failure[0].partition(" ")
            facts["failed"] = (f"{number} {step}: {os.strerror(int(number)) if number.isdecimal() else 'why?'}",)
        return Report(facts, pid)

    async def release(self) -> int:
        """Let the gate execute the program; return 0 if that worked, else the errno."""
        await self._send(b"g")
        answer, _ = await self._receive(16)
        return int(answer) if answer.isdigit() else 0

    def close(self) -> None:
        """End the conversation; a gate that still waits refuses its program."""
        self._ours.close()
        self.theirs.close()

    async def _receive(self, size: int, ancillary_bytes: int = 0) -> tuple[bytes, _Ancillary]:
        await anyio.wait_readable(self._ours)
        try:
            data, ancillary, _, _ = self._ours.recvmsg(
                size, ancillary_bytes + socket.CMSG_SPACE(_CREDENTIALS.size), socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            return b"", []  # it ended without reading all that we said
        return data, ancillary

    async def _send(self, data: bytes, passed: "Sequence[tuple[int, int, array.array[int]]]" = ()) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._ours.sendmsg((view,), passed) :]
                passed = ()
            except BlockingIOError:
                await anyio.wait_writable(self._ours)
            except OSError as error:
                raise LaunchError(
                    "spawn_failed", f"the sandbox ended early: {os.strerror(error.errno or 0)}"
                ) from error


def _passed(ancillary: _Ancillary) -> "array.array[int]":
    fds = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) // fds.itemsize * fds.itemsize])
    return fds


def _sender(ancillary: _Ancillary) -> int:
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            pid: int = _CREDENTIALS.unpack(content[: _CREDENTIALS.size])[0]
            return pid
    return 0


def with_death_signal(machine: Machine, argv: Sequence[str], number: signal.Signals = signal.SIGKILL) -> list[str]:
    """Return `argv` (its program by a path) as a command that gets `number` when the thread that spawned it ends.

    A helper notices our end by a pipe of its own; but one that is stopped reads none, and would stay for ever.
    """
    return command(machine.gate, "kernel", int(number), *argv)


def unnamed_file(data: bytes = b"") -> int:
    """Return a descriptor of a new file that holds `data`, at its beginning; in memory, if that is allowed.

    Raise OSError if there is neither memory nor a temporary folder for it.
    """
    fd = _create()
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _create() -> int:
    try:
        return os.memfd_create("quarterdeck")
    except PermissionError:
        # Our own sandboxes refuse it where nothing counts such memory (`UNCHARGED`), and we may run in one of them.
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())
