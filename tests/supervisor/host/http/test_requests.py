"""Requests over HTTP by hand: what each is answered, under which status and headers, and how each ends."""

import asyncio
from typing import Any

import anyio
import pytest
from support.clients.http_clients import listening
from support.clients.wire_http import ENVELOPE, META, WireHttp, call, wired
from support.tools.tool_boxes import LiveBox, answer, hold
from support.waiting import PATIENCE_S, POLL_S, eventually_async

from quarterdeck.host.http import http_host, serve
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault, ReplyError

pytestmark = pytest.mark.process

TOKEN = "t" * 40

SPACED = b'{ "content" : [] , "x-new":1.0}'
"""What a server said: it stays as it is."""

ERAS = pytest.mark.parametrize("is_modern", [False, True], ids=["legacy", "modern"])


def box_that(begin: Any = None) -> LiveBox:
    box = LiveBox()
    box.graft("s__t", begin or answer(SPACED))
    return box


async def opened(client: WireHttp, *, is_modern: bool) -> None:
    await (client.introduce() if is_modern else client.greet())
    if is_modern:
        client.headers |= {"Mcp-Method": "tools/call", "Mcp-Name": "s__t"}


def asked(number: int | str, *, is_modern: bool, meta: dict[str, Any] | None = None) -> dict[str, Any]:
    whole = (meta or {}) | (ENVELOPE if is_modern else {})
    return call(number, meta=whole or None, a=None)


def is_untouched(reply: Any) -> bool:
    return b'"content" : []' in reply.body


@ERAS
async def test_what_a_server_said_is_passed_on_untouched_as_one_json_value(is_modern):
    """Each call would cost two rebuilt values and a stream, a millisecond where a tenth is enough."""
    box = box_that()
    async with listening(box) as url, wired(url) as client:
        await opened(client, is_modern=is_modern)
        reply = await client.ask(asked("7", is_modern=is_modern))
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert is_untouched(reply)
    assert reply.answer["id"] == "7"
    assert ("resultType" in reply.answer["result"]) == is_modern
    assert reply.headers.get("mcp-session-id") == (None if is_modern else client.headers["Mcp-Session-Id"])
    assert box.begun[-1].arguments == b'{"a": null}'


async def test_a_call_needs_a_session_or_an_envelope():
    """A call must not be a way around the handshake."""
    async with listening(box_that()) as url, wired(url) as client:
        client.headers["Mcp-Session-Id"] = "unknown"
        assert (await client.ask(call(1))).status == 404
        del client.headers["Mcp-Session-Id"]
        assert (await client.ask(call(1))).status == 400
        client.headers["Mcp-Protocol-Version"] = "2026-07-28"
        client.headers |= {"Mcp-Method": "tools/call", "Mcp-Name": "s__t"}
        assert is_untouched(await client.ask(call(1, meta=ENVELOPE)))


@pytest.mark.parametrize(
    ("headers", "meta", "status"),
    [
        ({"Mcp_Name": "s__other"}, ENVELOPE, 400),
        ({"Mcp_Method": "tools/list"}, ENVELOPE, 400),
        ({"Mcp_Protocol_Version": "2025-11-25"}, ENVELOPE, 400),
        ({"Mcp_Protocol_Version": "2099-01-01"}, ENVELOPE, 400),
        ({"Mcp_Param_X": "1"}, ENVELOPE, 200),
        ({"Accept": "application/json"}, ENVELOPE, 406),
        ({"Content_Encoding": "gzip"}, ENVELOPE, 200),
        ({}, {**ENVELOPE, f"{META}logLevel": "debug"}, 200),
        ({}, {**ENVELOPE, f"{META}protocolVersion": "2025-11-25"}, 400),
        ({}, {}, 400),
    ],
)
async def test_a_modern_request_is_judged_by_its_headers_and_its_envelope(headers, meta, status):
    """An intermediary that routes by headers could be told one thing and we another."""
    async with listening(box_that()) as url, wired(url) as client:
        await opened(client, is_modern=True)
        reply = await client.ask(call(1, meta=meta), **headers)
        assert (reply.status, is_untouched(reply)) == (status, status == 200)
        assert is_untouched(await client.ask(call(2, meta=ENVELOPE)))


