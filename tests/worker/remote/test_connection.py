"""Reaching remote servers: what HTTP says is remembered, what the network says comes through."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import anyio
import httpx2
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest
from support.waiting import PATIENCE_S

from quarterdeck_protocol.link.frames import RemoteServer
from quarterdeck_worker.remote.client import StatusRecorder
from quarterdeck_worker.remote.connection import EndNotice, dial

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("status", "wants_credentials", "is_another_transport"),
    [
        (200, False, False),
        (202, False, False),
        (400, False, True),
        (401, True, False),
        (403, False, False),
        (404, False, True),
        (405, False, True),
        (500, False, False),
    ],
)
async def test_a_bad_status_tells_what_to_do_next(
    status: int, wants_credentials: bool, is_another_transport: bool
) -> None:
    """A user would not learn that a token is missing, or an old server would never be tried the old way."""
    recorder = StatusRecorder()
    await recorder.listen(httpx2.Response(status))
    assert recorder.status == (status if status >= 400 else None)
    assert recorder.wants_credentials is wants_credentials
    assert recorder.is_another_transport is is_another_transport


async def test_a_good_answer_does_not_hide_the_bad_one_before() -> None:
    """The reason would be gone by the time somebody asks."""
    recorder = StatusRecorder()
    await recorder.listen(httpx2.Response(401))
    await recorder.listen(httpx2.Response(200))
    assert recorder.status == 401


async def test_dialling_streamable_http_sends_nothing() -> None:
    """A server would be asked before anybody is ready to hear its answer."""
    server = RemoteServer("http://127.0.0.1:9/mcp")
    recorder = StatusRecorder()
    async with dial(server, 1_000_000, recorder, legacy=False) as (read, write):
        assert read is not write
    assert recorder.status is None


def endless(*headers: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """A server whose every answer has these headers, and a body without an end."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = "\r\n".join(("HTTP/1.1 200 OK", "Content-Type: application/json", *headers))
        writer.write(f"{head}\r\n\r\n".encode())
        try:
            while True:
                writer.write(b" " * 65536)
                await writer.drain()
        except ConnectionError:
            writer.close()

    return answer


async def test_a_body_without_an_end_is_an_error_and_not_all_of_our_memory() -> None:
    """One remote server could fill the machine's memory within the deadline of a call."""
    server = await asyncio.start_server(endless(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    place = RemoteServer(f"http://127.0.0.1:{port}/mcp")
    async with server, dial(place, 1_000_000, StatusRecorder(), legacy=False) as (read, write):
        with anyio.fail_after(PATIENCE_S):
            await write.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="ping")))
            answer = await read.receive()
        assert isinstance(answer.message, JSONRPCError)
        assert "a body of more than 1,000,000 bytes" in answer.message.error.message


async def test_a_legacy_server_that_does_not_listen_is_an_error_at_once() -> None:
    """A wrong port would be tried until the deadline."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        server = RemoteServer(f"http://127.0.0.1:{reserved.getsockname()[1]}/sse")
        with pytest.raises(httpx2.ConnectError):
            async with dial(server, 1_000_000, StatusRecorder(), legacy=True):
                pass


async def test_the_end_of_a_stream_is_told_after_its_last_item() -> None:
    """A lost remote server would look ready for ever, or be called lost before its last words were heard."""
    send, receive = anyio.create_memory_object_stream[int](2)
    await send.send(1)
    await send.send(2)
    send.close()
    async with EndNotice(receive) as notice:
        assert await anext(notice) == 1
        assert not notice.ended.is_set()
        assert [item async for item in notice] == [2]
        assert notice.ended.is_set()


async def test_all_else_is_the_streams_own() -> None:
    """The SDK would not find what it needs of a stream, and closing would leave it open."""
    send, receive = anyio.create_memory_object_stream[int](1)
    notice = EndNotice(receive)
    send.send_nowait(7)
    assert await notice.receive() == 7
    assert notice.statistics().open_receive_streams == 1
    async with notice:
        pass
    assert notice.statistics().open_receive_streams == 0
    assert not notice.ended.is_set()
    send.close()
