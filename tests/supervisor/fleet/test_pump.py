"""The socket's place in the loop: nothing is lost between edges, floods leave others their turn."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import anyio
import pytest
import zmq

from quarterdeck.fleet import pump as pump_module
from quarterdeck.fleet.pump import BATCH, Parts, Pump
from quarterdeck_protocol.envelope import INLINE_BYTES

pytestmark = pytest.mark.anyio

PATIENCE_S = 10.0


class Pair:
    """Two sockets joined in memory, each with its pump."""

    def __init__(self, hwm: int = 0) -> None:
        self.context = zmq.Context()
        self.near, self.far = self.context.socket(zmq.PAIR), self.context.socket(zmq.PAIR)
        for socket in (self.near, self.far):
            socket.linger = 0
            socket.sndhwm = socket.rcvhwm = hwm
        self.near.bind("inproc://pair")
        self.far.connect("inproc://pair")
        self.near_heard: list[Parts] = []
        self.far_heard: list[Parts] = []
        self.near_pump = Pump(self.near, self.near_heard.append)

    def close(self) -> None:
        """Release the sockets."""
        self.near_pump.close()
        self.near.close()
        self.far.close()
        self.context.term()


@contextmanager
def pair(hwm: int = 0) -> Iterator[Pair]:
    """A joined pair, released at the end."""
    joined = Pair(hwm)
    try:
        yield joined
    finally:
        joined.close()


async def until(heard: list[Parts], count: int) -> None:
    """Wait until that many messages came."""
    with anyio.fail_after(PATIENCE_S):
        while len(heard) < count:
            await anyio.lowlevel.checkpoint()


async def test_messages_cross_both_ways_in_order() -> None:
    """Frames would overtake one another, or wait for an edge that never comes."""
    with pair() as joined:
        far_pump = Pump(joined.far, lambda parts: far_pump.send([b"re:", *parts]))
        for number in range(3 * BATCH):
            joined.near_pump.send([b"%d" % number])
        await until(joined.near_heard, 3 * BATCH)
        assert joined.near_heard == [[b"re:", b"%d" % number] for number in range(3 * BATCH)]
        far_pump.close()


async def test_what_came_before_the_pump_is_heard() -> None:
    """A worker's first word would wait for its second."""
    with pair() as joined:
        joined.far.send(b"early")
        await until(joined.near_heard, 1)


async def test_a_message_that_arrives_beside_a_send_is_not_lost_with_the_edge() -> None:
    """A send swallows the socket's edge: the answer would lie there until something else happens."""
    with pair() as joined:
        await anyio.lowlevel.checkpoint()
        joined.far.send(b"unseen")
        joined.near_pump.send([b"x"])
        await until(joined.near_heard, 1)