@ERAS
async def test_white_space_around_the_value_of_a_header_is_no_part_of_it(is_modern):
    """A proxy may add some (RFC 9110, 5.5): a client behind it would be told that its headers are wrong."""
    async with listening(box_that(), token=TOKEN) as url, wired(url) as client:
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        await opened(client, is_modern=is_modern)
        padded = {name: f" \t {value} \t " for name, value in client.headers.items()}
        client.headers = padded
        reply = await client.ask(asked(1, is_modern=is_modern))
        assert (reply.status, is_untouched(reply)) == (200, True)
        assert "result" in reply.answer


async def test_a_name_that_no_header_can_hold_comes_in_base64():
    """A tool or a resource with letters of another language in its name could not be asked for."""
    async with listening(box_that()) as url, wired(url) as client:
        await opened(client, is_modern=True)
        for name, status in (("=?base64?c19fdA==?=", 200), (" =?base64?c19fdA==?= ", 200), ("=?base64?eA==?=", 400)):
            assert (await client.ask(call(1, meta=ENVELOPE), Mcp_Name=name)).status == status


@ERAS
@pytest.mark.parametrize(("code", "status"), [(-32021, 400), (-32042, 200)])
async def test_an_error_has_the_status_that_its_revision_gives_it(is_modern, code, status):
    """A client of 2026-07-28 that lacks a capability would be told so under a status that means success."""
    reply = ReplyError(code, "no", b'{"requiredCapabilities":{"sampling":{}}}')
    fault = ProtocolFault(FaultKind.TOOL_ERROR, "no", code="reply_error", delivery=Delivery.ANSWERED, reply=reply)
    async with listening(box_that(answer(fault))) as url, wired(url) as client:
        await opened(client, is_modern=is_modern)
        got = await client.ask(asked(1, is_modern=is_modern))
        needed = {"requiredCapabilities": {"sampling": {}}}
        assert got.answer["error"] == {"code": code, "message": "no", "data": needed}
        assert got.status == (status if is_modern else 200)
        told = await client.ask(asked(2, is_modern=is_modern, meta={"progressToken": 1}))
        assert told.answer["error"]["code"] == code


async def test_an_error_after_an_event_ends_the_events():
    """A response that has begun would be cut off, or begin twice."""
    fault = ProtocolFault(
        FaultKind.TOOL_ERROR, "no", code="reply_error", delivery=Delivery.ANSWERED, reply=ReplyError(-32021, "no")
    )

    def fail(begun: Any) -> None:
        begun.note(1.0)
        begun.settle(fault)

    box = box_that(lambda begun: asyncio.get_running_loop().call_soon(fail, begun) and None)
    async with listening(box) as url, wired(url) as client:
        await opened(client, is_modern=True)
        got = await client.ask(asked(1, is_modern=True, meta={"progressToken": 1}))
    assert (got.status, got.answer["error"]["code"]) == (200, -32021)
    assert got.messages[0]["method"] == "notifications/progress"


async def test_a_header_that_repeats_an_argument_has_to_be_there():
    """A proxy would route the call by nothing."""
    box = box_that()
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
    box.graft("s__t", answer(SPACED), name="t", inputSchema=schema)
    async with listening(box) as url, wired(url) as client:
        await opened(client, is_modern=True)
        assert (await client.ask(call(1, meta=ENVELOPE, a="x"))).answer["error"]["code"] == -32020
        assert not box.begun


