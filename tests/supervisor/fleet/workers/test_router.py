"""The supervisor's socket: who has a token is heard, who has none is hung up on, and so is who breaks a bound.

Workers are played by libzmq's DEALER: what our own say to each other proves nothing about ZeroMQ.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import anyio
import pytest
from support.fleet.played_router import TOKEN, PlayedFleet, hello, played_fleet, wire
from support.fleet.zeromq import MORE, frame, until_hung_up
from support.waiting import eventually, turns, until

from quarterdeck.fleet.workers import router as router_module
from quarterdeck.fleet.workers.router import HELLO_BYTES, LEAST_BODY_BYTES, SOCKET_NAME, Router
from quarterdeck_protocol import io as io_module
from quarterdeck_protocol.link.frame_bytes import INLINE_BYTES, encode
from quarterdeck_protocol.link.frames import Answer, Beat, Welcome
from quarterdeck_protocol.link.zmtp import DEALER, GREETING, ROUTER, handshake

pytestmark = pytest.mark.process


@pytest.fixture
async def made() -> AsyncIterator[PlayedFleet]:
    with played_fleet() as made:
        yield made


async def test_a_worker_with_its_token_is_heard_and_answered(made: PlayedFleet) -> None:
    """No worker could connect."""
    worker, peer = made.expect(), made.peer()
    peer.send(*hello())
    await worker.hear(1)
    peer.send(*encode(Beat()))
    assert await worker.hear(2) == [hello(), encode(Beat())]
    worker.way.send(encode(Welcome("1")))
    assert await peer.hear(1) == [encode(Welcome("1"))]
    assert made.unproven == 0
    assert worker.breaches == []


@pytest.mark.parametrize("size", [0, 255, 256, INLINE_BYTES, 5_000_000])
async def test_parts_of_any_size_cross_whole_both_ways(size: int, made: PlayedFleet) -> None:
    """Arguments and results beyond the socket's buffer would be cut, or hold up the loop until they are read."""
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    worker, peer = made.expect(), made.peer()
    peer.send(*hello())
    peer.send(b"head", body)
    peer.send(b"next")
    assert (await worker.hear(3))[1:] == [[b"head", body], [b"next"]]
    worker.way.send([b"head", body])
    worker.way.send([b"next"])
    assert await peer.hear(2) == [[b"head", body], [b"next"]]


async def test_what_a_worker_says_right_behind_its_token_is_heard(made: PlayedFleet) -> None:
    """It would be judged as a stranger's, or lost with the read that brought the token."""
    large = encode(Answer(1), bytes(INLINE_BYTES))
    worker = made.expect()
    made.raw(wire(hello(), large))
    assert await worker.hear(2) == [hello(), large]


async def test_a_way_to_nobody_swallows_what_is_sent(made: PlayedFleet) -> None:
    """A link that speaks before its worker came would fail."""
    worker = made.expect()
    worker.way.send([b"into the void"])
    worker.way.drain()
    assert worker.heard == []


@pytest.mark.parametrize(
    "message",
    [
        hello(b"another token, quite wrong"),
        hello(b""),
        encode(Beat()),
        encode(Welcome("1")),
        [b"nonsense"],
        [b""],
        [b"a", b"b", b"c"],
        [bytes(HELLO_BYTES + 1)],
        [b"\0\0\0\1"],
    ],
    ids=["wrong token", "no token", "beat", "welcome", "nonsense", "empty", "parts", "large", "short"],
)
async def test_a_peer_without_the_token_is_hung_up_on_and_learns_nothing(
    message: Sequence[bytes], made: PlayedFleet
) -> None:
    """Whoever can open the socket could speak for a server, or try one token after another."""
    worker = made.expect()
    assert await until_hung_up(made.raw(wire(message, hello()))) == handshake(ROUTER)
    assert worker.heard == []
    assert made.unproven == 0


async def test_peers_without_a_token_do_not_flood_the_log(caplog: pytest.LogCaptureFixture, made: PlayedFleet) -> None:
    """One line says it; a thousand would hide everything else."""
    for _ in range(3):
        await until_hung_up(made.raw(wire([b"noise"])))
    assert caplog.text.count("without a valid token") == 1


async def test_a_stranger_that_comes_again_and_again_keeps_no_worker_out(made: PlayedFleet) -> None:
    """Libzmq connects anew whenever it is hung up on."""
    worker, stranger = made.expect(), made.peer()
    stranger.send(*hello(b"another token, quite wrong"))
    await turns()
    made.peer().send(*hello())
    await worker.hear(1)
    assert stranger.look() == []


