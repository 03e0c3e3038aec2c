"""What anybody on this machine can do to the page's port."""

import asyncio

import pytest
import uvicorn
from support.waiting import eventually_async
from uvicorn.server import ServerState

from quarterdeck.page import listener


class Transport(asyncio.Transport):
    """The other side sends nothing, and reads nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted


async def nothing(_scope: object, _receive: object, _send: object) -> None:
    """An application that is never asked."""


async def test_connections_are_bounded_in_number_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that connects ten thousand times, or never reads, would take the daemon's descriptors or memory."""
    config = uvicorn.Config(nothing, http=listener.PageConnection, lifespan="off", log_config=None)
    config.load()
    state = ServerState()

    def connected() -> tuple[listener.PageConnection, Transport]:
        connection, transport = listener.PageConnection(config, state, {}), Transport()
        connection.connection_made(transport)
        return connection, transport

    connection, asking = connected()
    monkeypatch.setattr(listener, "HEAD_S", 0.001)
    _, silent = connected()
    await eventually_async(lambda: silent.aborted, 10, "the end of one that sends nothing")
    monkeypatch.setattr(listener, "UNREAD_S", 0.001)
    assert not asking.aborted
    connection.pause_writing()
    await eventually_async(lambda: asking.aborted, 10, "the end of one that does not read")
    monkeypatch.setattr(listener, "HEAD_S", 60.0)
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 2)
    _, another = connected()
    assert another.aborted
