"""Streams of events: which answer opens one again, how soon, and what comes of it; time passes in pauses alone."""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import anyio
import httpx2
import pytest
from support.servers.played_http import event
from support.waiting import PATIENCE_S

from quarterdeck_protocol.link.frames import RemoteServer
from quarterdeck_protocol.mcp.client.asks import MAX_ASK_BYTES
from quarterdeck_worker.http.carrier import MAX_UNASKED_BYTES
from quarterdeck_worker.http.client import HttpClient
from quarterdeck_worker.http.faults import refusal_of
from quarterdeck_worker.http.streams import (
    IDLE_BYTES,
    IDLE_BYTES_PER_S,
    MAX_RETRY_S,
    STANDING,
    EventStream,
    Reopened,
    StreamEndError,
    judge,
)
from quarterdeck_worker.server import Access

from .passing_time import SHIFT_S, Time

URL = "http://h.example/mcp"
CHANGED = {"method": "notifications/tools/list_changed"}


async def cut(said: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(said), 65_536):
        yield said[at : at + 65_536]


class Server:
    """What answers each GET, in its turn; the last one all that follow."""

    def __init__(self, *answers: Any) -> None:
        self.answers = answers
        self.asked: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """See `MockTransport`."""
        self.asked.append(request)
        said = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(said, Exception):
            raise said
        if isinstance(said, bytes):
            return httpx2.Response(
                200, headers={"content-type": "text/event-stream; charset=utf-16"}, content=cut(said)
            )
        assert isinstance(said, httpx2.Response)
        return httpx2.Response(said.status_code, headers=said.headers, content=cut(b""))

    @property
    def ids(self) -> list[str | None]:
        return [request.headers.get("last-event-id") for request in self.asked]


class Standing:
    """What came of a standing stream: the data of its events, and why it ended."""

    def __init__(self, server: Callable[[httpx2.Request], httpx2.Response], time: Time, max_bytes: int = 1_000) -> None:
        self.data: list[bytes] = []
        self.end: StreamEndError | None = None
        self._client = HttpClient(RemoteServer(URL), Access(), httpx2.MockTransport(server))

        async def reopen(last_id: bytes) -> httpx2.Response:
            return await self._client.send("GET", URL, [(b"last-event-id", last_id)] if last_id else [])

        def pause_asked_s(response: httpx2.Response | None) -> float:
            return (refusal_of(response).pause_s or 0.0) if response is not None else 0.0

        self._stream = EventStream(
            max_bytes, time.timing, reopen=reopen, pause_asked_s=pause_asked_s, has_session=True, is_answer=False
        )

    async def read(self, until: anyio.Event | None = None) -> list[bytes]:
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read, tasks.cancel_scope)
                await (until or anyio.Event()).wait()
                tasks.cancel_scope.cancel()
        await self._client.close()
        return self.data

    async def _read(self, scope: anyio.CancelScope) -> None:
        try:
            async with aclosing(self._stream.events(None)) as events:
                async for found in events:
                    self.data.append(found.data)
        except StreamEndError as end:
            self.end = end
        scope.cancel()


@pytest.mark.parametrize("retry", [b"", b"retry: 0\n\n", b"retry: " + b"9" * 400])
async def test_a_server_that_ends_its_stream_at_once_is_asked_a_bounded_number_of_times(retry: bytes) -> None:
    """It would be asked as fast as it answers, or never again."""
    time, server = Time(), Server(b": hello\n\n" + retry + b"\n")
    assert await Standing(server, time).read(time.is_over) == []
    assert len(server.asked) <= SHIFT_S / STANDING.longest_s + 10
    assert len(server.asked) >= SHIFT_S / (STANDING.longest_s * 1.25) - 10
    assert min(time.pauses) >= STANDING.first_s


@pytest.mark.parametrize("failure", [httpx2.ConnectError("gone"), httpx2.ReadError("broke off"), httpx2.Response(502)])
async def test_a_stream_is_found_again_after_a_long_failure(failure: Any) -> None:
    """A laptop that slept, or a proxy that was restarted, would have cost all news of the session."""
    server = Server(b"id: 1\n\n", *[failure] * 20, event(CHANGED), httpx2.Response(405))
    assert len(await Standing(server, Time()).read()) == 1
    assert server.ids == [None, *["1"] * 22]


