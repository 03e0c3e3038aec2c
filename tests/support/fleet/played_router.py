"""A router on a socket of its own, and the peers that speak to it."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import zmq

from quarterdeck.fleet.workers.router import SOCKET_NAME, PeerWay, Router
from quarterdeck_protocol.link.frame_bytes import encode
from quarterdeck_protocol.link.frames import LINK_VERSION, Hello
from quarterdeck_protocol.link.zmtp import DEALER, encode_message, handshake
from support.config.places import short_folder
from support.fleet.zeromq import ZmqEnd, libzmq
from support.waiting import until

TOKEN = b"the one-time token"


def hello(token: bytes = TOKEN) -> list[bytes]:
    return encode(Hello(LINK_VERSION, "1", token, 42))


def wire(*messages: Sequence[bytes]) -> bytes:
    return handshake(DEALER) + b"".join(b"".join(encode_message(parts)) for parts in messages)


class Expected:
    """A worker that is waited for, what came of it, and why it was hung up on."""

    def __init__(self, router: Router, token: bytes, body_bytes: int) -> None:
        self.heard: list[list[bytes]] = []
        self.breaches: list[str] = []
        self.way: PeerWay = router.expect(token, self.breaches.append, body_bytes)
        self.way.receive = self.heard.append

    async def hear(self, count: int) -> list[list[bytes]]:
        """Wait until so many messages came."""
        await until(lambda: len(self.heard) >= count)
        return self.heard


class PlayedFleet:
    """A router in a directory of its own, and peers that speak to it."""

    def __init__(self, folder: str, stack: ExitStack) -> None:
        self.router = Router(Path(folder) / SOCKET_NAME)
        stack.callback(self.router.close)
        self._stack = stack
        self._make = stack.enter_context(libzmq())

    def expect(self, token: bytes = TOKEN, body_bytes: int = 0) -> Expected:
        """Wait for a worker."""
        return Expected(self.router, token, body_bytes)

    def peer(self, routing_id: bytes | None = None) -> ZmqEnd:
        """A well-spoken peer; it connects again when it is hung up on."""
        end = self._make(zmq.DEALER)
        if routing_id is not None:
            end.socket.setsockopt(zmq.ROUTING_ID, routing_id)
        end.socket.connect(self.router.address)
        return end

    def raw(self, said: bytes = b"") -> socket.socket:
        """A peer without ZeroMQ."""
        sock = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        sock.connect(self.router.address.removeprefix("ipc://"))
        sock.settimeout(0)
        sock.send(said)
        return sock

    @property
    def unproven(self) -> int:
        """Peers that have not said who they are."""
        return len(self.router._unproven)


@contextmanager
def played_fleet() -> Iterator[PlayedFleet]:
    """A router that is closed at the end; a test's own folder has too long a name for a socket."""
    with short_folder() as folder:
        with ExitStack() as stack:
            yield PlayedFleet(str(folder), stack)
        assert list(folder.iterdir()) == []