async def test_large_parts_cross_whole() -> None:
    """The way without copies would change what it carries."""
    with pair() as joined:
        body = bytes(range(256)) * (INLINE_BYTES // 128)
        far_pump = Pump(joined.far, joined.far_heard.append)
        joined.near_pump.send([b"head", body])
        await until(joined.far_heard, 1)
        assert joined.far_heard == [[b"head", body]]
        far_pump.close()


async def test_what_the_socket_does_not_take_is_kept_in_order() -> None:
    """A burst beyond the socket's mark would be lost, reordered, or block the loop."""
    with pair(hwm=2) as joined:
        for number in range(20):
            joined.near_pump.send([b"%d" % number])
        assert joined.near_pump._unsent
        heard = []
        with anyio.fail_after(PATIENCE_S):
            while len(heard) < 20:
                try:
                    heard.append(joined.far.recv(zmq.NOBLOCK))
                except zmq.Again:
                    joined.near_pump._wake()
                await anyio.lowlevel.checkpoint()
        assert heard == [b"%d" % number for number in range(20)]


class BusySocket:
    """A socket as libzmq's sends see it: what frees room is noticed by a look at EVENTS, which takes the edge."""

    def __init__(self) -> None:
        self.fd, self._edge = os.pipe()
        self._is_freed = self._has_room = False
        self.sent: list[bytes] = []

    def free(self) -> None:
        """The peer has read; the descriptor says that something happened."""
        self._is_freed = True
        os.write(self._edge, b"!")

    def getsockopt(self, option: int) -> int:
        """See `zmq.Socket`."""
        if option == zmq.FD:
            return self.fd
        if option == zmq.EVENTS and self._is_freed:
            self._is_freed, self._has_room = False, True
            os.read(self.fd, 1)
        return 0

    def send(self, part: bytes, flags: int, *, copy: bool) -> None:
        """See `zmq.Socket`."""
        if not self._has_room:
            raise zmq.Again
        self.sent.append(part)

    def close(self) -> None:
        """Release the descriptors."""
        os.close(self.fd)
        os.close(self._edge)


async def test_what_was_kept_is_sent_when_there_is_room_again() -> None:
    """What waits in the pump would wait for ever, unless something else happens on the socket."""
    socket = BusySocket()
    pump = Pump(socket, lambda _: None)  # type: ignore[arg-type]
    pump.send([b"kept"])
    await anyio.lowlevel.checkpoint()
    socket.free()
    for _ in range(10):
        await anyio.lowlevel.checkpoint()
    pump.close()
    socket.close()
    assert socket.sent == [b"kept"]


async def test_a_flood_is_taken_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that floods would starve the others' calls and heartbeats."""
    monkeypatch.setattr(pump_module, "BATCH", 4)
    with pair() as joined:
        for _ in range(20):
            joined.far.send(b"x")
        counts = [0]
        while counts[-1] < 20:
            await anyio.lowlevel.checkpoint()
            counts.append(len(joined.near_heard))
        # The descriptor's wake and the scheduled one may share a turn.
        assert max(after - before for before, after in pairwise(counts)) <= 2 * 4


async def test_draining_takes_what_waits_now_and_no_endless_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    """A beat that has arrived would be called missing, or a flood would hold the loop."""
    monkeypatch.setattr(pump_module, "MAX_DRAIN", 4)
    with pair() as joined:
        for _ in range(6):
            joined.far.send(b"x")
        joined.near_pump.drain()
        assert len(joined.near_heard) == 4
        joined.near_pump.drain()
        joined.near_pump.drain()
        assert len(joined.near_heard) == 6


async def test_a_peer_that_is_gone_costs_only_what_was_for_it() -> None:
    """One dead worker would stop the messages of all others."""
    context = zmq.Context()
    router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    router.linger = dealer.linger = 0
    router.router_mandatory = 1
    router.bind("inproc://router")
    dealer.connect("inproc://router")
    heard: list[Parts] = []
    pump = Pump(router, heard.append)
    dealer.send(b"hello")
    await until(heard, 1)
    pump.send([b"\0gone", b"for nobody"])
    pump.send([heard[0][0], b"for you"])
    assert dealer.recv() == b"for you"
    pump.close()
    router.close()
    dealer.close()
    context.term()


async def test_any_other_error_of_the_socket_is_told() -> None:
    """A broken socket would look like a silent peer."""
    with pair() as joined:
        joined.near.close()
        with pytest.raises(zmq.ZMQError):
            joined.near_pump._try_send([b"x"])
        joined.near_pump._closed = True
        joined.near_pump._loop.remove_reader(joined.near_pump._fd)


async def test_a_closed_pump_neither_reads_nor_sends() -> None:
    """Messages would reach a link that is gone."""
    with pair() as joined:
        joined.near_pump.close()
        joined.near_pump.close()
        joined.far.send(b"late")
        joined.near_pump.send([b"late"])
        joined.near_pump.drain()
        await anyio.lowlevel.checkpoint()
        assert joined.near_heard == []
        with pytest.raises(zmq.Again):
            joined.far.recv(zmq.NOBLOCK)


async def test_a_pump_closed_by_a_message_reads_no_further() -> None:
    """A worker that ends would go on hearing."""
    with pair() as joined:
        joined.near_pump._on_message = lambda parts: (joined.near_heard.append(parts), joined.near_pump.close())[0]
        joined.far.send(b"end")
        joined.far.send(b"more")
        await until(joined.near_heard, 1)
        await anyio.lowlevel.checkpoint()
        assert joined.near_heard == [[b"end"]]