async def test_a_stream_that_held_is_opened_again_soon() -> None:
    """A host that ends streams after some minutes would have us miss ever more between two."""
    time = Time()

    async def long() -> AsyncIterator[bytes]:
        time.now += STANDING.steady_s
        yield b": ping\n\n"

    def play(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=long())

    await Standing(play, time).read(time.is_over)
    assert set(time.pauses) == {STANDING.first_s * 1.25}


@pytest.mark.parametrize("status", [200, 204, 302, 400, 403, 404, 405, 501])
async def test_a_server_without_such_a_stream_is_asked_once(status: int) -> None:
    """It would be asked for ever for what it does not have."""
    time, server = Time(), Server(httpx2.Response(status, headers={"location": "http://other.example/"}))
    assert await Standing(server, time).read() == []
    assert [request.url.host for request in server.asked] == ["h.example"], "no other origin is asked"
    assert time.pauses == []


@pytest.mark.parametrize(("status", "is_open", "is_over"), [(404, True, True), (401, True, True), (404, False, False)])
async def test_a_stream_that_is_known_no_more_ends_the_session_if_it_ever_was(
    status: int, is_open: bool, is_over: bool
) -> None:
    """A restarted server would be found out by the next call, which fails; one without streams would be given up."""
    standing = Standing(Server(*[b": open\n\n"] * is_open, httpx2.Response(status)), Time())
    await standing.read()
    assert standing.end is not None
    assert standing.end.is_session_over is is_over


async def test_a_pause_that_the_server_asks_for_is_kept() -> None:
    """A server that is overrun would be asked on."""
    time = Time()
    busy = httpx2.Response(429, headers={"retry-after": "120"})
    server = Server(busy, b"retry: 20000\n\n", b"retry: 999999\n\n", httpx2.Response(405))
    await Standing(server, time).read()
    assert time.pauses == [120.0, 20.0, MAX_RETRY_S]


async def test_a_stream_that_says_nothing_is_read_slowly() -> None:
    """Comments at full speed would keep a processor busy."""
    time, server = Time(), Server((b": " + b"ping" * 15 + b"\n\n") * (3 * IDLE_BYTES // 64), httpx2.Response(405))
    assert await Standing(server, time).read() == []
    assert sum(time.pauses) >= IDLE_BYTES / IDLE_BYTES_PER_S


async def test_an_event_beyond_the_bound_is_dropped_and_the_stream_goes_on() -> None:
    """A line without an end would fill the worker's memory, or end all news."""
    question = b"x" * MAX_ASK_BYTES
    large = b"id: " + b"9" * 10_000_000 + b"\ndata: " + b"y" * (MAX_UNASKED_BYTES + 1) + b"\n\n"
    server = Server(b"data: " + question + b"\n\n" + large + event(CHANGED), httpx2.Response(405))
    first, second = await Standing(server, Time(), MAX_UNASKED_BYTES).read()
    assert first == question
    assert b"list_changed" in second


TABLE = [
    (200, True, False, Reopened.OPEN),
    (200, True, True, Reopened.OPEN),
    (200, False, True, Reopened.NEVER),
    (202, False, True, Reopened.NEVER),
    (204, False, True, Reopened.NEVER),
    (302, False, True, Reopened.NEVER),
    (400, False, True, Reopened.NEVER),
    (401, False, False, Reopened.NEVER),
    (401, False, True, Reopened.SESSION_OVER),
    (403, False, True, Reopened.NEVER),
    (404, False, False, Reopened.NEVER),
    (404, False, True, Reopened.SESSION_OVER),
    (405, False, True, Reopened.NEVER),
    (408, False, False, Reopened.AGAIN),
    (410, False, True, Reopened.NEVER),
    (429, False, True, Reopened.AGAIN),
    (500, False, False, Reopened.AGAIN),
    (501, False, True, Reopened.NEVER),
    (503, False, True, Reopened.AGAIN),
]


def test_each_status_has_its_meaning() -> None:
    """A server without a stream would be asked for ever, or news be lost after a proxy's hiccup."""
    for status, is_events, was_open, meaning in TABLE:
        assert judge(status, is_events=is_events, was_open=was_open, has_session=True) is meaning, status


def test_without_a_session_none_can_be_over() -> None:
    """A server that lost a stream would be greeted anew for nothing."""
    assert judge(404, is_events=False, was_open=True, has_session=False) is Reopened.NEVER
