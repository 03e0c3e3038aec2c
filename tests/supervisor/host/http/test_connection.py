"""Connections by hand: several requests at once, half of one, what never ends, and clients that do not read."""

import contextlib

import anyio
import httpx2
import pytest
from support.clients.http_clients import listening
from support.clients.wire_http import ENVELOPE, call, wired
from support.tools.tool_boxes import LiveBox, hold
from support.waiting import PATIENCE_S, eventually_async

from quarterdeck.host.http import http_host, listener, serve
from quarterdeck.host.http.connection import MAX_HEAD_BYTES, MAX_PIPELINED

pytestmark = pytest.mark.process

TOKEN = "t" * 40


def held_box() -> LiveBox:
    box = LiveBox()
    box.graft("s__t", hold)
    return box


async def test_pipelined_requests_are_answered_in_their_order_whichever_way_each_goes():
    """An answer belongs to its question by its place alone."""
    box = held_box()
    async with listening(box) as url, wired(url) as client:
        await client.greet()
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        client.writer.write(client.request(call(1)) + client.request(ping) + client.request(call(3)))
        begun = await box.next_begun()
        assert len(box.begun) == 1
        begun.settle({"content": ["first"]})
        assert (await client.read()).answer["result"]["content"] == ["first"]
        assert (await client.read()).answer["id"] == 2
        (await box.next_begun()).settle({"content": ["third"]})
        assert (await client.read()).answer["id"] == 3


async def test_only_so_many_requests_wait_on_one_connection():
    """Thousands fit into one read, each with its objects: one client could fill the memory."""
    box = held_box()
    async with listening(box) as url, wired(url) as client:
        await client.greet()
        client.writer.write(client.request(call(1)) * (MAX_PIPELINED + 2))
        assert await client.is_ended()
        assert len(box.begun) == 1


@pytest.mark.parametrize(
    "said",
    [
        b"POST /" + b"x" * 2 * MAX_HEAD_BYTES,
        b"POST /mcp HTTP/1.1\r\nX-A: " + b"x" * 2 * MAX_HEAD_BYTES,
        b"POST /mcp HTTP/1.1\r\n" + b"X-A: xxxxxxxxxx\r\n" * MAX_HEAD_BYTES,
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nX-A: " + b"x" * 2 * MAX_HEAD_BYTES + b"\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /mcp HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-A: " + b"x" * 4 * MAX_HEAD_BYTES,
        b"POST /mcp HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;a=" + b"x" * 4 * MAX_HEAD_BYTES,
    ],
    ids=["path", "header", "headers", "whole", "trailer", "extension"],
)
async def test_what_surrounds_a_body_is_bounded(said: bytes, monkeypatch: pytest.MonkeyPatch):
    """One line without an end would fill the memory, without the token."""
    monkeypatch.setattr(listener, "PROOF_S", 3600.0)
    async with listening(LiveBox(), token=TOKEN) as url, wired(url) as client:
        client.writer.write(said)
        assert await client.is_ended()


