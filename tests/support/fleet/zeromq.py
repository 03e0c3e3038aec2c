"""Ends of a socket that are not ours: libzmq's own, and raw ones that say what no library would."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import zmq

from support.waiting import PATIENCE_S, until

MORE, LONG = 1, 2
"""Flags of a frame."""


class ZmqEnd:
    """A socket of libzmq, looked at from the loop's turns."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", kind: int) -> None:
        self.socket = context.socket(kind)
        self.socket.linger = 0
        self.socket.sndhwm = self.socket.rcvhwm = 0
        self.heard: list[list[bytes]] = []

    def send(self, *parts: bytes) -> None:
        self.socket.send_multipart(parts)

    def look(self) -> list[list[bytes]]:
        while self.socket.poll(0):
            self.heard.append(self.socket.recv_multipart())
        return self.heard

    async def hear(self, count: int) -> list[list[bytes]]:
        """Wait until so many messages came."""
        await until(lambda: len(self.look()) >= count)
        return self.heard


@contextmanager
def libzmq() -> Iterator[Callable[[int], ZmqEnd]]:
    """Makes sockets of libzmq, which are closed at the end."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    ends: list[ZmqEnd] = []

    def make(kind: int) -> ZmqEnd:
        ends.append(ZmqEnd(context, kind))
        return ends[-1]

    try:
        yield make
    finally:
        for end in ends:
            end.socket.close()
        context.term()


async def until_hung_up(peer: socket.socket) -> bytes:
    """What a non-blocking peer is told before the other end hangs up."""
    heard = b""
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                data = peer.recv(65536)
            except BlockingIOError:
                await anyio.lowlevel.checkpoint()
                continue
            except ConnectionResetError:
                return heard
            if not data:
                return heard
            heard += data


def frame(flags: int, body: bytes, size: int | None = None) -> bytes:
    """A long frame, which may announce another size than it has."""
    return bytes([flags | LONG]) + (len(body) if size is None else size).to_bytes(8, "big") + body
