"""Connections of the HTTP server: bounded, closed when they show no token in time, and never the client's loss."""

import asyncio
import contextlib
import logging
import os
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import uvicorn
from support.waiting import eventually_async

from quarterdeck.host.http import listener as module
from quarterdeck.host.http.admission import HttpAnswer
from quarterdeck.host.http.connection import Exchange
from quarterdeck.host.http.listener import AGAIN_S, MAX_KINDS, HttpListener, RepeatedLog

pytestmark = pytest.mark.process

PATIENCE_S = 20.0
KNOWN = b"POST /mcp HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\nContent-Length: 0\r\n\r\n"
UNKNOWN = b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"


class PlayedServer:
    """A listener whose requests with an Authorization are admitted; those to /hold wait to be let go."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.place = self.socket.getsockname()
        self.held = anyio.Event()
        self.release = anyio.Event()
        config = uvicorn.Config(
            self.no_app, interface="asgi3", lifespan="off", log_config=None, timeout_graceful_shutdown=5
        )
        self.listener = HttpListener(config, self.socket, lambda *_: self.started.set(), self)
        self.started = anyio.Event()
        self.holding: set[asyncio.Task[None]] = set()

    async def no_app(self, scope: Any, receive: Any, send: Any) -> None:
        """Nothing comes here."""

    def begin(self, exchange: Exchange) -> None:
        """200 for who is known, 429 for who has too many connections, else 401."""
        who = next((value.decode() for name, value in exchange.request_headers if name == b"authorization"), "")
        status = (429 if exchange.connection.admit(who) else 200) if who else 401
        if exchange.path == "/hold":
            self.holding.add(asyncio.ensure_future(self.hold(exchange, status)))
        else:
            exchange.respond(HttpAnswer(status, "said"))

    def over(self, exchange: Exchange) -> None:
        """Nothing was counted for it."""

    gone = over

    async def hold(self, exchange: Exchange, status: int) -> None:
        self.held.set()
        await self.release.wait()
        exchange.respond(HttpAnswer(status, "said"))

    async def dial(self, *said: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self.place)
        for data in said:
            writer.write(data)
        return reader, writer

    async def ask(self, request: bytes = KNOWN) -> bytes:
        reader, writer = await self.dial(request)
        line = await reader.readline()
        writer.close()
        return line.split(b" ")[1]

    @property
    def counted(self) -> tuple[int, int]:
        return len(self.listener._unproven), self.listener._admitted.total


@asynccontextmanager
async def serving() -> AsyncIterator[PlayedServer]:
    with anyio.fail_after(PATIENCE_S):
        played = PlayedServer()
        async with played.listener.running(asyncio.Event()):
            await played.started.wait()
            yield played
            played.release.set()
        assert played.counted[0] == 0
        played.socket.close()


async def ended(reader: asyncio.StreamReader) -> bytes:
    with contextlib.suppress(ConnectionResetError):
        return await reader.read()
    return b""


@pytest.mark.parametrize("said", [b"", b"POST /mcp HT", UNKNOWN[:-2] + b"X-A: "], ids=["silent", "begun", "headers"])
async def test_a_client_that_asks_is_served_beside_any_number_that_do_not(
    said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any program of the machine could lock every client out, without the token."""
    monkeypatch.setattr(module, "MAX_UNPROVEN", 32)
    async with serving() as played:
        flood = [await played.dial(said) for _ in range(100)]
        assert await played.ask() == b"200"
        assert played.counted[0] <= 32
        assert await ended(flood[0][0]) == b""
        for _, writer in flood:
            writer.close()
        assert await played.ask() == b"200"
        await eventually_async(lambda: played.counted == (0, 0))


