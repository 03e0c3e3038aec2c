"""The supervisor's socket: who has a token is heard, who has none is neither heard nor answered."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
import zmq
from support.leftovers import eventually
from support.workers import PATIENCE_S, turns

from quarterdeck.fleet.router import SOCKET_NAME, PeerWay, Router
from quarterdeck_protocol.envelope import encode
from quarterdeck_protocol.frames import LINK_VERSION, Beat, Hello, Welcome

pytestmark = pytest.mark.anyio

TOKEN = b"the one-time token"


def hello(token: bytes = TOKEN) -> list[bytes]:
    """A worker's first message."""
    return encode(Hello(LINK_VERSION, "1", token, 42))


class Harbour:
    """A router in a directory of its own, and peers that speak to it."""

    def __init__(self, folder: str) -> None:
        self.router = Router(Path(folder) / SOCKET_NAME)
        self._context = zmq.Context()
        self._peers: list[zmq.Socket[bytes]] = []

    def peer(self, routing_id: bytes | None = None) -> "zmq.Socket[bytes]":
        """A connected peer."""
        socket = self._context.socket(zmq.DEALER)
        socket.linger = 0
        if routing_id is not None:
            socket.setsockopt(zmq.ROUTING_ID, routing_id)
        socket.connect(self.router.address)
        self._peers.append(socket)
        return socket

    def expect(self, token: bytes = TOKEN) -> tuple[PeerWay, list[list[bytes]]]:
        """A way that waits for its worker, and what came by it."""
        heard: list[list[bytes]] = []
        return self.router.expect(token, lambda parts: heard.append(list(parts))), heard

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Let the loop run until it is so."""
        with anyio.fail_after(PATIENCE_S):
            while not is_true():
                await turns(1)

    def close(self) -> None:
        """Release everything."""
        for socket in self._peers:
            socket.close()
        self._context.term()
        self.router.close()


@contextmanager
def harbour() -> Iterator[Harbour]:
    """A router that is closed at the end; a test's own folder has too long a name for a socket."""
    with tempfile.TemporaryDirectory(prefix="qd-") as folder:
        made = Harbour(folder)
        try:
            yield made
        finally:
            made.close()


def unheard(peer: "zmq.Socket[bytes]") -> bool:
    """Whether nobody answered this peer."""
    try:
        peer.recv(zmq.NOBLOCK)
    except zmq.Again:
        return True
    return False


async def test_a_worker_with_its_token_is_heard_and_answered() -> None:
    """No worker could connect."""
    with harbour() as made:
        way, heard = made.expect()
        peer = made.peer()
        peer.send_multipart(hello())
        await made.until(lambda: bool(heard))
        assert heard == [hello()]
        large = encode(Beat(), b"")
        peer.send_multipart(large)
        await made.until(lambda: len(heard) == 2)
        way.send(encode(Welcome("1")))
        with anyio.fail_after(PATIENCE_S):
            while not peer.poll(0):
                await turns(1)
        assert peer.recv_multipart() == encode(Welcome("1"))
        assert way.delivered_bytes == len(hello()[0]) + len(large[0])
        assert made.router.strangers == 0


async def test_a_way_to_nobody_swallows_what_is_sent() -> None:
    """A link that speaks before its worker came would fail."""
    with harbour() as made:
        way, heard = made.expect()
        way.send([b"into the void"])
        way.drain()
        assert heard == []