@pytest.mark.parametrize(
    ("message", "headers", "status"),
    [
        ([call(1)], {}, 400),
        (b"{", {}, 400),
        (b"[" * 100_000, {}, 400),
        ({**call(1), "jsonrpc": "1.0"}, {}, 400),
        (call(1, meta=ENVELOPE), {}, 200),
        (call(1), {"Mcp_Protocol_Version": "2026-07-28"}, 400),
        (call(1), {"Mcp_Session_Id": "another"}, 404),
        ({**call(1), "id": None}, {}, 202),
    ],
    ids=["batch", "half", "deep", "version", "envelope", "wrong era", "session", "no id"],
)
async def test_what_is_no_legacy_call_is_refused_and_the_next_one_is_taken(message, headers, status):
    """One odd request must neither be guessed at nor cost the session."""
    async with listening(box_that()) as url, wired(url) as client:
        await opened(client, is_modern=False)
        reply = await client.ask(message, **headers)
        assert (reply.status, is_untouched(reply)) == (status, False)
        async with wired(url, client) as other:
            assert is_untouched(await other.ask(call(2)))


async def test_a_body_that_is_too_large_is_refused():
    """What a client sends must not be kept without bound."""
    async with listening(box_that(), max_body_bytes=1024 * 1024) as url, wired(url) as client:
        await opened(client, is_modern=False)
        assert is_untouched(await client.ask(call(1, text="x" * 1_000_000)))
        assert (await client.ask(call(2, text="x" * 1024 * 1024))).status == 413


@ERAS
async def test_progress_comes_as_events_before_the_answer(is_modern):
    """One JSON value has no place for it."""
    box = box_that(hold)
    async with listening(box) as url, wired(url) as client, anyio.create_task_group() as tasks:
        await opened(client, is_modern=is_modern)
        replies: list[Any] = []

        async def ask() -> None:
            replies.append(await client.ask(asked(1, is_modern=is_modern, meta={"progressToken": "t"})))

        tasks.start_soon(ask)
        begun = await box.next_begun()
        begun.note(1, 2, "half")
        begun.settle(SPACED)
    (reply,) = replies
    assert reply.headers["content-type"] == "text/event-stream"
    note, last = reply.messages
    assert note["params"] == {"progressToken": "t", "progress": 1, "total": 2, "message": "half"}
    assert last["result"]["x-new"] == 1.0


async def test_a_call_that_takes_long_is_kept_open(monkeypatch):
    """A proxy between gives up on a connection on which nothing comes."""
    monkeypatch.setattr(http_host, "PING_S", 0.02)
    box = box_that(hold)
    async with listening(box) as url, wired(url) as client:
        await opened(client, is_modern=False)
        client.writer.write(client.request(call(1)))
        begun = await box.next_begun()
        assert b"text/event-stream" in await client.reader.readuntil(b": ping\n\n")
        begun.settle(SPACED)
        assert b'"x-new":1.0' in await client.reader.readuntil(b"0\r\n\r\n")


