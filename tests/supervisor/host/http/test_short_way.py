"""Calls past the application, from bytes to bytes: which are taken, which are not, and how each ends."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from support.clients.http_clients import listening
from support.clients.wire_http import ENVELOPE, META, WireHttp, call, wired
from support.tools.tool_boxes import LiveBox, answer, hold
from support.waiting import eventually_async

from quarterdeck.common.in_flight import InFlight
from quarterdeck.host.calls import Drain
from quarterdeck.host.held_bytes import HeldBytes
from quarterdeck.host.http import serve, short_way
from quarterdeck.host.http.admission import Admitted
from quarterdeck.host.http.connection import MAX_HELD_BYTES
from quarterdeck.host.http.short_way import HEAD, HttpShortWay
from quarterdeck.host.offers.content import Content
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.tools import Client

pytestmark = [pytest.mark.anyio, pytest.mark.process]

TOKEN = "t" * 40

SPACED = b'{ "content" : [] , "x-new":1.0}'
"""What a server said: on the short way it stays as it is, the long way builds it anew."""

ERAS = pytest.mark.parametrize("is_modern", [False, True], ids=["legacy", "modern"])
PATIENCE_S = 15.0


def box_that(begin: Any = None) -> LiveBox:
    """One tool."""
    box = LiveBox()
    box.graft("s__t", begin or answer(SPACED))
    return box


async def opened(client: WireHttp, *, is_modern: bool) -> None:
    """Let a client come so far that its calls are taken."""
    await (client.introduce() if is_modern else client.greet())
    if is_modern:
        client.headers |= {"Mcp-Method": "tools/call", "Mcp-Name": "s__t"}


def asked(number: int | str, *, is_modern: bool, meta: dict[str, Any] | None = None) -> dict[str, Any]:
    """A call of that era."""
    whole = (meta or {}) | (ENVELOPE if is_modern else {})
    return call(number, meta=whole or None, a=None)


def is_short(reply: Any) -> bool:
    """Whether what the server said was passed on untouched."""
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
    assert is_short(reply)
    assert reply.answer["id"] == "7"
    assert ("resultType" in reply.answer["result"]) == is_modern
    assert reply.headers.get("mcp-session-id") == (None if is_modern else client.headers["Mcp-Session-Id"])
    assert box.begun[-1].arguments == b'{"a": null}'


async def test_a_call_before_the_handshake_is_complete_is_the_sdks_to_judge():
    """The handshake, the versions and the era are its word."""
    async with listening(box_that()) as url, wired(url) as client:
        client.headers["Mcp-Session-Id"] = "unknown"
        assert (await client.ask(call(1))).status == 404
        del client.headers["Mcp-Session-Id"]
        assert (await client.ask(call(1))).status == 400
        client.headers["Mcp-Protocol-Version"] = "2026-07-28"
        client.headers |= {"Mcp-Method": "tools/call", "Mcp-Name": "s__t"}
        first = await client.ask(call(1, meta=ENVELOPE))
        assert (first.status, is_short(first)) == (200, False)
        assert is_short(await client.ask(call(1, meta=ENVELOPE)))


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
async def test_a_modern_request_that_is_not_exactly_what_was_accepted_before_is_the_sdks(headers, meta, status):
    """An intermediary that routes by headers could be told one thing and we another."""
    async with listening(box_that()) as url, wired(url) as client:
        await opened(client, is_modern=True)
        reply = await client.ask(call(1, meta=meta), **headers)
        assert (reply.status, is_short(reply)) == (status, False)
        assert is_short(await client.ask(call(2, meta=ENVELOPE)))


@ERAS
@pytest.mark.parametrize("has_sdk", [False, True], ids=["past the SDK", "through the SDK"])
async def test_white_space_around_the_value_of_a_header_is_no_part_of_it(is_modern, has_sdk):
    """A proxy may add some (RFC 9110, 5.5): a client behind it would be told that its headers are wrong."""
    async with listening(box_that(), token=TOKEN) as url, wired(url) as client:
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        await opened(client, is_modern=is_modern)
        padded = {name: f" \t {value} \t " for name, value in client.headers.items()}
        client.headers = padded | ({"Mcp-Param-X": " 1 "} if has_sdk else {})
        reply = await client.ask(asked(1, is_modern=is_modern))
        assert (reply.status, is_short(reply)) == (200, not has_sdk)
        assert "result" in reply.answer


async def test_a_name_that_no_header_can_hold_comes_in_base64():
    """A tool or a resource with letters of another language in its name could not be asked for."""
    async with listening(box_that()) as url, wired(url) as client:
        await opened(client, is_modern=True)
        for name, status in (("=?base64?c19fdA==?=", 200), (" =?base64?c19fdA==?= ", 200), ("=?base64?eA==?=", 400)):
            assert (await client.ask(call(1, meta=ENVELOPE), Mcp_Name=name)).status == status


@ERAS
@pytest.mark.parametrize("extra", [{}, {"unknown": 1}], ids=["short", "long"])
@pytest.mark.parametrize(("code", "status"), [(-32021, 400), (-32042, 200)])
async def test_an_error_has_the_status_that_its_revision_gives_it(is_modern, extra, code, status):
    """A client of 2026-07-28 that lacks a capability would be told so under a status that means success."""
    reply = ReplyError(code, "no", b'{"requiredCapabilities":{"sampling":{}}}')
    fault = ProtocolFault(FaultKind.TOOL_ERROR, "no", code="reply_error", delivery=Delivery.ANSWERED, reply=reply)
    async with listening(box_that(answer(fault))) as url, wired(url) as client:
        await opened(client, is_modern=is_modern)
        request = asked(1, is_modern=is_modern)
        request["params"] |= extra
        got = await client.ask(request)
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


async def test_a_tool_whose_arguments_stand_in_headers_is_the_sdks():
    """It compares them."""
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
async def test_what_is_no_legacy_call_is_the_sdks_and_the_next_one_is_taken(message, headers, status):
    """One odd request must neither be guessed at nor cost the session."""
    async with listening(box_that()) as url, wired(url) as client:
        await opened(client, is_modern=False)
        reply = await client.ask(message, **headers)
        assert (reply.status, is_short(reply)) == (status, False)
        async with wired(url, client) as other:
            assert is_short(await other.ask(call(2)))


async def test_a_large_body_goes_the_long_way_and_too_large_a_one_is_refused():
    """What a client sends must not be kept twice, nor without bound."""
    async with listening(box_that(), max_body_bytes=2 * MAX_HELD_BYTES) as url, wired(url) as client:
        await opened(client, is_modern=False)
        long = await client.ask(call(1, text="x" * MAX_HELD_BYTES))
        assert (long.status, is_short(long)) == (200, False)
        assert (await client.ask(call(2, text="x" * 2 * MAX_HELD_BYTES))).status == 413


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
    monkeypatch.setattr(short_way, "PING_S", 0.02)
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


async def test_an_id_that_is_in_use_is_the_sdks_and_both_calls_are_answered():
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
        assert is_short(await other.read())
        first.settle(SPACED)
        assert is_short(await client.read())


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


class NoHolder:
    """A session that never ends for idleness."""

    has_ended = False

    def hold(self) -> None:
        """Nothing."""

    def release(self) -> None:
        """Nothing."""


async def test_a_session_is_short_only_for_who_opened_it():
    """Another client that learns the id of a session could call with it."""
    way = HttpShortWay(
        Content(box=box_that(), name="hub", version="1"),
        b"{}",
        Drain(),
        mirrors=lambda _: False,
        ready_list=lambda *_: None,
        in_flight=InFlight(1, 1),
        held=HeldBytes(1, 1),
    )
    headers = [
        (b"accept", b"application/json, text/event-stream"),
        (b"content-type", b"application/json"),
        (b"content-length", b"1"),
        (b"mcp-session-id", b"one"),
    ]
    whose = (("ada", 1), ("bob", 1), ("ada", 2))
    one, other, another = (Client(name, f"token {name}/{session}") for name, session in whose)
    scope = {"headers": headers, "state": {}}
    async with AsyncExitStack() as stack:
        way.opened("one", one, "2025-11-25", NoHolder(), stack)
        assert way.may_take(scope, Admitted((), one))
        assert not way.may_take(scope, Admitted((), other))
        assert scope["state"][HEAD] is None
    assert not way.may_take(scope, Admitted((), another))


async def test_a_client_that_has_too_much_open_is_refused_by_the_application(monkeypatch):
    """Past the application, one client could take every connection."""
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
                assert is_short(await each.read())
            third.writer.write(third.request(call(3)))
            (await box.next_begun()).settle(SPACED)
            assert is_short(await third.read())


async def test_calls_end_with_the_token_that_they_came_with(monkeypatch):
    """Whoever was locked out would go on, in calls that take hours."""
    box, ways = box_that(hold), []
    start = HttpShortWay.keep_open
    monkeypatch.setattr(HttpShortWay, "keep_open", lambda way: ways.append(way) or start(way))
    async with listening(box, token="t" * 40) as url, wired(url) as client:
        client.headers["Authorization"] = "Bearer " + "t" * 40
        await opened(client, is_modern=True)
        client.writer.write(client.request(call(1, meta=ENVELOPE)))
        begun = await box.next_begun()
        assert ways[0].callers() == {"token owner"}
        ways[0].end_calls("token other", "no")
        ways[0].end_calls("token owner", "this token was revoked")
        assert await begun.cancelled == "this token was revoked"
        assert (await client.read()).answer["error"]["message"] == "this token was revoked"
        assert not ways[0].callers()


async def test_a_session_with_calls_under_way_is_not_idle(monkeypatch):
    """It would be ended in the middle of them, or never."""
    box = box_that(hold)
    async with listening(box) as url, wired(url) as client:
        await opened(client, is_modern=False)
        held: list[str] = []
        monkeypatch.setattr("quarterdeck.host.http.http_host._Holder.release", lambda _: held.append("released"))
        client.writer.write(client.request(call(1)))
        (await box.next_begun()).settle(SPACED)
        await client.read()
        await eventually_async(lambda: held == ["released"])
