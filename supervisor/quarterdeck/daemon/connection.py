"""A door as the daemon sees it: what it hands over, what it says later, and what it is told."""

import asyncio
import hmac
import os
import socket
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import psutil

from quarterdeck.common.local_socket import Peer, peer_of
from quarterdeck_protocol.tools import Client

from .messages import (
    DESCRIPTORS,
    END,
    HOLD,
    LOG,
    MAX_HANDOVER_BYTES,
    Ask,
    BadHandoverError,
    Handover,
    decode_request,
    frame,
)

HANDOVER_S: Final = 10.0
"""Seconds for a whole handover: a door sends it at once."""

SEND_S: Final = 5.0
"""Seconds for a door to take a frame; a stopped door loses its log, never its session."""

MAX_BEHIND_BYTES: Final = 256 * 1024
"""Unsent bytes beyond which a door gets no more log lines."""

MAX_NAME_CHARS: Final = 200
"""Characters of a client's program path that are kept, from its end: each call in the ledger names its client."""


def client_of(pid: int) -> Client:
    """Return the client of the door that is process `pid`, named after the program that started it, if known."""
    name = client_key(pid)
    with suppress(psutil.Error):
        parent = psutil.Process(pid).parent()
        if parent is not None and parent.pid > 1 and (program := parent.exe()):
            shown = os.fsencode(program).decode("utf-8", "replace")[-MAX_NAME_CHARS:]
            name += f" of {shown} (pid {parent.pid})"
    return Client(name, client_key(pid))


def client_key(pid: int) -> str:
    """Return the key of the client of the door that is process `pid`."""
    return f"door {pid}"


class DoorError(Exception):
    """A door is refused; the text says why."""


class NobodyError(Exception):
    """A peer left without a word, as one does that only checks whether a daemon listens."""


class Door:
    """The connection of one door, or of a command; a context manager that closes it and what it handed over: `fds`, the
    client's stdin, stdout and stderr and the session's memory.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)  # noqa: FBT003 - takes no keyword
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._out = bytearray()
        self._to_hold: socket.socket | None = None
        self._has_holding_to_tell = self._holds = False
        self._listener: int | None = None
        self._waits = False
        self._is_out = asyncio.Event()
        self.peer: Final[Peer] = peer_of(connection)
        self.fds: list[int] = []

    async def receive(self, key: str) -> Handover | Ask:
        """Return a door's handover or a command's order.

        Raise DoorError if the peer is another user's, does not know the key, or hands over something else; NobodyError
        if it says nothing.
        """
        if not self.peer.is_ours:
            raise DoorError("it belongs to another user")
        try:
            async with asyncio.timeout(HANDOVER_S):
                request = decode_request(await self._read())
        except TimeoutError:
            raise DoorError(f"nothing whole came within {HANDOVER_S:g} s") from None
        except (OSError, BadHandoverError) as error:
            raise DoorError(str(error)) from None
        if not key or not hmac.compare_digest(request.key.encode(), key.encode()):
            raise DoorError("it does not know the key")
        wanted = request.holds_listener + (DESCRIPTORS if isinstance(request, Handover) else 0)
        if len(self.fds) != wanted:
            raise DoorError(f"it handed over {len(self.fds)} descriptors in place of {wanted}")
        if request.holds_listener:
            self._listener = self.fds.pop()
            self._holds = True
        return request

    def has_left(self) -> bool:
        """Whether it is gone: the queue of a service manager's socket outlives a daemon that did not answer."""
        try:
            return not self._connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def until_left(self) -> None:
        """Wait until the door is gone, or wants to end."""
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_recv(self._connection, 1)
        except OSError:
            pass

    def log(self, text: str) -> None:
        """Have the door write this on its stderr; dropped when it is behind."""
        if len(self._out) < MAX_BEHIND_BYTES:
            self._out += frame(LOG, text)
            self._flush()

    async def tell(self, kind: bytes, text: str) -> None:
        """Send one frame; to a door that is gone, nothing."""
        self._out += frame(kind, text)
        self._is_out.clear()
        self._flush()
        try:
            async with asyncio.timeout(SEND_S):
                await self._is_out.wait()
        except TimeoutError:
            pass

    def hold(self, listener: socket.socket | None) -> None:
        """Have the door hold this HTTP socket for the next daemon, instead of an earlier one; None to hold no socket.
        The socket is borrowed until the next call.
        """
        if listener is not None or self._holds:
            self._to_hold, self._has_holding_to_tell = listener, True
            self._holds = listener is not None
            self._flush()

    def take_listener(self) -> int | None:
        """Return the descriptor of the door's HTTP socket, or None. The caller owns it from then on."""
        listener, self._listener = self._listener, None
        return listener

    async def end(self, code: int) -> None:
        """Have the door end with this exit code."""
        await self.tell(END, str(code))

    def close(self) -> None:
        """Close the connection, and what was handed over.  Repeatable."""
        self._rest()
        self._connection.close()
        if (listener := self.take_listener()) is not None:
            os.close(listener)
        while self.fds:
            os.close(self.fds.pop())

    def _flush(self) -> None:
        """Send whole frames, in order, as far as the door takes them, and the rest once it has room."""
        try:
            while self._out:
                del self._out[: self._connection.send(self._out)]
            if self._has_holding_to_tell:
                held = self._to_hold
                fds = [held.fileno()] if held is not None and held.fileno() >= 0 else []
                socket.send_fds(self._connection, [frame(HOLD, "")], fds)
                self._has_holding_to_tell, self._to_hold = False, None
        except BlockingIOError:
            if not self._waits:
                self._waits = True
                self._loop.add_writer(self._connection, self._flush)
            return
        except OSError:
            self._out.clear()  # it is gone
            self._has_holding_to_tell, self._to_hold = False, None
        self._rest()
        self._is_out.set()

    def _rest(self) -> None:
        if self._waits:
            self._waits = False
            self._loop.remove_writer(self._connection)

    async def _read(self) -> bytes:
        loop = asyncio.get_running_loop()
        head = await self._receive_head()
        size = int.from_bytes(head[:4])
        if not 0 < size <= MAX_HANDOVER_BYTES:
            raise BadHandoverError(f"a handover of {size:,} bytes")
        data = bytearray(head[4:])
        while len(data) < size:
            more = await loop.sock_recv(self._connection, min(65536, size - len(data)))
            if not more:
                raise BadHandoverError("it left in the middle")
            data += more
        if len(data) > size:
            raise BadHandoverError("more than a handover")
        return bytes(data)

    async def _receive_head(self) -> bytes:
        """Return at least the length; keep the descriptors that came with the first byte."""
        head = b""
        while len(head) < 4:
            await _readable(self._connection)
            # With CLOEXEC: what we start inherits none of them.
            data, fds, flags, _ = socket.recv_fds(
                self._connection, 65536, DESCRIPTORS + 1, getattr(socket, "MSG_CMSG_CLOEXEC", 0)
            )
            self.fds += fds
            if flags & socket.MSG_CTRUNC:
                raise BadHandoverError("more descriptors than a door has")
            if not data:
                if not head:
                    raise NobodyError
                raise BadHandoverError("it left in the middle")
            head += data
        for fd in self.fds:
            os.set_inheritable(fd, False)  # noqa: FBT003 - takes no keyword
        return head

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _settle(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(connection, _settle, ready)
    try:
        await ready
    finally:
        loop.remove_reader(connection)