async def test_a_head_that_comes_in_one_read_is_bounded_too():
    """It would be judged, whatever its size."""
    async with listening(LiveBox(), token=TOKEN) as url, wired(url) as client:
        client.writer.write(b"POST /mcp HTTP/1.1\r\nHost: a\r\nX-A: " + b"x" * (MAX_HEAD_BYTES * 9 // 8) + b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert await client.reader.read() == b""


async def test_a_header_behind_the_body_counts_for_nothing():
    """A request is judged by its head: what comes behind it could name another session."""
    async with listening(held_box()) as url, wired(url) as client:
        await client.greet()
        session = client.headers.pop("Mcp-Session-Id")
        whole = client.request(b"", Transfer_Encoding="chunked").replace(b"Content-Length: 0\r\n", b"")
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        client.writer.write(
            whole + b"%x\r\n%b\r\n0\r\nMcp-Session-Id: %b\r\n\r\n" % (len(body), body, session.encode())
        )
        assert (await client.read()).status == 400


@pytest.mark.parametrize(
    "headers",
    [
        {"Transfer_Encoding": "chunked"},
        {"Content_Length": "2, 2"},
        {"Content_Length": "-1"},
        {"Transfer_Encoding": "gzip"},
    ],
)
async def test_a_body_whose_length_is_said_in_two_ways_is_refused(headers: dict[str, str]):
    """A proxy before us could see one request where we see two."""
    async with listening(LiveBox()) as url, wired(url) as client:
        reply = await client.ask(b"{}", **headers)
        assert reply.status == 400
        assert await client.is_ended()


async def test_a_body_in_chunks_is_taken_as_any_other():
    """Some clients do not know a body's length before they send it."""
    box = held_box()
    async with listening(box) as url, wired(url) as client:
        await client.greet()
        whole = client.request(b"", Transfer_Encoding="chunked").replace(b"Content-Length: 0\r\n", b"")
        body = client.request(call(1)).partition(b"\r\n\r\n")[2]
        client.writer.write(whole)
        for byte in body:
            client.writer.write(b"1\r\n%c\r\n" % byte)
        client.writer.write(b"0\r\n\r\n")
        (await box.next_begun()).settle(b'{ "content":[]}')
        assert b'{ "content":[]}' in (await client.read()).body


async def test_a_body_in_chunks_that_grows_too_large_is_refused():
    async with listening(held_box(), max_body_bytes=1000) as url, wired(url) as client:
        whole = client.request(b"", Transfer_Encoding="chunked").replace(b"Content-Length: 0\r\n", b"")
        client.writer.write(whole + b"3e9\r\n" + b" " * 1001 + b"\r\n")
        assert (await client.read()).status == 413


async def test_a_client_that_waits_to_be_told_to_go_on_is_told():
    """Curl does, before a larger body."""
    async with listening(held_box()) as url, wired(url) as client:
        head, _, body = client.request(b"{}", Expect="100-continue").partition(b"{}")[0], None, b"{}"
        client.writer.write(head)
        assert (await client.read()).status == 100
        client.writer.write(body)
        assert (await client.read()).status == 400


async def test_half_a_request_does_not_keep_the_server_from_stopping(monkeypatch):
    """One client could hold the whole deck."""
    monkeypatch.setattr(serve, "STOP_S", 3600)
    with anyio.fail_after(PATIENCE_S):
        async with listening(held_box()) as url, wired(url) as client:
            await client.greet()
            ping = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
            # Together, so that the half has come when the whole one is answered.
            client.writer.write(client.request(ping) + client.request(call(1))[:-3])
            assert (await client.read()).status == 200


async def test_the_next_request_waits_until_the_answer_was_taken():
    """A client that never reads would collect answers in our memory, each of any size."""
    box = held_box()
    async with listening(box) as url, wired(url) as client:
        await client.greet()
        client.writer.write(client.request(call(1)) + client.request(call(2)))
        text = "x" * 32 * 1024 * 1024
        (await box.next_begun()).settle({"content": [{"type": "text", "text": text}]})
        await anyio.sleep(0.1)
        assert len(box.begun) == 1
        assert len((await client.read()).body) > len(text)
        (await box.next_begun()).settle({"content": []})
        assert (await client.read()).answer["id"] == 2


async def test_a_request_that_comes_before_the_answer_was_taken_waits_too_and_both_are_counted_to_their_end(
    monkeypatch: pytest.MonkeyPatch,
):
    """The count of an answer that nobody read was lost with the next request: its client could ask nothing any more."""
    monkeypatch.setattr(serve, "MAX_REQUESTS_EACH", 2)
    box = held_box()
    async with listening(box) as url, wired(url) as client:
        await client.greet()
        text = "x" * 32 * 1024 * 1024
        for number in range(3):
            client.writer.write(client.request(call(number)))
            (await box.next_begun()).settle({"content": [{"type": "text", "text": text}]})
            await eventually_async(lambda: client.reader._buffer)  # type: ignore[attr-defined]
            client.writer.write(client.request(call("next")))
            assert len((await client.read()).body) > len(text)
            (await box.next_begun()).settle({"content": []})
            assert (await client.read()).answer["id"] == "next"


async def test_a_session_without_a_name_is_none():
    """Its client would wait for an answer for ever."""
    async with listening(held_box()) as url, wired(url) as client:
        await client.greet()
        assert (await client.ask(call(1), Mcp_Session_Id="")).status == 400


async def test_a_request_whose_session_ends_before_its_body_has_come_is_told_so():
    """It would be carried out for a client that has left."""
    box = held_box()
    async with listening(box) as url, wired(url) as client, wired(url) as other:
        await client.greet()
        other.headers |= client.headers
        request = client.request(call(1))
        client.writer.write(request[:-3])
        other.writer.write(other.request(b"").replace(b"POST", b"DELETE", 1))
        assert (await other.read()).status == 200
        client.writer.write(request[-3:])
        assert (await client.read()).status == 404
        assert not box.begun


async def test_a_dropped_connection_tells_the_request_that_is_under_way_and_not_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
):
    """The call would run on, for nobody."""
    monkeypatch.setattr(http_host, "PING_S", 0.1)  # by which it is known, while a next request waits
    box = held_box()
    async with listening(box) as url:
        async with wired(url) as client:
            client.headers |= {"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "s__t"}
            long = client.request(call(1, meta=ENVELOPE))
            client.writer.write(long + long)
            begun = await box.next_begun()
        assert await begun.cancelled
        await eventually_async(lambda: len(box.begun) == 1)


async def test_anybody_may_ask_whether_the_server_lives_and_learns_nothing_else():
    """A watchdog has no token."""
    async with listening(LiveBox(), token=TOKEN) as url, httpx2.AsyncClient() as http:
        reply = await http.get(url.replace("/mcp", "/healthz"), headers={"Host": "anything"})
        assert (reply.status_code, reply.content) == (200, b"")
        assert "server" not in reply.headers
        assert (await http.post(url.replace("/mcp", "/healthz"))).status_code == 404
