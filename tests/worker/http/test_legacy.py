"""The transport of 2024-11-05: one failed POST is one failed request, and results may be as large as on the others."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from support.servers.greetings import INITIALIZED
from support.waiting import PATIENCE_S, turns

from quarterdeck_protocol.faults import FaultRecord
from quarterdeck_protocol.link.frames import Call, News, OpenOrder, RemoteServer
from quarterdeck_protocol.mcp.jsonrpc import SplitResult
from quarterdeck_worker.connection import Connection
from quarterdeck_worker.http.run import run_remote
from quarterdeck_worker.notifications import Notifier
from quarterdeck_worker.server import Outcome, ServerFault, ServerRun

URL = "http://h.example/sse"
ENDPOINT = "event: endpoint\ndata: /messages?session=1"


async def nothing() -> AsyncIterator[bytes]:
    yield b""


class Played:
    """A server in memory: what it was posted, what it says to that, and what became of its run."""

    def __init__(self, *first: str, max_bytes: int) -> None:
        self._events = asyncio.Queue[str | None]()
        for event in first:
            self._events.put_nowait(event)
        self.posted: list[dict[str, Any]] = []
        self.statuses: dict[object, int] = {}
        self.ended: dict[int, Outcome] = {}
        self.news: list[News] = []
        self.opened: list[Connection] = []
        self.loss: list[FaultRecord] = []
        notifier = Notifier(lambda frame, _=b"": self.news.append(frame) is None, lambda: 0.0)
        self.run = ServerRun(notifier, self.opened.append, self.loss.append, self.ended.__setitem__)
        server = RemoteServer(URL, transports=("sse",))
        order = OpenOrder(server, max_result_bytes=max_bytes)
        transport = httpx2.MockTransport(self._answer)
        self.task = asyncio.ensure_future(run_remote(order, self.run, transport=transport))

    def says(self, event: str | None) -> None:
        """Say an event; None ends the stream."""
        self._events.put_nowait(event)

    def answers(self, wire_id: object, result: dict[str, Any] | None = None) -> None:
        self.says("event: message\ndata: " + json.dumps({"jsonrpc": "2.0", "id": wire_id, "result": result or {}}))

    async def call(self, number: int) -> dict[str, Any]:
        """Begin a call; the request that the server was posted."""
        assert self.opened[0].ask(Call(number, 60.0, "echo"), b"{}") is None
        before = len(self.calls)
        while len(self.calls) == before:
            await turns(1)
        return self.calls[-1]

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [message for message in self.posted if message.get("method") == "tools/call"]

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=self._stream())
        message = json.loads(request.content)
        self.posted.append(message)
        if message.get("method") == "initialize":
            self.answers(message["id"], INITIALIZED["result"])
        if (status := self.statuses.get(message.get("method"), 202)) == 0:
            raise httpx2.ReadError("it hung up")
        return httpx2.Response(status, content=nothing())

    async def _stream(self) -> AsyncGenerator[bytes, None]:
        while (event := await self._events.get()) is not None:
            yield f"{event}\n\n".encode()


@asynccontextmanager
async def playing(*first: str, max_bytes: int = 10_000_000) -> AsyncIterator[Played]:
    with anyio.fail_after(PATIENCE_S):
        played = Played(*first, max_bytes=max_bytes)
        yield played
        played.run.stop.set()
        await asyncio.gather(played.task, return_exceptions=True)


@asynccontextmanager
async def greeted(max_bytes: int = 10_000_000) -> AsyncIterator[Played]:
    async with playing(ENDPOINT, max_bytes=max_bytes) as played:
        while not played.opened:
            await turns(1)
        yield played


async def fault_of(played: Played) -> FaultRecord:
    with pytest.raises(ServerFault) as caught:
        await played.task
    return caught.value.record


@pytest.mark.parametrize(("status", "code"), [(0, "server_lost"), (500, "server_error"), (307, "web_page")])
async def test_a_post_that_fails_is_the_error_of_its_request_alone(status: int, code: str) -> None:
    """All calls under way would end, and none could follow."""
    async with greeted() as played:
        first = await played.call(1)
        played.statuses["tools/call"] = status
        await played.call(2)
        while 2 not in played.ended:
            await turns(1)
        fault = played.ended[2]
        assert isinstance(fault, FaultRecord)
        assert fault.code == code
        played.statuses.clear()
        third = await played.call(3)
        for asked in (first, third):
            played.answers(asked["id"])
        while len(played.ended) < 3:
            await turns(1)
        assert played.ended[1] == played.ended[3] == SplitResult(b"{}")
        assert played.loss == []


async def test_a_post_to_a_session_that_is_gone_ends_the_session() -> None:
    """Every call would fail from then on, and the server look ready."""
    async with greeted() as played:
        played.statuses["tools/call"] = 404
        await played.call(1)
        assert (await fault_of(played)).code == "session_gone"


async def test_a_result_is_as_large_as_on_other_transports_and_no_larger() -> None:
    """Results ended at 1 MiB, whatever the row said; or one would fill the worker's memory."""
    async with greeted(max_bytes=3_000_000) as played:
        asked = await played.call(1)
        played.answers(asked["id"], {"content": ["x" * 2_999_000]})
        while not played.ended:
            await turns(1)
        assert isinstance(played.ended[1], SplitResult)
        played.answers(asked["id"], {"text": "x" * 3_000_001})
        loss = await fault_of(played)
        assert loss.code == "result_too_large"


async def test_what_is_no_message_and_what_only_keeps_the_stream_alive_reaches_no_caller() -> None:
    """A broken line would end the connection, or a ping wake everybody."""
    async with greeted() as played:
        asked = await played.call(1)
        for event in (": ping", "event: ping\ndata: 1", "event: message\ndata: {"):
            played.says(event)
        played.answers(asked["id"])
        while not played.ended:
            await turns(1)
        assert (played.ended, played.news) == ({1: SplitResult(b"{}")}, [])


async def test_notifications_keep_their_place() -> None:
    """A server would be asked before it is told that it is greeted."""
    async with greeted() as played:
        await played.call(1)
        methods = [message["method"] for message in played.posted]
        assert methods == ["initialize", "notifications/initialized", "tools/call"]


async def test_the_end_of_the_stream_is_the_end() -> None:
    """A server that died would look ready for ever."""
    async with greeted() as played:
        played.says(None)
        loss = await fault_of(played)
        assert (loss.code, loss.message) == ("server_lost", "http://h.example closed the connection")
        assert played.loss == [loss]


@pytest.mark.parametrize(
    "endpoint", ["http://other.example/m", "https://h.example/m", "//other.example/m", "http://h.example:81/m"]
)
async def test_messages_go_to_the_configured_origin_alone(endpoint: str) -> None:
    """The row's headers would be given to whom the server names."""
    async with playing(f"event: endpoint\ndata: {endpoint}") as played:
        assert "another origin" in (await fault_of(played)).message
        assert played.posted == []


async def test_a_stream_that_ends_before_it_says_where_is_an_error() -> None:
    """The start would wait until its deadline."""
    async with playing() as played:
        played.says(None)
        assert (await fault_of(played)).code == "handshake_failed"
