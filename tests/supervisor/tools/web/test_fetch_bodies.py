"""Bodies and heads of every temper, and what is kept of them."""

import asyncio
import gzip
import socket
import struct

import pytest
from support.servers.web_servers import Request, gzipped, response, serving, zeros_gzipped
from support.waiting import eventually_async

from quarterdeck.tools.web import fetch as module
from quarterdeck.tools.web.fetch import MAX_HEADERS

from .fetches import MOST, endless, failure, fetch, raw, trouble_of

pytestmark = [pytest.mark.anyio, pytest.mark.process]


# Bodies


async def test_a_zip_bomb_is_cut_like_any_body() -> None:
    """A kilobyte would become a gigabyte in memory."""
    packed = zeros_gzipped(1 << 30)
    assert len(packed) < 1 << 21
    async with serving(response(packed, content_encoding="gzip")) as server:
        fetched = await fetch(server.url, 1 << 20)
    assert (len(fetched.body), fetched.is_cut) == (1 << 20, True)


async def test_broken_gzip_gives_what_came_before() -> None:
    """A damaged page would be shown as whole, or not at all."""
    packed = gzipped("hello " * 50_000)
    async with serving(response(packed[:-20], content_encoding="gzip")) as server:
        assert (await fetch(server.url, 1 << 20)).trouble == "its gzip data ends early"
    async with serving(response(gzipped("hello")[:-8] + b"\0" * 8, content_encoding="gzip")) as server:
        assert "its gzip data is broken" in await trouble_of(server.url)
    async with serving(response(b"not gzip", content_encoding="gzip")) as server:
        assert "its gzip data is broken" in await failure(server.url)


async def test_an_endless_body_is_cut() -> None:
    """A stream without end would fill memory."""
    async with serving(endless(raw("Content-Type: text/plain"), b"x" * 10_000)) as server:
        fetched = await fetch(server.url)
        assert (len(fetched.body), fetched.is_cut) == (MOST, True)
        await eventually_async(lambda: server.open == 0)


@pytest.mark.parametrize(
    ("head", "unit"),
    [
        pytest.param("Content-Encoding: gzip", gzip.compress(b"") * 1000, id="empty members of gzip"),
        pytest.param("Transfer-Encoding: chunked", b"1;" + b"a" * 10_000 + b"\r\nx\r\n", id="long chunk extensions"),
    ],
)
async def test_framing_without_end_is_given_up(head: str, unit: bytes) -> None:
    async with serving(endless(raw(head), unit)) as server:
        assert "the server sends too much around it" in await trouble_of(server.url)


async def test_a_body_in_tiny_pieces_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte would cost the event loop a chunk's parsing."""
    monkeypatch.setattr(module, "MAX_PIECES", 8_000)
    async with serving(endless(raw("Transfer-Encoding: chunked"), b"1\r\nx\r\n" * 2000)) as server:
        fetched = await fetch(server.url, 5 << 20)
    assert fetched.trouble == "the server sends it in too many pieces"
    assert len(fetched.body) == 8_001


@pytest.mark.parametrize("garbage", [b"zz\r\nhello\r\n", b"-5\r\nhello", b"5\r\nhello world", b"F" * 40 + b"\r\n"])
async def test_chunks_of_garbage_are_an_error(garbage: bytes) -> None:
    """A broken server would be an exception."""
    async with serving(raw("Transfer-Encoding: chunked", garbage)) as server:
        assert await trouble_of(server.url)


async def test_a_length_that_promises_too_much_is_said() -> None:
    """Half a page would pass for all of it."""
    async with serving(raw("Content-Length: 1000", b"only this")) as server:
        fetched = await fetch(server.url)
    assert (fetched.body, fetched.declared_bytes) == (b"only this", 1000)
    assert "without sending complete message body" in fetched.trouble


async def test_a_length_that_promises_too_little_is_kept() -> None:
    """What follows could be smuggled in as a second response."""
    async with serving(raw("Content-Length: 4", b"texthidden")) as server:
        assert (await fetch(server.url)).body == b"text"


@pytest.mark.parametrize("length", ["-1", "1, 2", "1e3", "ten", "9" * 30, "٣"])
async def test_a_length_that_is_none_is_an_error(length: str) -> None:
    """A broken server would be an exception."""
    async with serving(raw(f"Content-Length: {length}", b"text")) as server:
        assert await trouble_of(server.url)


async def test_a_reset_in_the_middle_keeps_what_came() -> None:
    """Half a page would pass for all of it, or be an exception."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(raw("Content-Length: 100000", b"first" * 1000))
        await writer.drain()
        peer = writer.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with serving(answer) as server:
        assert await trouble_of(server.url)


# Heads


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"garbage\r\n\r\n",
        b"\r\n" * 1000,
        b"HTTP/1.1 OK 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: \0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
    ],
)
async def test_what_is_no_http_is_an_error(head: bytes) -> None:
    """Any other service at the port would be an exception."""
    async with serving(head) as server:
        assert "gave an invalid response" in await failure(server.url)


async def test_headers_without_end_are_given_up() -> None:
    """A server could fill memory before any body."""
    for unit in (b"a: b\r\n", b"a", b"HTTP/1.1 100 Continue\r\n\r\n"):
        head = b"" if unit.startswith(b"HTTP") else b"HTTP/1.1 200 OK\r\nX: y\r\nZ: "
        async with serving(endless(head, unit * 1000)) as server:
            text = await failure(server.url)
            assert "sends too much before its body" in text or "sends headers without end" in text
            await eventually_async(lambda server=server: server.open == 0)  # type: ignore[misc]


async def test_many_headers_are_an_error() -> None:
    """Each is parsed, and none of them needed."""
    lines = "\r\n".join(f"x-{number}: y" for number in range(MAX_HEADERS + 1))
    async with serving(raw(lines, b"hi")) as server:
        assert f"more than {MAX_HEADERS} headers" in await failure(server.url)
