"""The supervisor's one socket: every worker's messages arrive here and are handed to the link that the worker proved
to be its own.

A peer is known by the routing id that ROUTER gave its connection, bound to a link by the token in its first frame and
by nothing else; who has no token is not answered.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import zmq

from quarterdeck.fleet.pump import Pump
from quarterdeck_protocol.envelope import WireError, WireLimits, decode
from quarterdeck_protocol.frames import Hello

HANDSHAKE_MS: Final = 5_000
"""A connection that has not finished ZMTP's greeting by then is dropped (ZMQ_HANDSHAKE_IVL)."""

SOCKET_NAME: Final = "link.sock"

_log = logging.getLogger("quarterdeck.fleet")

Receive = Callable[[Sequence[bytes]], None]


class PeerWay:
    """The way to one worker; until it has said who it is, there is none."""

    def __init__(self, router: "Router", receive: Receive) -> None:
        self._router = router
        self.receive = receive
        self.routing_id: bytes | None = None
        self.delivered_bytes = 0

    def send(self, parts: Sequence[bytes]) -> None:
        """See `Way`."""
        if self.routing_id is not None:
            self._router.send(self.routing_id, parts)

    def drain(self) -> None:
        """See `Way`."""
        self._router.drain()


class Router:
    """The ROUTER socket of one runtime."""

    def __init__(self, path: Path) -> None:
        """Bind at `path`, in a directory that nobody else may enter.

        Raises:
            zmq.ZMQError: the path is taken or too long.
        """
        self.address = f"ipc://{path}"
        self._context = zmq.Context(io_threads=1)
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.router_mandatory = 1
        self._socket.router_handover = 0
        self._socket.maxmsgsize = WireLimits().part_bytes
        self._socket.handshake_ivl = HANDSHAKE_MS
        # The links' credit bounds what is under way; a high-water mark would drop or block in the middle of it.
        self._socket.sndhwm = self._socket.rcvhwm = 0
        try:
            self._socket.bind(self.address)
        except zmq.ZMQError:
            self._socket.close()
            self._context.term()
            raise
        self._expected: dict[bytes, PeerWay] = {}
        self._bound: dict[bytes, PeerWay] = {}
        self._pump = Pump(self._socket, self._on_message)
        self.strangers = 0

    def expect(self, token: bytes, receive: Receive) -> PeerWay:
        """Prepare for a worker that will present `token`, once; `receive` takes its messages."""
        way = PeerWay(self, receive)
        self._expected[token] = way
        return way

    def forget(self, token: bytes, way: PeerWay) -> None:
        """A worker is gone, or will never come."""
        self._expected.pop(token, None)
        if way.routing_id is not None:
            self._bound.pop(way.routing_id, None)

    def send(self, routing_id: bytes, parts: Sequence[bytes]) -> None:
        """Send one message to a bound peer."""
        self._pump.send([routing_id, *parts])

    def drain(self) -> None:
        """Deliver what has arrived."""
        self._pump.drain()

    def close(self) -> None:
        """Leave the loop and close the socket."""
        self._pump.close()
        self._socket.close()
        self._context.term()

    def _on_message(self, parts: list[bytes]) -> None:
        routing_id = parts[0]
        way = self._bound.get(routing_id)
        if way is None:
            way = self._admit(routing_id, parts[1:])
            if way is None:
                self.strangers += 1
                if self.strangers == 1:  # one that floods shall not flood the log too
                    _log.warning("a peer without a valid token wrote to the link's socket; it was not answered")
                return
        message = parts[1:]
        way.delivered_bytes += sum(map(len, message))
        way.receive(message)

    def _admit(self, routing_id: bytes, parts: list[bytes]) -> PeerWay | None:
        # ROUTER's own ids begin with a zero byte, which a peer cannot choose.
        if not routing_id.startswith(b"\0"):
            return None
        try:
            frame, _ = decode(parts, WireLimits())
        except WireError:
            return None
        way = self._expected.pop(frame.token, None) if isinstance(frame, Hello) else None
        if way is not None:
            way.routing_id = routing_id
            self._bound[routing_id] = way
        return way
