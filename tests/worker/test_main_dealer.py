"""A worker's end of the socket, against libzmq's ROUTER and against strangers."""

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import pytest
import zmq
from support.zeromq import ZmqEnd, libzmq, until

from quarterdeck_protocol.link.envelope import INLINE_BYTES
from quarterdeck_worker.main import Dealer

pytestmark = pytest.mark.anyio


class WorkersEnd:
    """A dealer, and what it heard."""

    def __init__(self, address: str) -> None:
        self.heard: list[list[bytes]] = []
        self.ends: list[Exception] = []
        self.dealer = Dealer(address, self.heard.append, self.ends.append)

    async def hear(self, count: int) -> list[list[bytes]]:
        """Wait until so many messages came."""
        await until(lambda: len(self.heard) >= count)
        return self.heard


@pytest.fixture
def address() -> Iterator[str]:
    """Where nobody listens yet; short, as socket paths must be."""
    with tempfile.TemporaryDirectory(prefix="qd-", dir="/tmp") as folder:
        yield f"ipc://{folder}/link.sock"


@contextmanager
def routing(address: str) -> Iterator[ZmqEnd]:
    """The other end, of libzmq; what it hears begins with the peer's routing id."""
    with libzmq() as make:
        router = make(zmq.ROUTER)
        router.socket.bind(address)
        yield router


async def test_messages_cross_both_ways_in_order(address: str) -> None:
    """Frames would be lost or overtake one another."""
    end = WorkersEnd(address)
    with routing(address) as router:
        for number in range(300):
            end.dealer.send([b"%d" % number, b"body"])
        heard = await router.hear(300)
        assert [parts[1:] for parts in heard] == [[b"%d" % number, b"body"] for number in range(300)]
        for number in range(300):
            router.send(heard[0][0], b"%d" % number)
        assert await end.hear(300) == [[b"%d" % number] for number in range(300)]
        end.dealer.close()


@pytest.mark.parametrize("size", [0, 255, 256, INLINE_BYTES, 5_000_000])
async def test_parts_of_any_size_cross_whole(address: str, size: int) -> None:
    """Results beyond the socket's buffer would be cut, or hold up the loop until they are read."""
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    end = WorkersEnd(address)
    with routing(address) as router:
        end.dealer.send([b"head", body])
        end.dealer.send([b"next"])
        heard = await router.hear(2)
        assert [parts[1:] for parts in heard] == [[b"head", body], [b"next"]]
        router.send(heard[0][0], b"head", body)
        router.send(heard[0][0], b"next")
        assert await end.hear(2) == [[b"head", body], [b"next"]]
        end.dealer.close()


async def test_it_waits_for_a_listener(address: str) -> None:
    """A worker that is faster than its supervisor would give up."""
    end = WorkersEnd(address)
    end.dealer.send([b"early"])
    end.dealer.drain()
    await anyio.lowlevel.checkpoint()
    assert end.ends == []
    with routing(address) as router:
        await router.hear(1)
        end.dealer.close()


async def test_one_that_was_closed_before_it_connected_stays_away(address: str) -> None:
    """A worker that was given up would still say its token to whoever listens."""
    end = WorkersEnd(address)
    end.dealer.close()
    end.dealer._connect()
    assert end.ends == []


async def test_the_end_of_the_supervisor_is_told_once(address: str) -> None:
    """A worker without a zygote would outlive its owner by its patience."""
    end = WorkersEnd(address)
    end.dealer.send([b"hello"])
    with routing(address) as router:
        await router.hear(1)
    await until(lambda: end.ends)
    end.dealer.send([b"late"])
    end.dealer.drain()
    end.dealer.close()
    assert len(end.ends) == 1


async def test_a_stranger_in_the_supervisors_place_is_left(address: str) -> None:
    """A worker would wait for ever for what is no ROUTER."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address.removeprefix("ipc://"))
        listener.listen()
        end = WorkersEnd(address)
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4)
            await until(lambda: end.ends)
    assert "ZMTP" in str(end.ends[0])
