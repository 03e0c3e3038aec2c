"""A worker's end of the link's socket: a ZeroMQ DEALER on the worker's own loop, without libzmq's threads.

libzmq passes every message through a thread of its own, twice in a call on this side; the wakes took a fifth of a
call's time (tests/bench).  A worker has one peer and one connection, so that nothing of what libzmq does for many is
missed.  The supervisor, which has many, uses libzmq.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from quarterdeck_protocol.envelope import WireLimits
from quarterdeck_protocol.zmtp import HANDSHAKE, MessageBuffer, ZmtpError, encode_message

RETRY_S: Final = 0.1
"""Between two attempts to connect."""

READ_BYTES: Final = 64 * 1024
"""One read; what more there is waits for the loop's next turn."""

MAX_DRAIN: Final = 64
"""Reads before the peer is judged."""

MAX_BUFFERS: Final = 256
"""Buffers in one write; Linux takes 1,024."""

MAX_PARTS: Final = 2
"""A header and a body: see `envelope`."""


class Dealer:
    """One connection's traffic."""

    def __init__(self, address: str, on_message: Callable[[list[bytes]], None], on_end: Callable[[str], None]) -> None:
        """Begin to connect; until somebody listens there, it is tried again and again.

        Args:
            address: `ipc://` and the path where the ROUTER listens.
            on_message: gets the parts of one message; must not raise.
            on_end: told once why nothing more will come: the peer is gone, or no ROUTER of ours.
        """
        self._path = address.removeprefix("ipc://")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.setblocking(False)  # noqa: FBT003 - takes no keyword
        self._on_message = on_message
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._messages = MessageBuffer(WireLimits().part_bytes, MAX_PARTS)
        self._unsent: deque[bytes | memoryview] = deque()
        self._is_connected = self._in_turn = self._is_over = False
        self._connect()

    def send(self, parts: Sequence[bytes]) -> None:
        """Send in order; what the socket does not take now is kept (the link's credit bounds how much).

        The first message of a turn of the loop leaves at once, those that come with it leave together after it.
        """
        if self._is_over:
            return
        is_first = not self._unsent and not self._in_turn
        self._unsent += encode_message(parts)
        if is_first:
            self._in_turn = True
            self._loop.call_soon(self._end_turn)
            self._flush()

    def drain(self) -> None:
        """Take what waits in the socket, now; a flood's rest waits for the next turn."""
        for _ in range(MAX_DRAIN):
            if not self._readable():
                return

    def close(self, linger_s: float) -> None:
        """Leave the loop and hang up; what is unsent blocks for at most `linger_s`, then it is lost."""
        if not self._is_over:
            self._end()
            self._socket.settimeout(linger_s)
            try:
                self._socket.sendall(b"".join(self._unsent))
            except OSError:
                pass  # the peer does not read, or is gone
        self._socket.close()

    def _connect(self) -> None:
        if self._is_over:
            return
        try:
            self._socket.connect(self._path)
        except OSError:
            # Nobody is there, or too many are waiting to be let in; the link's own deadline ends it.
            self._loop.call_later(RETRY_S, self._connect)
            return
        self._is_connected = True
        self._loop.add_reader(self._socket, self._readable)
        self._socket.send(HANDSHAKE)

    def _readable(self) -> bool:
        """Whether there was something to read."""
        if self._is_over or not self._is_connected:
            return False
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            self._lose(f"the link's socket broke: {error}")
            return False
        if not data:
            self._lose("the supervisor hung up")
            return False
        try:
            messages = self._messages.feed(data)
        except ZmtpError as error:
            self._lose(str(error))
            return False
        self._flush()
        for message in messages:
            if self._is_over:
                return False
            self._on_message(message)
        return True

    def _end_turn(self) -> None:
        self._in_turn = False
        if self._unsent:
            self._flush()

    def _flush(self) -> None:
        if self._is_over or not self._messages.is_ready:
            return
        try:
            while self._unsent:
                self._drop(self._socket.sendmsg(islice(self._unsent, MAX_BUFFERS)))
        except BlockingIOError:
            self._loop.add_writer(self._socket, self._writable)
        except OSError:
            # The peer is gone; what it said last is still read, and then its end.
            self._unsent.clear()

    def _writable(self) -> None:
        self._loop.remove_writer(self._socket)
        self._flush()

    def _drop(self, size: int) -> None:
        left = size
        while left:
            buffer = self._unsent[0]
            if left < len(buffer):
                self._unsent[0] = memoryview(buffer)[left:]
                return
            left -= len(buffer)
            self._unsent.popleft()

    def _lose(self, reason: str) -> None:
        self._end()
        self._on_end(reason)

    def _end(self) -> None:
        self._is_over = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
