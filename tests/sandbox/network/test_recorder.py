"""Hosts that a sandbox asks for: known by name, whatever a server sends, and bounded."""

import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from quarterdeck_sandbox.network import relay
from quarterdeck_sandbox.network.recorder import MAX_HOSTS, QUERY_BYTES, HostRecorder, RecordingRelay, server_name
from quarterdeck_sandbox.policy.host_names import FIRST_ADDRESS, Route

pytestmark = pytest.mark.process

PATIENCE_S = 20.0
FIRST = str(FIRST_ADDRESS)
A, AAAA = 1, 28


def query(name: bytes, kind: int = A) -> bytes:
    labels = b"".join(bytes([len(label)]) + label for label in name.split(b"."))
    return struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)


def hello(name: str | None) -> bytes:
    """The first record that OpenSSL sends."""
    sent = ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = name is not None
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name).do_handshake()
    return sent.read()


@asynccontextmanager
async def recording(recorder: HostRecorder, port: int) -> AsyncIterator[tuple[str, int]]:
    """Yield where a listener that plays `port` inside is dialled."""
    listener = socket.create_server((FIRST, 0))
    place = listener.getsockname()
    made = RecordingRelay(recorder, [Route("any", port, FIRST)], [listener])
    made.start()
    try:
        with anyio.fail_after(PATIENCE_S):
            yield place
    finally:
        await made.stop()


async def answered(place: tuple[str, int], sent: bytes, size: int) -> bytes:
    """Send, and return the first `size` bytes; fewer if the connection ends or is reset."""

    def converse() -> bytes:
        found = b""
        # A reset may come before the connection is handed to us, before all is sent, or later.
        with suppress(ConnectionResetError, BrokenPipeError), socket.create_connection(place, PATIENCE_S) as client:
            client.sendall(sent)
            while len(found) < size and (piece := client.recv(size)):
                found += piece
        return found

    return await anyio.to_thread.run_sync(converse)


async def test_each_name_has_an_address_of_its_own_and_is_known() -> None:
    """Two hosts could not be told apart, or a lookup would end as a timeout that a server waits for."""
    recorder = HostRecorder()
    asked = [query(b"API.example"), query(b"api.example", AAAA), query(b"b.example")]
    sent = b"".join(len(each).to_bytes(2, "big") + each for each in asked)
    async with recording(recorder, 53) as place:
        told = await answered(place, sent, sum(map(len, asked)) + 2 * 3 + 2 * 16)
    answers, found = [], told
    while found:
        size = int.from_bytes(found[:2], "big")
        answers.append(found[2 : 2 + size])
        found = found[2 + size :]
    for question, answer in zip(asked, answers, strict=True):
        assert answer[:2] + answer[12 : len(question)] == question[:2] + question[12:]
    assert [answer[6:8] for answer in answers] == [b"\0\1", b"\0\0", b"\0\1"]
    assert [answers[0][-4:], answers[2][-4:]] == [FIRST_ADDRESS.packed, (FIRST_ADDRESS + 1).packed]
    assert recorder.since(0) == ("api.example", "b.example")
    assert recorder.since(recorder.asked) == ()


@pytest.mark.parametrize(
    ("sent", "hosts"),
    [
        (hello("api.example"), ("api.example:443",)),
        (hello("other.example"), ("api.example:443", "other.example:443")),
        (hello(None), ("api.example:443",)),
        (
            b"GET / HTTP/1.1\r\nAccept: */*\r\nhOsT: \t other.example:443\r\n\r\n",
            ("api.example:443", "other.example:443"),
        ),
        (b"GET / HTTP/1.1\r\nHost: a\x1b[31m\r\n\r\n", ("api.example:443", "a\x1b[31m:443")),
        (b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", ("api.example:443",)),
        (b"GET / HTTP/1.1\r\n" + b"x" * 200_000, ("api.example:443",)),
        (b"\0\1\2\n\xff", ("api.example:443",)),
    ],
    ids=["TLS", "TLS for another", "TLS for an address", "HTTP for another", "escapes", "cut", "endless", "neither"],
)
async def test_a_connection_is_known_by_its_name_and_by_the_one_that_its_client_sends(
    sent: bytes, hosts: tuple[str, ...]
) -> None:
    """A server could hide a host behind another's address, or stop the recording by what it sends."""
    recorder = HostRecorder()
    recorder.resolve(query(b"api.example"))
    async with recording(recorder, 443) as place:
        assert await answered(place, sent[:-1], 0) == b""
        assert await answered(place, sent, 1) == b""
    assert recorder.since(0) == hosts


async def test_a_connection_too_many_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server could hold all connections, so that a host is dialled unseen and nothing tells that some is missing."""
    monkeypatch.setattr(relay, "MAX_CONNECTIONS", 1)
    recorder = HostRecorder()
    async with recording(recorder, 443) as place:
        with socket.create_connection(place, PATIENCE_S):
            while recorder.asked == 0:
                await anyio.lowlevel.checkpoint()
            assert await answered(place, b"", 1) == b""
    assert (recorder.since(0), recorder.more) == ((f"{FIRST}:443",), 1)


def test_what_is_no_query_is_an_error_and_asks_for_nothing() -> None:
    """A server would fill our memory by one query, or end the recording of all."""
    recorder = HostRecorder()
    long = query(b".".join([b"a" * 60] * 9))
    assert len(long) > QUERY_BYTES
    for wrong in (b"", query(b"a.example")[:15], long):
        with pytest.raises((IndexError, ValueError)):
            recorder.resolve(wrong)
    with pytest.raises(IndexError):
        server_name(b"\x01\0\0\x20" + bytes(30))
    assert recorder.since(0) == ()


def test_a_flood_of_names_is_bounded_and_hides_no_known_host() -> None:
    """A server could fill our memory with names, or use one that is known unseen."""
    recorder = HostRecorder()
    recorder.resolve(query(b"first.example"))
    for at in range(MAX_HOSTS + 50):
        recorder.resolve(query(b"n%d.example" % at))
    assert recorder.resolve(query(b"late.example"))[6:8] == b"\0\0"
    assert (len(recorder.since(0)), recorder.more) == (MAX_HOSTS, 52)
    mark = recorder.asked
    recorder.resolve(query(b"first.example"))
    assert recorder.since(mark) == ("first.example",)
