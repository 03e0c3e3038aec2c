"""The supervisor's one socket: hand every worker's messages to the link that the worker proved to be its own.

A ZeroMQ ROUTER without libzmq's thread, and stricter. A peer is its connection, bound to a link only by the token in
its first message; until then it may send that one short message, within half a minute, as one of a few. Afterwards its
messages are bounded by what its server may answer. A peer that breaks a bound is disconnected.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from quarterdeck_protocol.io import Channel
from quarterdeck_protocol.link.frame_bytes import WireError, WireLimits, decode
from quarterdeck_protocol.link.frames import Hello
from quarterdeck_protocol.link.zmtp import DEALER, ROUTER, MessageBuffer, ZmtpError, handshake

HANDSHAKE_S: Final = 30.0
"""Seconds for a connection to show a token: the time that a link has for its greeting."""

HELLO_BYTES: Final = 1024
"""The first message of a peer: a token, two versions and a number."""

MAX_UNPROVEN: Final = 64
"""Connections without a token at once; more wait to be let in."""

BACKLOG: Final = 128
"""Connections that wait to be let in; to more the kernel says that they should try again."""

RETRY_S: Final = 1.0
"""Seconds before the next try to accept: no descriptor is free."""

LEAST_BODY_BYTES: Final = 64 * 1024 * 1024
"""Minimum bound of a body, for what is no result, such as a list of tools."""

SOCKET_NAME: Final = "link.sock"

_log = logging.getLogger("quarterdeck.fleet")

_HANDSHAKE: Final = handshake(ROUTER)


class PeerWay:
    """The connection to one worker, once it has presented its token.

    Attributes:
        receive: takes its messages, must not raise, and is set once, before the worker comes.
        send: sends one message; before the worker comes, it is lost.
    """

    def __init__(self, on_breach: Callable[[str], None], body_bytes: int) -> None:
        self.receive: Callable[[list[bytes]], None] = lambda _: None
        self.send: Callable[[Sequence[bytes]], None] = lambda _: None
        self._on_breach = on_breach
        self._limits = WireLimits(body_bytes=max(body_bytes, LEAST_BODY_BYTES)).part_bytes
        self._channel: Channel | None = None

    def drain(self) -> None:
        """See `Way`."""
        if self._channel is not None:
            self._channel.drain()

    def bind(self, channel: Channel, hello: list[bytes]) -> None:
        """The worker has come, by this channel, which is ours from here on."""
        self._channel, self.send = channel, channel.send
        channel.messages.part_limits = self._limits
        channel.on_message = self.receive
        channel.on_end = self._on_end
        self.receive(hello)

    def close(self) -> None:
        """Hang up."""
        if self._channel is not None:
            self._channel.close()

    def _on_end(self, error: Exception) -> None:
        # That it hung up means nothing by itself: its process ends, or its silence is noticed.
        if isinstance(error, ZmtpError):
            self._on_breach(str(error))


class Router:
    """The ROUTER socket of one runtime."""

    def __init__(self, path: Path) -> None:
        """Listen at `path`, in a directory of our user alone. Raise OSError if the path is taken or too long."""
        self.address = f"ipc://{path}"
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._expected: dict[bytes, PeerWay] = {}
        self._ways: set[PeerWay] = set()
        self._unproven: dict[Channel, asyncio.TimerHandle] = {}
        self._has_warned = self._is_closed = False
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(0)
        try:
            self._socket.bind(str(path))
            self._socket.listen(BACKLOG)
        except OSError:
            self._socket.close()
            raise
        self._listen()

    def expect(self, token: bytes, on_breach: Callable[[str], None], body_bytes: int = LEAST_BODY_BYTES) -> PeerWay:
        """Prepare for a worker that will prove itself with `token`, once, and send answers of at most `body_bytes`;
        call `on_breach` once if it is disconnected for breaking a rule.
        """
        way = self._expected[token] = PeerWay(on_breach, body_bytes)
        self._ways.add(way)
        return way

    def forget(self, token: bytes, way: PeerWay) -> None:
        """Forget a worker that is gone, or will never come."""
        self._expected.pop(token, None)
        self._ways.discard(way)
        way.close()

    def close(self) -> None:
        """Leave the loop, hang up on everybody and remove the socket; repeatable."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._path.unlink(missing_ok=True)
        for peer in tuple(self._unproven):
            self._reject(peer)
        for way in self._ways:
            way.close()

    def _listen(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        while len(self._unproven) < MAX_UNPROVEN:
            try:
                sock, _ = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                _log.error("no worker can connect: %s", error)
                self._loop.remove_reader(self._socket)
                self._loop.call_later(RETRY_S, self._listen)
                return
            self._open(sock)
        self._loop.remove_reader(self._socket)

    def _open(self, sock: socket.socket) -> None:
        peer = Channel(
            sock,
            MessageBuffer(DEALER, (HELLO_BYTES,)),
            lambda parts: self._admit(peer, parts),
            lambda _: self._reject(peer),
        )
        self._unproven[peer] = self._loop.call_later(HANDSHAKE_S, self._reject, peer)
        peer.begin(_HANDSHAKE)

    def _admit(self, peer: Channel, parts: list[bytes]) -> None:
        way = self._expected.pop(_token_of(parts), None)
        if way is not None:
            self._release(peer)
            way.bind(peer, parts)
            return
        self._reject(peer)
        if not self._has_warned:  # one that comes again and again shall not flood the log too
            self._has_warned = True
            _log.warning("a peer without a valid token wrote to the link's socket; its connection was closed")

    def _reject(self, peer: Channel) -> None:
        self._release(peer)
        peer.close()

    def _release(self, peer: Channel) -> None:
        """Let another peer take the place of this one, which has proved itself or is gone."""
        self._unproven.pop(peer).cancel()
        self._listen()


def _token_of(parts: list[bytes]) -> bytes:
    try:
        frame, _ = decode(parts, WireLimits())
    except WireError:
        return b""
    return frame.token if isinstance(frame, Hello) else b""
