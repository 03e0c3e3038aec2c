"""The transport of 2024-11-05: one failed POST is one failed request, and results may be as large as on the others."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from support.waiting import PATIENCE_S

from quarterdeck_worker.remote.client import PatientClient
from quarterdeck_worker.remote.faults import broken, root_cause
from quarterdeck_worker.remote.legacy import sse_streams
from quarterdeck_worker.remote.recorder import StatusRecorder

pytestmark = pytest.mark.anyio

URL = "http://h.example/sse"


class Events(httpx2.AsyncByteStream):
    """A stream of events, each as a test says it."""

    def __init__(self, *first: str) -> None:
        self.say, self._heard = anyio.create_memory_object_stream[str](16)
        for event in first:
            self.say.send_nowait(event)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Each of them."""
        async for event in self._heard:
            yield f"{event}\n\n".encode()

    async def aclose(self) -> None:
        """See `AsyncByteStream`."""
        self._heard.close()


class Played:
    """A server: what it was posted, and what it says to that."""

    def __init__(self, *first: str) -> None:
        self.events = Events(*first)
        self.posted: list[dict[str, object]] = []
        self.statuses: dict[object, int] = {}
        self.recorder = StatusRecorder()

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=self.events)
        message = json.loads(request.content)
        self.posted.append(message)
        if (status := self.statuses.get(message.get("id"), 202)) == 0:
            raise httpx2.ReadError("it hung up")
        return httpx2.Response(status)

    @asynccontextmanager
    async def connected(self, max_bytes: int = 10_000_000) -> AsyncIterator[tuple[object, object]]:
        """Its streams, of a session that is greeted."""
        self.recorder.greeted(has_session=True)
        http = PatientClient(
            "http://h.example",
            self.recorder,
            max_bytes,
            is_legacy=True,
            transport=httpx2.MockTransport(self._answer),
        )
        with anyio.fail_after(PATIENCE_S):
            async with self.events.say, http, sse_streams(URL, http, max_bytes) as streams:
                yield streams


def request(number: int) -> SessionMessage:
    """A request of this id."""
    return SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=number, method="ping"))


def said(number: int, **result: object) -> str:
    """The event of its answer."""
    return f"event: message\ndata: {json.dumps({'jsonrpc': '2.0', 'id': number, 'result': result})}"


ENDPOINT = "event: endpoint\ndata: /messages?session=1"


@pytest.mark.parametrize("status", [0, 404, 500])
async def test_a_post_that_fails_is_the_error_of_its_request_alone(status: int) -> None:
    """All calls under way would end, and none could follow."""
    played = Played(ENDPOINT)
    played.statuses[2] = status
    async with played.connected() as (read, write):
        for number in (1, 2, 3):
            await write.send(request(number))
        failed = (await read.receive()).message
        assert isinstance(failed, JSONRPCError)
        assert failed.id == 2
        for number in (1, 3):
            await played.events.say.send(said(number))
            answered = (await read.receive()).message
            assert isinstance(answered, JSONRPCResponse)
            assert answered.id == number


def of_size(size: int) -> str:
    """An answer whose message has exactly so many bytes."""
    head = "event: message\ndata: "
    return said(1, text="x" * (size - len(said(1, text="").removeprefix(head))))


async def test_a_result_is_as_large_as_on_other_transports() -> None:
    """Results ended at 1 MiB, whatever the row said; the frame of an event would count as a part of its result."""
    played = Played(ENDPOINT, of_size(3_000_000))
    async with played.connected(max_bytes=3_000_000) as (read, _):
        assert len((await read.receive()).message.result["text"]) > 2_999_000


async def test_an_event_beyond_the_bound_ends_the_connection_as_a_line_does_on_stdio() -> None:
    """It would fill the worker's memory, or the loss be told as an accident of the network."""
    played = Played(ENDPOINT, of_size(10_001))
    with pytest.raises(ExceptionGroup) as caught:
        async with played.connected(max_bytes=10_000) as (read, _):
            await read.receive()
            await anyio.sleep_forever()
    cause = root_cause(caught.value)
    assert isinstance(cause, httpx2.SSEError)
    assert broken(cause).code == "result_too_large"


async def test_what_is_no_message_and_what_only_keeps_the_stream_alive_reaches_no_caller() -> None:
    """A broken line would end the connection, or a ping wake everybody."""
    played = Played(ENDPOINT, ": ping", "event: ping\ndata: 1", "event: message\ndata: {", said(1))
    async with played.connected() as (read, _):
        assert isinstance(await read.receive(), ValueError)
        assert (await read.receive()).message.id == 1


async def test_notifications_keep_their_place() -> None:
    """A server would be asked before it is told that it is greeted."""
    played = Played(ENDPOINT)
    async with played.connected() as (_, write):
        await write.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")))
        await write.send(request(1))
        while len(played.posted) < 2:
            await anyio.lowlevel.checkpoint()
    assert [message["method"] for message in played.posted] == ["notifications/initialized", "ping"]


async def test_the_end_of_the_stream_is_the_end() -> None:
    """A server that died would look ready for ever."""
    played = Played(ENDPOINT)
    async with played.connected() as (read, _):
        played.events.say.close()
        with pytest.raises(anyio.EndOfStream):
            await read.receive()


@pytest.mark.parametrize(
    "endpoint", ["http://other.example/m", "https://h.example/m", "//other.example/m", "http://h.example:81/m"]
)
async def test_messages_go_to_the_configured_origin_alone(endpoint: str) -> None:
    """The row's headers would be given to whom the server names."""
    with pytest.raises(ExceptionGroup) as caught:
        async with Played(f"event: endpoint\ndata: {endpoint}").connected():
            pass
    assert caught.group_contains(ValueError, match="another origin")


async def test_a_stream_that_ends_before_it_says_where_is_an_error() -> None:
    """The start would wait until its deadline."""
    played = Played()
    played.events.say.close()
    with pytest.raises(ExceptionGroup) as caught:
        async with played.connected():
            pass
    assert caught.group_contains(httpx2.RemoteProtocolError)
