"""A worker's end of the socket, against libzmq's ROUTER and against strangers."""

import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio
import pytest
import zmq

from quarterdeck.fleet.pump import Pump
from quarterdeck_protocol.envelope import INLINE_BYTES
from quarterdeck_worker import dealer as dealer_module
from quarterdeck_worker.dealer import Dealer

pytestmark = pytest.mark.anyio

PATIENCE_S = 10.0


@dataclass
class WorkersEnd:
    """A dealer, and what it heard."""

    address: str
    heard_here: list[list[bytes]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    dealer: Dealer = field(init=False)

    def __post_init__(self) -> None:
        self.dealer = Dealer(self.address, self.heard_here.append, self.reasons.append)


@pytest.fixture
def address() -> Iterator[str]:
    """Where nobody listens yet; short, as socket paths must be."""
    with tempfile.TemporaryDirectory(prefix="qd-", dir="/tmp") as folder:
        yield f"ipc://{folder}/link.sock"


@contextmanager
def routing(address: str) -> Iterator[tuple[Pump, list[list[bytes]]]]:
    """The other end, on our loop; what it hears begins with the peer's routing id."""
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.linger = 0
    router.sndhwm = router.rcvhwm = 0
    router.bind(address)
    heard: list[list[bytes]] = []
    pump = Pump(router, heard.append)
    yield pump, heard
    pump.close()
    router.close()
    context.term()


async def until(heard: list[list[bytes]] | list[str], count: int) -> None:
    """Wait until that much came."""
    await until_true(lambda: len(heard) >= count)


async def until_true(condition: Callable[[], bool]) -> None:
    """Let the loop turn until it is so."""
    with anyio.fail_after(PATIENCE_S):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def test_messages_cross_both_ways_in_order(address: str) -> None:
    """Frames would be lost or overtake one another."""
    ends = WorkersEnd(address)
    with routing(address) as (pump, heard):
        for number in range(300):
            ends.dealer.send([b"%d" % number, b"body"])
        await until(heard, 300)
        assert [parts[1:] for parts in heard] == [[b"%d" % number, b"body"] for number in range(300)]
        for number in range(300):
            pump.send([heard[0][0], b"%d" % number])
        await until(ends.heard_here, 300)
        assert ends.heard_here == [[b"%d" % number] for number in range(300)]
        ends.dealer.close(0.0)


@pytest.mark.parametrize("size", [0, 255, 256, INLINE_BYTES, 5_000_000])
async def test_parts_of_any_size_cross_whole(address: str, size: int) -> None:
    """Results beyond the socket's buffer would be cut, or hold up the loop until they are read."""
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    ends = WorkersEnd(address)
    with routing(address) as (pump, heard):
        ends.dealer.send([b"head", body])
        ends.dealer.send([b"next"])
        await until(heard, 2)
        assert [parts[1:] for parts in heard] == [[b"head", body], [b"next"]]
        pump.send([heard[0][0], b"head", body])
        pump.send([heard[0][0], b"next"])
        await until(ends.heard_here, 2)
        assert ends.heard_here == [[b"head", body], [b"next"]]
        ends.dealer.close(0.0)


async def test_it_waits_for_a_listener(address: str) -> None:
    """A worker that is faster than its supervisor would give up."""
    ends = WorkersEnd(address)
    ends.dealer.send([b"early"])
    ends.dealer.drain()
    await anyio.lowlevel.checkpoint()
    assert ends.reasons == []
    with routing(address) as (_, heard):
        await until(heard, 1)
        ends.dealer.close(0.0)


async def test_the_end_of_the_supervisor_is_told_once(address: str) -> None:
    """A worker without a zygote would outlive its owner by its patience."""
    ends = WorkersEnd(address)
    ends.dealer.send([b"hello"])
    with routing(address) as (_, heard):
        await until(heard, 1)
    await until(ends.reasons, 1)
    ends.dealer.send([b"late"])
    ends.dealer.drain()
    ends.dealer.close(0.0)
    assert len(ends.reasons) == 1


async def test_a_stranger_in_the_supervisors_place_is_left(address: str) -> None:
    """A worker would wait for ever for what is no ROUTER."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address.removeprefix("ipc://"))
        listener.listen()
        ends = WorkersEnd(address)
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4)
            await until(ends.reasons, 1)
        ends.dealer.close(0.0)
    assert "ZMTP" in ends.reasons[0]


async def test_the_last_words_leave_before_it_hangs_up(address: str) -> None:
    """A dossier that is larger than the socket's buffer would be lost with its worker."""
    ends = WorkersEnd(address)
    with routing(address) as (_, heard):
        ends.dealer.send([b"hello"])
        await until(heard, 1)
        ends.dealer.send([b"last", bytes(3_000_000)])
        ends.dealer.close(PATIENCE_S)
        await until(heard, 2)
        assert heard[1][1:] == [b"last", bytes(3_000_000)]


async def test_a_peer_that_does_not_read_does_not_hold_the_end_up(address: str) -> None:
    """A worker would stay for ever beside a supervisor that hangs."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address.removeprefix("ipc://"))
        listener.listen()
        ends = WorkersEnd(address)
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b"\xff" + bytes(7) + b"\x01\x7f\x03\x00NULL" + bytes(48) + b"\x04\x06\x05READY")
            ends.dealer.send([bytes(3_000_000)])
            await until_true(lambda: ends.dealer._messages.is_ready)
            ends.dealer.close(0.0)
    assert ends.dealer._socket.fileno() < 0


async def test_nothing_is_heard_after_the_message_that_closed_it(address: str) -> None:
    """A worker that ends would go on serving."""
    ends = WorkersEnd(address)
    with routing(address) as (pump, heard):
        ends.dealer.send([b"hello"])
        await until(heard, 1)

        def end(parts: list[bytes]) -> None:
            ends.heard_here.append(parts)
            ends.dealer.close(0.0)

        ends.dealer._on_message = end
        pump.send([heard[0][0], b"end"])
        pump.send([heard[0][0], b"more"])
        await until(ends.heard_here, 1)
        await anyio.lowlevel.checkpoint()
        assert ends.heard_here == [[b"end"]]


async def test_draining_takes_what_waits_now_and_no_endless_flood(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A beat that has arrived would be called missing, or a flood would hold the loop."""
    monkeypatch.setattr(dealer_module, "MAX_DRAIN", 2)
    monkeypatch.setattr(dealer_module, "READ_BYTES", 4)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address.removeprefix("ipc://"))
        listener.listen()
        ends = WorkersEnd(address)
        peer, _ = listener.accept()
        with peer:
            ends.dealer._messages.feed(b"\xff" + bytes(7) + b"\x01\x7f\x03\x00NULL" + bytes(48) + b"\x04\x06\x05READY")
            peer.sendall(b"\x00\x02ab" * 3)
            ends.dealer.drain()
            assert ends.heard_here == [[b"ab"]] * 2
            ends.dealer.drain()
            assert ends.heard_here == [[b"ab"]] * 3
        ends.dealer.close(0.0)