async def test_a_token_serves_once(made: PlayedFleet) -> None:
    """A copy of a token would let a second peer speak for the same server."""
    worker, first = made.expect(), made.peer()
    first.send(*hello())
    await worker.hear(1)
    assert await until_hung_up(made.raw(wire(hello()))) == handshake(ROUTER)
    first.send(*encode(Beat()))
    assert (await worker.hear(2))[1:] == [encode(Beat())]


async def test_each_worker_is_heard_by_its_own_link_only(made: PlayedFleet) -> None:
    """One server's worker could answer another's calls."""
    workers = {name: made.expect(name * 16) for name in (b"a", b"b")}
    peers = {name: made.peer() for name in workers}
    for name, peer in peers.items():
        peer.send(*hello(name * 16))
        await workers[name].hear(1)
    peers[b"b"].send(b"from b")
    assert (await workers[b"b"].hear(2))[1:] == [[b"from b"]]
    assert workers[b"a"].heard == [hello(b"a" * 16)]
    workers[b"a"].way.send([b"to a"])
    assert await peers[b"a"].hear(1) == [[b"to a"]]
    assert peers[b"b"].look() == []


async def test_a_routing_id_that_a_peer_chose_means_nothing(made: PlayedFleet) -> None:
    """Whoever guesses an id could answer a worker's calls, or silence it."""
    worker, other = made.expect(), made.expect(b"another one's token")
    first, second = made.peer(b"worker-1"), made.peer(b"worker-1")
    first.send(*hello())
    await worker.hear(1)
    second.send(*hello(b"another one's token"))
    await other.hear(1)
    worker.way.send([b"for the first"])
    assert await first.hear(1) == [[b"for the first"]]
    assert second.look() == []


async def test_a_forgotten_worker_is_a_stranger(made: PlayedFleet) -> None:
    """A worker that was given up would still be heard."""
    early = made.expect()
    made.router.forget(TOKEN, early.way)
    await until_hung_up(made.raw(wire(hello())))
    assert early.heard == []
    worker = made.expect()
    peer = made.raw(wire(hello()))
    await worker.hear(1)
    made.router.forget(TOKEN, worker.way)
    made.router.forget(TOKEN, worker.way)
    await until_hung_up(peer)
    worker.way.send([b"late"])
    assert worker.heard == [hello()]
    assert made.router._ways == set()


async def test_a_worker_that_is_gone_costs_only_its_own_messages(made: PlayedFleet) -> None:
    """One dead worker would stop the others, or its end be called a crime."""
    worker, other = made.expect(), made.expect(b"another one's token")
    gone, neighbour = made.raw(wire(hello())), made.peer()
    neighbour.send(*hello(b"another one's token"))
    await worker.hear(1)
    await other.hear(1)
    gone.close()
    for _ in range(50):
        worker.way.send([b"x"])
        other.way.send([b"y"])
        await turns(1)
    await neighbour.hear(50)
    assert worker.breaches == []


async def test_what_waits_in_the_socket_is_heard_when_a_link_drains(made: PlayedFleet) -> None:
    """A beat that has arrived would be called missing."""
    worker, peer = made.expect(), made.peer()
    peer.send(*hello())
    await worker.hear(1)
    peer.send(*encode(Beat()))

    def drained() -> bool:
        worker.way.drain()
        return len(worker.heard) == 2

    eventually(drained)


# Bounds


@pytest.mark.parametrize(
    "said",
    [
        frame(MORE, b"", 1 << 20),
        frame(0, b"", 1 << 40),
        frame(MORE, b"head") + frame(0, b"", LEAST_BODY_BYTES + 1),
        frame(MORE, b"head") + frame(MORE, b"body") + frame(0, b""),
        frame(MORE, b"") * 20_000,
        frame(8, b""),
        handshake(DEALER),
    ],
    ids=["large head", "a terabyte", "large body", "three parts", "parts without an end", "flags", "another greeting"],
)
async def test_a_worker_that_breaks_a_bound_is_hung_up_on_and_named(said: bytes, made: PlayedFleet) -> None:
    """A worker that was taken over would fill the memory of the supervisor, and take all servers with it."""
    worker = made.expect()
    peer = made.raw(wire(hello(), [b"good"]))
    await worker.hear(2)
    peer.send(said)
    await until_hung_up(peer)
    assert worker.heard == [hello(), [b"good"]]
    assert len(worker.breaches) == 1
    worker.way.send([b"late"])


