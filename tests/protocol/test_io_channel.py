"""One connection: what is said arrives, a flood leaves others their turn, who does not read is hung up on."""

import fcntl
import socket
import sys
import termios
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import anyio
import pytest
from support.fleet.zeromq import frame, until_hung_up
from support.waiting import PATIENCE_S, until

from quarterdeck_protocol import io as io_module
from quarterdeck_protocol.io import Channel
from quarterdeck_protocol.link.zmtp import DEALER, ROUTER, MessageBuffer, ZmtpError, encode_message, handshake

LIMITS = (1 << 20, 1 << 24)


class End:
    """A channel, and what came of it."""

    def __init__(self, sock: socket.socket, own: bytes, peers: bytes) -> None:
        self.heard: list[list[bytes]] = []
        self.ends: list[Exception] = []
        self.channel = Channel(sock, MessageBuffer(peers, LIMITS), self.heard.append, self.ends.append)
        self._own = own

    def begin(self) -> None:
        self.channel.begin(handshake(self._own))


@pytest.fixture
async def near() -> Iterator[End]:
    """An end on one side of a pair; `peer` is the raw other side."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(0)
    end = End(ours, ROUTER, DEALER)
    end.peer = theirs
    yield end
    end.channel.close()
    theirs.close()


@pytest.fixture
async def far(near: End) -> Iterator[End]:
    """An end of ours on the other side."""
    end = End(near.peer, DEALER, ROUTER)
    yield end
    end.channel.close()


def say(*messages: list[bytes]) -> bytes:
    return b"".join(b"".join(encode_message(parts)) for parts in messages)


async def greet(end: End) -> None:
    """Begin, and have the raw peer shake hands."""
    end.begin()
    end.peer.send(handshake(DEALER))
    await until(lambda: end.channel.messages.is_ready)


async def test_messages_cross_both_ways_in_order(near: End, far: End) -> None:
    """Frames would be lost, overtake one another, or be said before the peer is ready for them."""
    for number in range(300):
        near.channel.send([b"%d" % number, b"body"])
        far.channel.send([b"%d" % number])
    near.begin()
    far.begin()
    await until(lambda: len(near.heard) == len(far.heard) == 300)
    assert far.heard == [[b"%d" % number, b"body"] for number in range(300)]
    assert near.heard == [[b"%d" % number] for number in range(300)]


async def test_what_the_socket_does_not_take_is_kept_in_order(near: End, far: End) -> None:
    """A burst beyond the socket's buffer would be lost, cut, or block the loop."""
    near.begin()
    far.begin()
    await until(lambda: near.channel.messages.is_ready)
    bodies = [bytes([number]) * 1_000_000 for number in range(5)]
    for body in bodies:
        near.channel.send([b"head", body])
    near.channel.send([b"last"])
    assert near.channel._unsent
    await until(lambda: len(far.heard) == 6)
    assert far.heard == [*([b"head", body] for body in bodies), [b"last"]]
    assert not near.channel._unsent


