"""Drive a ZeroMQ socket from an asyncio loop by its descriptor, without a future or a task per message.

`zmq.asyncio` costs three times as much a round trip (measured).  libzmq's descriptor is edge-triggered: every wake
drains the socket, and every send looks again, because a send can swallow the edge (zmq_getsockopt, ZMQ_FD); but not
while a wake drains, which looks after each message anyway.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import zmq

from quarterdeck_protocol.envelope import INLINE_BYTES

BATCH: Final = 128
"""Messages taken in one wake before the loop's other work gets its turn."""

MAX_DRAIN: Final = 4096
"""Messages taken before a peer is judged."""

Parts = list[bytes]

# pyzmq's constants are enums, and arithmetic on those costs more than the call that it is for (measured).
_EVENTS: Final = int(zmq.EVENTS)
_POLLIN: Final = int(zmq.POLLIN)
_RCVMORE: Final = int(zmq.RCVMORE)
_NOBLOCK: Final = int(zmq.NOBLOCK)
_NOBLOCK_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)


class Pump:
    """One socket's traffic.  Owns neither the socket nor its context, only their place in the loop."""

    def __init__(self, socket: "zmq.Socket[bytes]", on_message: Callable[[Parts], None]) -> None:
        """Begin to read; `on_message` gets the parts of one message and must not raise."""
        self._socket = socket
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[Sequence[bytes]] = deque()
        self._get: Callable[[int], int] = socket.getsockopt  # type: ignore[assignment]  # of these options
        self._scheduled = False
        self._draining = False
        self._closed = False
        self._fd = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._wake)
        self._schedule()

    def send(self, parts: Sequence[bytes]) -> None:
        """Send in order; what the socket does not take now is kept (the link's credit bounds how much)."""
        if self._closed:
            return
        if self._unsent or not self._try_send(parts):
            self._unsent.append(parts)
            self._schedule()
        elif not self._scheduled and not self._draining and self._has_input():
            self._schedule()

    def drain(self) -> None:
        """Take what waits in the socket, now; a flood's rest waits for the next wake."""
        for _ in range(MAX_DRAIN):
            if self._closed or not self._has_input():
                return
            self._receive_one()

    def close(self) -> None:
        """Leave the loop; nothing is read or sent afterwards."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._fd)

    def _wake(self) -> None:
        self._scheduled = False
        if self._closed:
            return
        self._draining = True
        for _ in range(BATCH):
            if self._closed:
                break
            # A look takes the edge, also the one that says that there is room: each is followed by a try to send.
            has_input = self._has_input()
            while self._unsent and self._try_send(self._unsent[0]):
                self._unsent.popleft()
            if not has_input:
                break
            self._receive_one()
        else:
            self._schedule()
        self._draining = False

    def _has_input(self) -> bool:
        return bool(self._get(_EVENTS) & _POLLIN)

    def _receive_one(self) -> None:
        try:
            parts = [self._socket.recv(_NOBLOCK)]
            while self._get(_RCVMORE):
                parts.append(self._socket.recv(_NOBLOCK))
        except zmq.Again:
            return
        self._on_message(parts)

    def _try_send(self, parts: Sequence[bytes]) -> bool:
        last = len(parts) - 1
        try:
            for index, part in enumerate(parts):
                flags = _NOBLOCK if index == last else _NOBLOCK_MORE
                self._socket.send(part, flags, copy=len(part) < INLINE_BYTES)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            # ROUTER_MANDATORY: the peer is gone; its link learns it from the process's death or its own silence.
            if error.errno == zmq.EHOSTUNREACH:
                return True
            raise
        return True

    def _schedule(self) -> None:
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._wake)