async def test_a_server_with_large_results_may_send_them(made: PlayedFleet) -> None:
    """A limit that a user raised would cost the server its life."""
    worker = made.expect(body_bytes=LEAST_BODY_BYTES + 1)
    made.raw(wire(hello()) + frame(MORE, b"head") + frame(0, b"x", LEAST_BODY_BYTES + 1))
    await worker.hear(1)
    await turns()
    assert worker.breaches == []


async def test_a_worker_that_does_not_read_is_hung_up_on_and_named(
    monkeypatch: pytest.MonkeyPatch, made: PlayedFleet
) -> None:
    """What is kept for it would fill our memory."""
    monkeypatch.setattr(io_module, "MAX_UNSENT", 10)
    worker = made.expect()
    peer = made.raw(wire(hello()))
    await worker.hear(1)
    for _ in range(20):
        worker.way.send([bytes(100_000)])
    await until(lambda: worker.breaches)
    await until_hung_up(peer)
    assert "unread" in worker.breaches[0]


@pytest.mark.parametrize(
    "said",
    [b"", GREETING[:30], GREETING, wire(), wire() + frame(0, b"x", 100)],
    ids=["nothing", "half a greeting", "a greeting", "no message", "half a message"],
)
async def test_a_peer_that_never_says_who_it_is_is_hung_up_on(
    said: bytes, monkeypatch: pytest.MonkeyPatch, made: PlayedFleet
) -> None:
    """Connections that wait for ever would use up the descriptors."""
    monkeypatch.setattr(router_module, "HANDSHAKE_S", 0.05)
    assert await until_hung_up(made.raw(said)) == handshake(ROUTER)
    assert made.unproven == 0


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n" * 10,
        bytes(1_000),
        GREETING + frame(4, b"", 1 << 40),
        handshake(ROUTER),
        wire() + frame(MORE, b"part"),
        wire() + frame(0, b"", HELLO_BYTES + 1),
        wire() + b"\x04\x05\x04PING",
    ],
    ids=["HTTP", "zeros", "an endless command", "another ROUTER", "parts", "a large message", "a command"],
)
async def test_a_stranger_that_breaks_a_bound_is_hung_up_on(said: bytes, made: PlayedFleet) -> None:
    """It must not cost more than its own connection."""
    await until_hung_up(made.raw(said))
    assert made.unproven == 0


async def test_unproven_are_few_and_keep_no_worker_out_for_long(
    monkeypatch: pytest.MonkeyPatch, made: PlayedFleet
) -> None:
    """Connections without a token would use up the descriptors, or the worker behind them never get in."""
    monkeypatch.setattr(router_module, "MAX_UNPROVEN", 3)
    monkeypatch.setattr(router_module, "HANDSHAKE_S", 0.2)
    worker = made.expect()
    idle = [made.raw() for _ in range(9)]
    made.peer().send(*hello())
    await until(lambda: made.unproven == 3)
    most = 0

    def worker_came() -> bool:
        nonlocal most
        most = max(most, made.unproven)
        return bool(worker.heard)

    await until(worker_came)
    assert most == 3
    for peer in idle[:3]:
        await until_hung_up(peer)


async def test_a_table_of_descriptors_that_is_full_is_waited_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, made: PlayedFleet
) -> None:
    """The loop would spin, or no worker ever connect again."""
    monkeypatch.setattr(router_module, "RETRY_S", 0.01)

    class Full:
        tries = 0

        def __getattr__(self, name: str) -> Callable[..., object]:
            return getattr(listener, name)

        def accept(self) -> object:
            self.tries += 1
            if self.tries == 1:
                raise OSError(24, "Too many open files")
            return listener.accept()

    listener = made.router._socket
    monkeypatch.setattr(made.router, "_socket", Full())
    worker = made.expect()
    made.peer().send(*hello())
    await worker.hear(1)
    assert "no worker can connect" in caplog.text
    await anyio.sleep(0.05)
    assert made.router._socket.tries <= 3


async def test_closing_hangs_up_on_everybody(made: PlayedFleet) -> None:
    """Workers and strangers would wait for a supervisor that is gone."""
    worker = made.expect()
    peer, stranger = made.raw(wire(hello())), made.raw()
    await worker.hear(1)
    await until(lambda: made.unproven == 1)
    made.router.close()
    await until_hung_up(peer)
    await until_hung_up(stranger)
    assert worker.breaches == []
    worker.way.send([b"late"])


async def test_a_path_that_cannot_be_bound_is_an_error_that_leaves_nothing() -> None:
    """A full disk would leave a socket behind at every attempt."""
    with played_fleet() as made, pytest.raises(OSError, match="No such file"):
        Router(Path(made.router.address.removeprefix("ipc://")).parent / "missing" / SOCKET_NAME)