async def test_what_is_said_in_one_turn_of_the_loop_leaves_together(near: End, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred calls that begin at once would be a hundred writes, and as many wakes of the worker."""
    monkeypatch.setattr(io_module, "BURST_S", PATIENCE_S)
    await greet(near)
    near.peer.recv(65536)
    for number in range(10):
        near.channel.send([b"%d" % number])
    assert near.peer.recv(65536) == say([b"0"])
    await anyio.lowlevel.checkpoint()
    assert near.peer.recv(65536) == say(*([b"%d" % number] for number in range(1, 10)))


async def test_what_is_said_on_its_own_leaves_at_once(near: End, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call would wait for the loop's next turn."""
    monkeypatch.setattr(io_module, "BURST_S", 0.0)
    await greet(near)
    near.peer.recv(65536)
    for _ in range(3):
        near.channel.send([b"one"])
        assert near.peer.recv(65536) == say([b"one"])


async def test_a_flood_is_taken_in_batches(near: End, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that floods would starve the others' calls and heartbeats."""
    monkeypatch.setattr(io_module, "BATCH", 4)
    near.begin()
    near.peer.send(handshake(DEALER) + say([b"x"]) * 40)
    counts = [0]
    while counts[-1] < 40:
        await anyio.lowlevel.checkpoint()
        counts.append(len(near.heard))
    assert max(after - before for before, after in pairwise(counts)) == 4


async def test_nothing_more_is_read_while_a_batch_waits(near: End, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that is faster than we are would fill our memory with messages that nobody heard yet."""
    monkeypatch.setattr(io_module, "BATCH", 1)
    monkeypatch.setattr(io_module, "READ_BYTES", 300)
    near.begin()
    said = near.peer.send(handshake(DEALER) + say([b"0123456789"]) * 1_000)
    while len(near.heard) < 1_000:
        await anyio.lowlevel.checkpoint()
        unread = int.from_bytes(fcntl.ioctl(near.channel._socket, termios.FIONREAD, bytes(4)), sys.byteorder)
        kept = said - unread - len(handshake(DEALER)) - len(near.heard) * 12
        assert kept <= 300 + 11, "a read and what was left of the one before"


async def test_draining_takes_what_waits_now_and_no_endless_flood(near: End, monkeypatch: pytest.MonkeyPatch) -> None:
    """A beat that has arrived would be called missing, or a flood would hold the loop."""
    monkeypatch.setattr(io_module, "MAX_DRAIN", 2)
    monkeypatch.setattr(io_module, "BATCH", 2)
    near.begin()
    near.peer.send(handshake(DEALER) + say([b"x"]) * 6)
    near.channel.drain()
    assert len(near.heard) == 4
    near.channel.drain()
    assert len(near.heard) == 6
    await anyio.lowlevel.checkpoint()
    assert near.ends == []


async def test_before_it_began_nothing_is_read_and_what_is_said_is_kept(near: End) -> None:
    """A worker that has not reached its supervisor yet would break."""
    near.channel.send([b"early"])
    near.channel.drain()
    near.peer.send(handshake(DEALER))
    near.begin()
    await until(lambda: near.channel.messages.is_ready)
    await anyio.lowlevel.checkpoint()
    assert near.peer.recv(65536) == handshake(ROUTER) + say([b"early"])


async def test_the_end_of_the_peer_is_told_once(near: End) -> None:
    """An end that is gone would be waited for, or mourned twice."""
    near.begin()
    near.peer.send(handshake(DEALER) + say([b"last"]))
    near.peer.close()
    await until(lambda: near.ends)
    near.channel.send([b"late"])
    near.channel.drain()
    near.channel.close()
    assert near.heard == [[b"last"]]
    assert isinstance(near.ends[0], OSError)
    assert len(near.ends) == 1


async def test_a_peer_that_is_gone_before_it_was_greeted_is_told_as_gone(near: End) -> None:
    """A peer that hangs up at once would break whoever let it in."""
    near.peer.close()
    near.begin()
    await until(lambda: near.ends)


async def test_what_a_peer_said_before_it_went_is_heard_although_it_cannot_be_answered(near: End) -> None:
    """A worker's last words would be lost with the answer that it does not read any more."""
    await greet(near)
    near.peer.send(say([b"last"]))
    near.peer.close()
    near.channel.send([b"for nobody"])
    await until(lambda: near.ends)
    assert near.heard == [[b"last"]]


async def test_a_peer_that_breaks_a_bound_is_hung_up_on(near: End) -> None:
    """It could go on filling our memory; what it said before is heard."""
    near.begin()
    near.peer.send(handshake(DEALER) + say([b"good"]) + frame(0, b"", LIMITS[0] + 1))
    await until_hung_up(near.peer)
    assert near.heard == [[b"good"]]
    assert [type(error) for error in near.ends] == [ZmtpError]


async def test_a_peer_that_does_not_read_is_hung_up_on(near: End, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept for it would fill our memory."""
    monkeypatch.setattr(io_module, "MAX_UNSENT", 3)
    await greet(near)
    near.channel.send([bytes(2_000_000)])
    for _ in range(3):
        near.channel.send([b"more"])
    await anyio.lowlevel.checkpoint()
    assert near.ends == []
    near.channel.send([b"one too many"])
    assert near.ends == [], "whoever sends is not told in the middle of it"
    await until(lambda: near.ends)
    assert [type(error) for error in near.ends] == [ZmtpError]
    assert not near.channel._unsent
    await until_hung_up(near.peer)


async def test_nothing_is_heard_after_the_message_that_closed_it(near: End) -> None:
    """A worker that ends would go on serving."""
    near.channel.on_message = lambda parts: (near.heard.append(parts), near.channel.close())[0]
    near.begin()
    near.peer.send(handshake(DEALER) + say([b"end"], [b"more"]))
    await until(lambda: near.heard)
    await anyio.lowlevel.checkpoint()
    assert near.heard == [[b"end"]]
    assert near.ends == []


async def test_the_last_words_leave_before_it_hangs_up(near: End) -> None:
    """A dossier that is larger than the socket's buffer would be lost with its worker."""
    await greet(near)
    near.channel.send([b"last", bytes(3_000_000)])
    near.peer.settimeout(None)
    with ThreadPoolExecutor() as reading:
        heard = reading.submit(lambda: b"".join(iter(lambda: near.peer.recv(65536), b"")))
        near.channel.close(10.0)
    assert heard.result() == handshake(ROUTER) + say([b"last", bytes(3_000_000)])


async def test_a_peer_that_does_not_read_does_not_hold_the_end_up(near: End) -> None:
    """A worker would stay for ever beside a supervisor that hangs."""
    await greet(near)
    near.channel.send([bytes(3_000_000)])
    near.channel.close(0.01)
    near.channel.close(10.0)
    assert near.channel._socket.fileno() < 0
