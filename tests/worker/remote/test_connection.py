"""Reaching remote servers: what HTTP says is remembered, what the network says comes through.

A server is known by the certificates that its row names, shown ours, and reached through its row's proxy alone.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import msgspec
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse
from support.servers.certificates import Files, make_certificate
from support.servers.played_http import HttpAsked, answer, echoed, played_http
from support.waiting import PATIENCE_S

from quarterdeck_protocol.faults import Delivery
from quarterdeck_protocol.link.frames import RemoteServer
from quarterdeck_worker.remote.connection import EndNotice, dial
from quarterdeck_worker.remote.recorder import StatusRecorder
from quarterdeck_worker.server import ServerFault

pytestmark = [pytest.mark.anyio, pytest.mark.process]


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


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@asynccontextmanager
async def tls_server(files: Files, *, wants_certificate: bool = False) -> AsyncIterator[str]:
    """A server with this certificate."""

    async def play(asked: HttpAsked) -> bytes:
        return echoed(asked)

    async with played_http(play, files.server_context(wants_certificate=wants_certificate)) as url:
        yield url


async def answers(server: RemoteServer) -> bool:
    """Whether the server answers."""
    with anyio.fail_after(PATIENCE_S):
        async with dial(server, 1_000_000, StatusRecorder(), legacy=False) as (read, write):
            await write.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="ping")))
            return isinstance((await read.receive()).message, JSONRPCResponse)


async def test_a_certificate_of_an_authority_of_ones_own_is_accepted_where_the_row_names_it(files: Files) -> None:
    """A company's own server could not be used, or anybody's certificate be accepted."""
    async with tls_server(files) as url:
        assert await answers(RemoteServer(url, ca_file=files.cert))
        with pytest.raises(ExceptionGroup) as caught:
            await answers(RemoteServer(url))
        assert caught.group_contains(httpx2.ConnectError, match="(?i)certificate")


async def test_a_server_that_wants_a_certificate_is_shown_the_rows(files: Files) -> None:
    """It would refuse us."""
    async with tls_server(files, wants_certificate=True) as url:
        row = RemoteServer(url, ca_file=files.cert)
        assert await answers(msgspec.structs.replace(row, client_cert=files.cert, client_key=files.key))
        with pytest.raises(ExceptionGroup) as caught:
            await answers(row)
        assert caught.group_contains(httpx2.TransportError)


async def test_a_file_that_cannot_be_used_is_the_configurations_fault() -> None:
    """A user would look for the fault at the server."""
    with pytest.raises(ServerFault) as caught:
        await answers(RemoteServer("https://h/", ca_file="/no/such.pem"))
    record = caught.value.record
    assert (record.code, record.delivery) == ("config_invalid", Delivery.NOT_SENT)
    assert record.message.startswith("ca_file cannot be used: /no/such.pem: no")


async def test_the_rows_proxy_is_used_and_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a server is sent would go through whatever our environment names."""
    asked_of: list[str] = []

    async def play(asked: HttpAsked) -> bytes:
        asked_of.append(asked.path)
        return echoed(asked)

    async def refuse(asked: HttpAsked) -> bytes:
        asked_of.append("the environment's")
        return answer(502)

    async with played_http(play) as url, played_http(refuse) as other:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, other.removesuffix("/mcp"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
        assert await answers(RemoteServer(url))
        assert await answers(RemoteServer("http://far.invalid/mcp", proxy=url.removesuffix("/mcp")))
    assert asked_of == ["/mcp", "http://far.invalid/mcp"]
