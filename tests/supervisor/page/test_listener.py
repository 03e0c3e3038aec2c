"""What anybody on this machine can do to the page's port."""

import asyncio
from typing import Any

import pytest
import uvicorn
from starlette.types import Send
from support.waiting import eventually_async
from uvicorn.server import ServerState

from quarterdeck.host.http.connection import MAX_HEAD_BYTES
from quarterdeck.page import listener


class Transport(asyncio.Transport):
    """The other side reads nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted


async def refuse(_scope: object, _receive: object, send: Send) -> None:
    """An application that reads no body."""
    await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


async def test_connections_are_bounded_in_number_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that connects ten thousand times, or never reads, would take the daemon's descriptors or memory."""
    config = uvicorn.Config(refuse, http=listener.PageConnection, lifespan="off", log_config=None)
    config.load()
    state = ServerState()

    def connected() -> tuple[listener.PageConnection, Transport]:
        connection, transport = listener.PageConnection(config, state, {}), Transport()
        connection.connection_made(transport)
        return connection, transport

    connection, asking = connected()
    monkeypatch.setattr(listener, "REQUEST_S", 0.001)
    _, silent = connected()
    await eventually_async(lambda: silent.aborted, 10, "the end of one that sends nothing")
    monkeypatch.setattr(listener, "UNREAD_S", 0.001)
    assert not asking.aborted
    connection.pause_writing()
    await eventually_async(lambda: asking.aborted, 10, "the end of one that does not read")
    monkeypatch.setattr(listener, "REQUEST_S", 60.0)
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 2)
    _, another = connected()
    assert another.aborted


async def test_requests_are_bounded_in_size_and_each_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One program without a link could fill the daemon's memory with a head, or hold all connections for ever."""
    config = uvicorn.Config(refuse, http=listener.PageConnection, lifespan="off", log_config=None)
    config.load()

    async def asked(first: bytes, then: bytes) -> Transport:
        """Its client has its first answer, and goes on."""
        connection, transport = listener.PageConnection(config, ServerState(), {}), Transport()
        connection.connection_made(transport)
        with monkeypatch.context() as patch:
            patch.setattr(listener, "REQUEST_S", 0.001)
            connection.data_received(first)
            await eventually_async(lambda: b" 404 " in transport.written, 10, "the answer")
        connection.data_received(then)
        return transport

    form = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n"
    for first, then in (
        (b"GET / HTTP/1.1\r\n\r\n", b"GET / HT"),
        (b"GET / HTTP/1.1\r\n\r\n", b"\r\n"),
        (form % 100, b"a"),
        (form % 1, b"a"),
    ):
        slow = await asked(first, then)
        await eventually_async(lambda slow=slow: slow.aborted, 10, f"the end of {first!r}, then {then!r}")
    large = b"a: %b\r\n" % (b"a" * MAX_HEAD_BYTES)
    connection, huge = listener.PageConnection(config, ServerState(), {}), Transport()
    connection.connection_made(huge)
    connection.data_received(b"GET / HTTP/1.1\r\n" + large)
    assert huge.aborted
    connection, whole = listener.PageConnection(config, ServerState(), {}), Transport()
    connection.connection_made(whole)
    connection.data_received(form % (2 * MAX_HEAD_BYTES) + 2 * MAX_HEAD_BYTES * b"a")
    assert not whole.aborted