@pytest.mark.parametrize("said", [b"", b"POST", UNKNOWN, UNKNOWN * 3], ids=["silent", "begun", "refused", "pipelined"])
async def test_a_connection_that_shows_no_token_is_closed_in_time(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header sent a byte at a time, or one wrong request after the other, would hold a connection for ever."""
    monkeypatch.setattr(module, "PROOF_S", 0.05)
    async with serving() as played:
        reader, writer = await played.dial(said)

        async def dribble() -> None:
            with contextlib.suppress(ConnectionError):
                while said == b"POST":
                    writer.write(b"x")
                    await writer.drain()
                    await anyio.sleep(0.001)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dribble)
            said_back = await ended(reader)
            tasks.cancel_scope.cancel()
        assert said_back.count(b"401") == said.count(b"\r\n\r\n")
        writer.close()
        await eventually_async(lambda: played.counted == (0, 0))


async def test_a_connection_that_was_admitted_has_all_the_time_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long call, or the stream that a client listens on, would be cut."""
    monkeypatch.setattr(module, "PROOF_S", 0.05)
    monkeypatch.setattr(module, "MAX_UNPROVEN", 4)
    async with serving() as played:
        reader, writer = await played.dial(KNOWN.replace(b"/mcp", b"/hold"))
        await played.held.wait()
        for stranger, other in [await played.dial() for _ in range(20)]:
            assert await ended(stranger) == b""
            other.close()
        assert played.counted[1] == 1
        played.release.set()
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_a_connection_is_closed_once_it_is_idle_and_never_while_an_answer_is_pending() -> None:
    """Clients that went to sleep would hold every connection; or a long call would be cut."""
    async with serving() as played:
        played.listener.config.timeout_keep_alive = 0
        # The second request comes when the connection was idle already.
        reader, writer = await played.dial(KNOWN)
        await reader.readuntil(b'{"error":"said"}')
        writer.write(KNOWN.replace(b"/mcp", b"/hold"))
        await played.held.wait()
        idle, other = await played.dial(KNOWN)
        assert (await ended(idle)).startswith(b"HTTP/1.1 200")
        assert played.counted == (0, 1)
        played.release.set()
        assert (await ended(reader)).startswith(b"HTTP/1.1 200")
        for each in (writer, other):
            each.close()


async def test_only_so_many_are_open_and_the_next_is_refused_and_then_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that hold the token could leave no descriptor for servers and files."""
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 3)
    async with serving() as played:
        held = [await played.dial(KNOWN.replace(b"/mcp", b"/hold")) for _ in range(3)]
        await eventually_async(lambda: played.counted == (0, 3))
        reader, writer = await played.dial(KNOWN)
        assert await ended(reader) == b""
        writer.close()
        played.release.set()
        for reader, writer in held:
            await reader.readline()
            writer.close()
        await eventually_async(lambda: played.counted == (0, 0))
        assert await played.ask() == b"200"


async def test_a_token_that_fills_the_connections_leaves_some_to_every_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """One token could hold every connection open, and nobody else be served."""
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 8)
    async with serving() as played:
        held = [await played.dial(KNOWN.replace(b"/mcp", b"/hold")) for _ in range(6)]
        await eventually_async(lambda: played.counted == (0, 6))
        reader, writer = await played.dial(KNOWN)
        for _ in range(2):
            assert (await reader.readuntil(b'{"error":"said"}')).startswith(b"HTTP/1.1 429")
            writer.write(KNOWN)
        writer.close()
        assert await played.ask(KNOWN.replace(b"Authorization: ", b"Authorization: another ")) == b"200"
        await eventually_async(lambda: played.counted == (0, 6))
        played.release.set()
        for reader, writer in held:
            await reader.readline()
            writer.close()
        await eventually_async(lambda: played.counted == (0, 0))


@pytest.fixture
def few_descriptors() -> Iterator[Any]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def leave(count: int) -> None:
        spare = [os.dup(0) for _ in range(count + 1)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare), before[1]))
        for one in spare:
            os.close(one)

    yield leave
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name in {"quarterdeck.http", "uvicorn.error"}]


async def test_out_of_descriptors_who_waits_is_refused_at_once_said_once_and_then_served(
    few_descriptors: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A machine out of descriptors would write a hundred megabytes of log a minute, and never recover."""
    async with serving() as played:
        clients = [socket.socket() for _ in range(40)]
        few_descriptors(0)
        for one in clients:
            one.connect(played.place)
        streams = []
        for one in clients:
            one.setblocking(False)  # noqa: FBT003 - takes no keyword
            with contextlib.suppress(ConnectionResetError):
                streams.append(await asyncio.get_running_loop().sock_recv(one, 1))
        assert set(streams) <= {b""}
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        assert await played.ask() == b"200"
        for one in clients:
            one.close()
    assert [line for line in lines(caplog) if "refused" in line] == ["Too many open files: refused a connection"]


async def test_out_of_descriptors_a_stranger_goes_before_a_client_is_refused(
    few_descriptors: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A flood without the token could use up all descriptors below every bound."""
    async with serving() as played:
        flood = [await played.dial() for _ in range(8)]
        await eventually_async(lambda: played.counted == (8, 0))
        client = socket.socket()
        client.setblocking(False)  # noqa: FBT003 - takes no keyword
        few_descriptors(0)
        await asyncio.get_running_loop().sock_connect(client, played.place)
        await asyncio.get_running_loop().sock_sendall(client, KNOWN)
        assert (await asyncio.get_running_loop().sock_recv(client, 12)) == b"HTTP/1.1 200"
        client.close()
        assert await ended(flood[0][0]) == b""
        for _, writer in flood:
            writer.close()
    assert "Too many open files: closed the oldest connection without a token" in lines(caplog)


async def test_a_lack_that_closing_does_not_end_is_waited_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The event loop would do nothing but try."""
    monkeypatch.setattr(module, "PAUSE_S", 0.01)
    async with serving() as played:
        real, tries = played.listener._listener, 0

        class Poor:
            """Out of memory five times."""

            def fileno(self) -> int:
                return real.fileno()

            def accept(self) -> Any:
                nonlocal tries
                tries += 1
                if tries <= 5:
                    raise OSError(105, "No buffer space available")
                return real.accept()

        played.listener._listener = Poor()  # type: ignore[assignment]
        assert await played.ask() == b"200"
        played.listener._listener = real
        assert tries > 5
    assert [line for line in lines(caplog) if "wait" in line] == [
        "connections wait: [Errno 105] No buffer space available"
    ]


async def test_malformed_requests_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Anybody could fill the disk with the log, without the token."""
    async with serving() as played:
        with caplog.at_level(logging.WARNING):
            for _ in range(20):
                assert await played.ask(b"\x00\x01\r\n\r\n") == b"400"
    assert lines(caplog) == ["Invalid HTTP request received."]
    assert not logging.getLogger("uvicorn.error").filters


async def test_a_response_does_not_wait_for_the_clients_acknowledgement() -> None:
    """Each call over HTTP would take 44 ms: its end waited for the kernel of a client that waited for its end."""
    async with serving() as played:
        reader, writer = await played.dial(KNOWN.replace(b"/mcp", b"/hold"))
        await played.held.wait()
        (connection,) = played.listener.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        played.release.set()
        await reader.readline()
        writer.close()


def test_the_first_is_said_and_the_next_only_after_a_while_with_their_number() -> None:
    """A flood would fill the disk with one line, or leave no trace of how large it was."""
    repeats = RepeatedLog()
    assert repeats.admit("a", 0) == 0
    assert [repeats.admit("a", at) for at in (0, 1, AGAIN_S - 1)] == [None] * 3
    assert repeats.admit("b", 1) == 0
    assert repeats.admit("a", AGAIN_S) == 3
    assert repeats.admit("a", AGAIN_S + 1) is None
    assert repeats.admit("a", 2 * AGAIN_S) == 1


def test_only_so_many_kinds_are_told_apart() -> None:
    """A flood of different lines would fill the memory."""
    repeats = RepeatedLog()
    for number in range(10 * MAX_KINDS):
        assert repeats.admit(str(number), number / 1000) == 0
    assert len(repeats._said) == MAX_KINDS


async def test_connections_that_are_handed_on_close_with_their_answer_and_new_ones_wait_for_another() -> None:
    """A request on a connection that closes under it would fail, and a new connection be refused."""
    async with serving() as played:
        idle, other = await played.dial(KNOWN)
        await idle.readuntil(b'{"error":"said"}')
        reader, writer = await played.dial(KNOWN.replace(b"/mcp", b"/hold"))
        await played.held.wait()
        handing = asyncio.create_task(played.listener.hand_on(PATIENCE_S))
        await asyncio.sleep(0)
        _, waiting = await played.dial(KNOWN)
        assert not handing.done()
        other.write(KNOWN)
        assert b"connection: close" in (await ended(idle)).lower()
        played.release.set()
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"connection: close" in head.lower()
        assert await reader.read() == b'{"error":"said"}'
        await handing
        assert played.counted == (0, 0)
        with contextlib.closing(played.socket.accept()[0]) as queued:  # nobody took it
            assert queued.recv(4) == KNOWN[:4]
        for each in (writer, waiting, other):
            each.close()