async def test_a_cancelled_call_ends_on_both_sides():
    """The server would work on, or the client wait for ever; its era ends a request by a response only."""
    box = box_that(hold)
    async with listening(box) as url, wired(url) as client, wired(url) as other:
        await opened(client, is_modern=False)
        other.headers |= client.headers
        client.writer.write(client.request(call(1)))
        begun = await box.next_begun()
        params = {"requestId": 1, "reason": "enough"}
        told = await other.ask({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        assert told.status == 202
        assert await begun.cancelled == "enough"
        assert (await client.read()).answer["error"]["code"] == -32800


@ERAS
async def test_a_dropped_connection_cancels_its_call(is_modern):
    """Nobody could ever be given the answer."""
    box = box_that(hold)
    async with listening(box) as url:
        async with wired(url) as client:
            await opened(client, is_modern=is_modern)
            client.writer.write(client.request(asked(1, is_modern=is_modern)))
            begun = await box.next_begun()
        assert await begun.cancelled == "the client closed its connection"


async def test_calls_under_one_id_are_both_answered():
    """A client's slip must not swallow an answer, nor give one to the wrong question."""
    box = box_that(hold)
    async with listening(box) as url, wired(url) as client, wired(url) as other:
        await opened(client, is_modern=False)
        other.headers |= client.headers
        client.writer.write(client.request(call(1, which="first")))
        first = await box.next_begun()
        other.writer.write(other.request(call(1, which="second")))
        second = await box.next_begun()
        second.settle({"content": ["second"]})
        assert (await other.read()).answer["result"]["content"] == ["second"]
        first.settle({"content": ["first"]})
        assert (await client.read()).answer["result"]["content"] == ["first"]


async def test_modern_clients_may_use_the_same_ids_at_once():
    """They do not know of each other."""
    box = box_that(hold)
    async with listening(box) as url, wired(url) as client, wired(url) as other:
        await opened(client, is_modern=True)
        other.headers |= client.headers
        client.writer.write(client.request(call(1, meta=ENVELOPE)))
        first = await box.next_begun()
        other.writer.write(other.request(call(1, meta=ENVELOPE)))
        second = await box.next_begun()
        second.settle(SPACED)
        assert is_untouched(await other.read())
        first.settle(SPACED)
        assert is_untouched(await client.read())


async def test_the_end_of_a_session_ends_its_calls():
    """They would run for nobody, under an id that is unknown."""
    box = box_that(hold)
    async with listening(box) as url, wired(url) as client, wired(url) as other:
        await opened(client, is_modern=False)
        client.writer.write(client.request(call(1)))
        begun = await box.next_begun()
        other.headers |= client.headers
        other.writer.write(other.request(b"").replace(b"POST", b"DELETE", 1))
        assert (await other.read()).status == 200
        assert await begun.cancelled == "the session has ended"
        assert "error" in (await client.read()).answer
        assert (await other.ask(call(2))).status == 404


async def test_a_session_that_its_client_ended_takes_nothing_more():
    """Its client was told that it has ended, and would be served in it for as long as the rest of it takes to go."""
    async with listening(box_that(answer)) as url, wired(url) as client:
        await opened(client, is_modern=False)
        ended = client.request(b"").replace(b"POST", b"DELETE", 1)
        client.writer.write(ended + client.request(call(1)))
        assert (await client.read()).status == 200
        assert (await client.read()).status == 404


async def test_a_client_that_has_too_much_open_is_refused(monkeypatch):
    """One client could take every connection."""
    monkeypatch.setattr(serve, "MAX_REQUESTS_EACH", 2)
    box = box_that(hold)
    async with listening(box) as url, wired(url) as client:
        await opened(client, is_modern=False)
        async with wired(url, client) as second, wired(url, client) as third:
            for number, each in enumerate((client, second)):
                each.writer.write(each.request(call(number)))
                await box.next_begun()
            assert (await third.ask(call(2))).status == 429
            for begun, each in zip(box.begun, (client, second), strict=True):
                begun.settle(SPACED)
                assert is_untouched(await each.read())
            third.writer.write(third.request(call(3)))
            (await box.next_begun()).settle(SPACED)
            assert is_untouched(await third.read())


def listing(number: int | str, *, is_modern: bool, **params: Any) -> dict[str, Any]:
    given = params | ({"_meta": ENVELOPE} if is_modern else {})
    return {"jsonrpc": "2.0", "id": number, "method": "tools/list", "params": given}


async def test_a_list_that_is_not_read_counts_as_open(monkeypatch):
    """One client's connections, none of which it reads, would fill the memory."""
    monkeypatch.setattr(serve, "MAX_REQUESTS_EACH", 1)
    box = LiveBox()
    box.graft("s__a", answer({}), name="a", description="x" * 32 * 1024 * 1024, inputSchema={"type": "object"})
    async with listening(box) as url, wired(url) as client:
        await client.greet()
        async with wired(url, client) as other:
            client.writer.write(client.request(listing(2, is_modern=False)))
            # Before that the other's could come first, and this one be refused.
            await eventually_async(lambda: client.reader._buffer)
            await eventually_status(other, 429)
            assert len((await client.read()).answer["result"]["tools"]) == 1
            await eventually_status(other, 200)


async def eventually_status(client: WireHttp, status: int) -> None:
    ping = {"jsonrpc": "2.0", "id": 3, "method": "ping"}
    with anyio.fail_after(PATIENCE_S):
        while (await client.ask(ping)).status != status:  # noqa: ASYNC110 - the server has no event for us
            await anyio.sleep(POLL_S)