@pytest.mark.parametrize(
    "message",
    [
        hello(b"another token, quite wrong"),
        encode(Beat()),
        encode(Welcome("1")),
        [b"nonsense"],
        [b""],
        [b"a", b"b", b"c"],
        [b"\0\0\0\1"],
    ],
    ids=["wrong token", "beat", "welcome", "nonsense", "empty", "parts", "short"],
)
async def test_a_peer_without_the_token_is_not_answered(
    message: Sequence[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever can open the socket could speak for a server."""
    with harbour() as made:
        _, heard = made.expect()
        peer = made.peer()
        for _ in range(3):
            peer.send_multipart(message)
        await made.until(lambda: made.router.strangers == 3)
        assert heard == []
        assert unheard(peer)
        assert caplog.text.count("without a valid token") == 1, "a flood must not flood the log"


async def test_a_token_serves_once() -> None:
    """A copy of a token would let a second peer speak for the same server."""
    with harbour() as made:
        way, heard = made.expect()
        first, second = made.peer(), made.peer()
        first.send_multipart(hello())
        await made.until(lambda: bool(heard))
        bound = way.routing_id
        second.send_multipart(hello())
        await made.until(lambda: made.router.strangers == 1)
        assert way.routing_id == bound
        assert len(heard) == 1
        assert unheard(second)
        first.send_multipart(encode(Beat()))
        await made.until(lambda: len(heard) == 2)


async def test_each_worker_is_heard_by_its_own_link_only() -> None:
    """One server's worker could answer another's calls."""
    with harbour() as made:
        ways = {name: made.expect(name * 16) for name in (b"a", b"b")}
        peers = {name: made.peer() for name in ways}
        for name, peer in peers.items():
            peer.send_multipart(hello(name * 16))
        await made.until(lambda: all(heard for _, heard in ways.values()))
        peers[b"b"].send_multipart([b"from b"])
        await made.until(lambda: len(ways[b"b"][1]) == 2)
        assert ways[b"a"][1] == [hello(b"a" * 16)]
        ways[b"a"][0].send([b"to a"])
        with anyio.fail_after(PATIENCE_S):
            while not peers[b"a"].poll(0):
                await turns(1)
        assert peers[b"a"].recv() == b"to a"
        assert unheard(peers[b"b"])


async def test_a_routing_id_that_a_peer_chose_is_not_admitted_and_costs_no_token() -> None:
    """A peer could take the name of a worker that reconnects."""
    with harbour() as made:
        way, heard = made.expect()
        chooser = made.peer(b"worker-1")
        chooser.send_multipart(hello())
        await made.until(lambda: made.router.strangers == 1)
        assert way.routing_id is None
        made.peer().send_multipart(hello())
        await made.until(lambda: bool(heard))


async def test_a_peer_cannot_take_over_the_routing_id_of_a_bound_worker() -> None:
    """Whoever guesses an id could answer a worker's calls, or silence it."""
    with harbour() as made:
        way, heard = made.expect()
        worker = made.peer()
        worker.send_multipart(hello())
        await made.until(lambda: bool(heard))
        assert way.routing_id is not None
        thief = made.peer(way.routing_id)
        thief.send_multipart([b"stolen"])
        worker.send_multipart([b"mine"])
        await made.until(lambda: len(heard) >= 2)
        await turns()
        assert heard[1:] == [[b"mine"]]
        way.send([b"for the worker"])
        with anyio.fail_after(PATIENCE_S):
            while not worker.poll(0):
                await turns(1)
        assert unheard(thief)


async def test_a_forgotten_worker_is_a_stranger() -> None:
    """A worker that was given up would still be heard."""
    with harbour() as made:
        early, _ = made.expect()
        made.router.forget(TOKEN, early)
        peer = made.peer()
        peer.send_multipart(hello())
        await made.until(lambda: made.router.strangers == 1)
        way, heard = made.expect()
        other = made.peer()
        other.send_multipart(hello())
        await made.until(lambda: bool(heard))
        made.router.forget(TOKEN, way)
        made.router.forget(TOKEN, way)
        other.send_multipart([b"late"])
        await made.until(lambda: made.router.strangers == 2)
        assert len(heard) == 1


async def test_a_worker_that_is_gone_costs_only_its_own_messages() -> None:
    """One dead worker would stop the others."""
    with harbour() as made:
        way, heard = made.expect()
        other, other_heard = made.expect(b"another one's token")
        peer, neighbour = made.peer(), made.peer()
        peer.send_multipart(hello())
        neighbour.send_multipart(hello(b"another one's token"))
        await made.until(lambda: bool(heard and other_heard))
        peer.close()
        for _ in range(50):
            way.send([b"x"])
            other.send([b"y"])
            await turns(1)
        with anyio.fail_after(PATIENCE_S):
            while not neighbour.poll(0):
                await turns(1)


async def test_what_waits_in_the_socket_is_heard_when_a_link_drains() -> None:
    """A beat that has arrived would be called missing."""
    with harbour() as made:
        way, heard = made.expect()
        peer = made.peer()
        peer.send_multipart(hello())

        def drained() -> bool:
            way.drain()
            return bool(heard)

        eventually(drained)


async def test_a_path_that_cannot_be_bound_is_an_error_that_leaves_nothing() -> None:
    """A full disk would leave a socket and its threads behind at every attempt."""
    with harbour() as made, pytest.raises(zmq.ZMQError):
        Router(Path(made.router.address.removeprefix("ipc://")).parent / "missing" / SOCKET_NAME)
