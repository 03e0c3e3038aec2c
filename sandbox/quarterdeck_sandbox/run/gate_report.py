"""Our side of the gate: hand it the order, hear its report, judge, let the program go or not.

The bytes that come back are written by our own code inside the sandbox, before anything hostile runs there; they are
bounded and checked all the same.  See `inside/gate.py` for what travels.
"""

import array
import marshal
import os
import socket
import struct
from dataclasses import dataclass
from typing import Any, Final

import anyio

from quarterdeck_sandbox.program.launch import LaunchError

REPORT_BYTES: Final = 64 * 1024
"""Larger than any report; more is no report."""

GATE_S: Final = 15.0
"""From spawn to report; a machine under heavy load takes a second."""

_CLOSE_ON_EXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_CREDENTIALS: Final = struct.Struct("3i")

_Ancillary = list[tuple[int, int, bytes]]


@dataclass(frozen=True, slots=True)
class Report:
    """What the gate found: `facts` by key, repeated keys in order; `pid` as this process sees it."""

    facts: dict[str, tuple[str, ...]]
    pid: int

    def one(self, key: str) -> str:
        """The first value of `key`, empty when there is none."""
        return self.facts.get(key, ("",))[0]


class Gatekeeper:
    """One conversation; `close` in the end, whatever happened."""

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair()
        self._early = b""
        self._ours.setblocking(False)  # noqa: FBT003 - takes no keyword
        if hasattr(socket, "SO_PASSCRED"):
            self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)

    async def send_order(self, order: dict[str, Any]) -> None:
        """Send it whole."""
        data = marshal.dumps(order)
        await self._send(len(data).to_bytes(8, "big") + data)

    async def receive_listeners(self, count: int) -> list[socket.socket]:
        """The listening sockets that the order asked for, in its order; fewer when the gate reports a failure instead.

        Raises:
            LaunchError: the gate ended instead.
        """
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
        """What the gate found; None when it ended without a word."""
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
        # Without credentials on the socket there are no PID namespaces either: its own word is right.
        return Report(facts, pid or int(facts.get("pid", ("0",))[0]))

    async def release(self) -> int:
        """Let it exec; 0 when that worked, else the errno."""
        await self._send(b"g")
        answer, _ = await self._receive(16)
        return int(answer) if answer.isdigit() else 0

    def close(self) -> None:
        """Whoever still waits behind the gate is refused."""
        self._ours.close()
        self.theirs.close()

    async def _receive(self, size: int, ancillary_bytes: int = 0) -> tuple[bytes, _Ancillary]:
        """What came; nothing when the other end is gone."""
        await anyio.wait_readable(self._ours)
        try:
            data, ancillary, _, _ = self._ours.recvmsg(
                size, ancillary_bytes + socket.CMSG_SPACE(_CREDENTIALS.size), _CLOSE_ON_EXEC
            )
        except ConnectionResetError:
            return b"", []  # it ended without reading all that we said
        return data, ancillary

    async def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._ours.send(view) :]
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
        if level == socket.SOL_SOCKET and kind == getattr(socket, "SCM_CREDENTIALS", -1):
            pid: int = _CREDENTIALS.unpack(content[: _CREDENTIALS.size])[0]
            return pid
    return 0
