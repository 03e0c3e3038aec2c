"""Somebody else on the link's socket: nobody without a token is answered, and no worker notices.

The directory is closed to other users; a server that broke out of its sandbox would still be us.
"""

import os
import secrets
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
import zmq
from support.servers.real_endpoints import BACKSTOP_S, opened, pretend, say

from quarterdeck.fleet.workers import router
from quarterdeck.interop import CLIENT_VERSION
from quarterdeck_protocol.faults import FaultKind, FaultRecord
from quarterdeck_protocol.link.frame_bytes import encode
from quarterdeck_protocol.link.frames import LINK_VERSION, Answer, Beat, Hello, Lost

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("undisturbed")]

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
"""ZMTP 3.0 (rfc.zeromq.org/spec/23): signature, version, mechanism, as-server, filler."""

LONG_FRAME = b"\x02" + (1 << 40).to_bytes(8, "big")
"""The head of a frame of a terabyte."""


@pytest.fixture
def address(own_directories: Path) -> Path:
    """Where the runtime listens."""
    (path,) = own_directories.glob("run/*/link.sock")
    return path


@pytest.fixture
def raw(address: Path) -> Iterator[socket.socket]:
    """A connection without ZeroMQ."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(address))
        peer.settimeout(BACKSTOP_S)
        yield peer


@pytest.fixture
def dealers(address: Path) -> Iterator[Callable[[], "zmq.Socket[bytes]"]]:
    """Makes well-spoken connections."""
    context = zmq.Context()
    peers: list[zmq.Socket[bytes]] = []

    def make() -> "zmq.Socket[bytes]":
        peers.append(context.socket(zmq.DEALER))
        peers[-1].linger = 0
        peers[-1].connect(f"ipc://{address}")
        return peers[-1]

    yield make
    for peer in peers:
        peer.close()
    context.term()


@pytest.fixture
def dealer(dealers: Callable[[], "zmq.Socket[bytes]"]) -> "zmq.Socket[bytes]":
    """One of them."""
    return dealers()


def hello(token: bytes) -> Hello:
    return Hello(LINK_VERSION, CLIENT_VERSION, token, os.getpid())


async def is_hung_up(peer: socket.socket) -> bool:
    """Whether the other end closes the connection, whatever it says before."""

    def read_to_the_end() -> bool:
        try:
            while peer.recv(65536):
                pass
        except ConnectionResetError:
            pass
        return True

    return await anyio.to_thread.run_sync(read_to_the_end)


def test_the_sockets_directory_is_closed_to_others(address: Path) -> None:
    """The token is the second lock; this is the first."""
    assert address.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n" * 10, bytes(1_000), secrets.token_bytes(100_000)])
async def test_a_peer_that_speaks_no_zmtp_is_hung_up_on(raw: socket.socket, garbage: bytes) -> None:
    """It must not cost more than its own connection."""
    try:
        raw.sendall(garbage)
    except BrokenPipeError:
        pass
    raw.shutdown(socket.SHUT_WR)
    assert await is_hung_up(raw)


async def test_a_peer_that_never_finishes_its_greeting_is_hung_up_on(
    raw: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections that wait for ever would use up the descriptors."""
    monkeypatch.setattr(router, "HANDSHAKE_S", 1.0)
    raw.sendall(GREETING)
    assert await is_hung_up(raw)


async def test_a_frame_of_a_terabyte_is_hung_up_on(raw: socket.socket) -> None:
    """Its announcement alone must not reserve memory."""
    raw.sendall(GREETING)
    ready = b"\x05READY" + b"\x0bSocket-Type" + (6).to_bytes(4, "big") + b"DEALER"
    raw.sendall(b"\x04" + bytes([len(ready)]) + ready + LONG_FRAME)
    assert await is_hung_up(raw)


STRANGERS: dict[str, list[bytes]] = {
    "wrong token": encode(hello(secrets.token_bytes(32))),
    "no token": encode(hello(b"")),
    "beat": encode(Beat()),
    "answer": encode(Answer(1), b"{}"),
    "lost": encode(Lost(FaultRecord(FaultKind.TRANSPORT, "gone"))),
    "nothing": [b""],
    "noise": [secrets.token_bytes(1_000)],
    "many parts": [b"part"] * 20_000,
    "20 MB": [bytes(20_000_000)],
}


async def test_a_peer_without_a_token_is_not_answered(dealers: Callable[[], "zmq.Socket[bytes]"]) -> None:
    """Whatever it says first, it learns nothing and moves nothing."""
    answered = {}
    async with opened(pretend("echo")) as endpoint:
        for name, parts in STRANGERS.items():
            peer = dealers()
            for _ in range(3):
                peer.send_multipart(parts)
            await say(endpoint)
            if await anyio.to_thread.run_sync(peer.poll, 100):
                answered[name] = peer.recv_multipart()
        assert endpoint.phase == "ready"
    assert answered == {}


async def test_a_used_token_opens_nothing(dealer: "zmq.Socket[bytes]", monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever read a worker's first message could else speak for its server."""
    tokens: list[bytes] = []

    def remember(size: int) -> bytes:
        tokens.append(os.urandom(size))
        return tokens[-1]

    monkeypatch.setattr(secrets, "token_bytes", remember)
    async with opened(pretend("echo")) as endpoint:
        assert len(tokens) == 1
        dealer.send_multipart(encode(hello(tokens[0])))
        dealer.send_multipart(encode(Lost(FaultRecord(FaultKind.TRANSPORT, "gone"))))
        await say(endpoint)
        assert await anyio.to_thread.run_sync(dealer.poll, 100) == 0
        assert endpoint.phase == "ready"


async def test_a_stranger_that_keeps_talking_does_not_fill_our_log(
    dealer: "zmq.Socket[bytes]", caplog: pytest.LogCaptureFixture
) -> None:
    """One line says it; a thousand would hide everything else."""
    for _ in range(1_000):
        dealer.send(b"noise")
    async with opened(pretend("echo")) as endpoint:
        await say(endpoint)
    assert caplog.text.count("without a valid token") <= 1
