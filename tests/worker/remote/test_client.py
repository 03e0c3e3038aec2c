"""What goes wrong with one request stays with that request, and is told as what it was."""

import gzip
import json
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from support.servers.played_http import HttpAsked, answer, echoed
from support.servers.remote_calls import Outcome, calling

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord
from quarterdeck_protocol.mcp.jsonrpc import SplitResult
from quarterdeck_worker.remote.recorder import MAX_KEPT, StatusRecorder

pytestmark = [pytest.mark.anyio, pytest.mark.process]


def fails_with(said: bytes | None) -> Callable[[HttpAsked], Awaitable[bytes | None]]:
    """A server on which calls with the text `bad` end so."""

    async def play(asked: HttpAsked) -> bytes | None:
        return said if asked.text == "bad" else echoed(asked)

    return play


def streamed(data: bytes) -> bytes:
    """An answer that is an event."""
    return answer(200, b"event: message\r\ndata: %b\r\n\r\n" % data, content_type="text/event-stream")


PAGE = b"<html><title>Bad gateway</title><p>nginx</html>"

EVENT_BOMB = gzip.compress(b"data: " + bytes(2_000_000))

FAILURES = [
    pytest.param(None, "server_lost", Delivery.UNKNOWN, id="hangs-up"),
    pytest.param(b"garbage\r\n\r\n", "server_lost", Delivery.UNKNOWN, id="no-http"),
    pytest.param(answer(403), "access_denied", Delivery.NOT_SENT, id="403"),
    pytest.param(
        answer(
            403,
            b'{"jsonrpc": "2.0", "id": 1, "error": {"code": -32003, "message": "no"}}',
            content_type="application/json",
            www_authenticate='Bearer error="insufficient_scope", scope="write"',
        ),
        "scope_needed",
        Delivery.NOT_SENT,
        id="scope",
    ),
    pytest.param(answer(408), "request_timeout", Delivery.UNKNOWN, id="408"),
    pytest.param(answer(413), "request_refused", Delivery.NOT_SENT, id="413"),
    pytest.param(answer(429), "rate_limited", Delivery.NOT_SENT, id="429"),
    pytest.param(answer(500, b"oops"), "server_error", Delivery.UNKNOWN, id="500"),
    pytest.param(answer(502, PAGE, content_type="text/html"), "server_unavailable", Delivery.UNKNOWN, id="502"),
    pytest.param(answer(200, PAGE, content_type="text/html; charset=x"), "web_page", Delivery.UNKNOWN, id="page"),
    pytest.param(
        answer(200, gzip.compress(bytes(2_000_000)), content_type="application/json", content_encoding="gzip"),
        "result_too_large",
        Delivery.ANSWERED,
        id="bomb",
    ),
    pytest.param(
        answer(200, b"data: " + b"x" * 1_000_001, content_type="text/event-stream"),
        "result_too_large",
        Delivery.ANSWERED,
        id="event",
    ),
    pytest.param(
        answer(
            200, gzip.compress(b"data: " + bytes(2_000_000)), content_type="text/event-stream", content_encoding="gzip"
        ),
        "result_too_large",
        Delivery.ANSWERED,
        id="event-bomb",
    ),
    pytest.param(
        answer(200, b"\n" * 50, content_type="text/event-stream; charset=zlib"),
        "server_lost",
        Delivery.UNKNOWN,
        id="empty",
    ),
    pytest.param(
        answer(200, b"no", content_type="application/json", content_encoding="gzip"),
        "bad_output",
        Delivery.ANSWERED,
        id="no-gzip",
    ),
    pytest.param(
        answer(200, b"no", content_type="application/json", content_encoding="br"),
        "bad_output",
        Delivery.ANSWERED,
        id="brotli",
    ),
    pytest.param(streamed(b"{"), "bad_output", Delivery.ANSWERED, id="broken-event"),
    pytest.param(streamed(b'"%b"' % bytes(1_100_000)), "result_too_large", Delivery.ANSWERED, id="large-event"),
    pytest.param(
        answer(200, b'{"jsonrpc":"2.0","id":1,"result":{"x":%b}}' % (b"[" * 1_000), content_type="application/json"),
        "bad_output",
        Delivery.ANSWERED,
        id="broken-json",
    ),
]


@pytest.mark.parametrize(("said", "code", "delivery"), FAILURES)
async def test_a_request_that_fails_is_told_as_what_it_was_and_disturbs_no_other(
    said: bytes | None, code: str, delivery: Delivery
) -> None:
    """One bad answer would end every call to its server."""
    arrived, release = anyio.Event(), anyio.Event()

    async def play(asked: HttpAsked) -> bytes | None:
        if asked.text == "slow":
            arrived.set()
            await release.wait()
        return await fails_with(said)(asked)

    async with calling(play, max_result_bytes=1_000_000) as caller, anyio.create_task_group() as tasks:
        slow: list[Outcome] = []
        slow_ended = anyio.Event()

        async def call_slowly() -> None:
            slow.append(await caller.call("slow"))
            slow_ended.set()

        tasks.start_soon(call_slowly)
        await arrived.wait()
        fault = await caller.fault("bad")
        assert (fault.code, fault.delivery) == (code, delivery), fault
        assert isinstance(await caller.call("good"), SplitResult)
        release.set()
        await slow_ended.wait()
        assert isinstance(slow[0], SplitResult), "the neighbour was under way all along"
        assert caller.loss is None


async def test_a_page_in_a_servers_place_is_shown_by_how_it_begins() -> None:
    """A user would not see that it is the proxy who speaks."""
    async with calling(fails_with(answer(502, PAGE, content_type="text/html"))) as caller:
        fault = await caller.fault("bad")
        assert "502 with a web page (text/html) that begins 'Bad gateway nginx'" in fault.message


async def test_an_error_in_mcp_says_more_than_its_status() -> None:
    """A server that answers 400 with what is wrong would have that replaced by its number."""

    async def play(asked: HttpAsked) -> bytes:
        error = {"code": -32602, "message": "no owner"}
        body = json.dumps({"jsonrpc": "2.0", "id": asked.message["id"], "error": error}).encode()
        return answer(400, body, content_type="application/json")

    async with calling(play) as caller:
        fault = await caller.fault("bad")
        assert fault.reply is not None
        assert (fault.code, fault.reply.code, fault.reply.message) == ("reply_error", -32602, "no owner")


async def test_a_session_that_is_gone_is_told_to_its_call_before_the_server_is_lost() -> None:
    """A call that was not carried out could not be repeated, and nobody would greet the server anew."""
    async with calling(fails_with(answer(404))) as caller:
        fault = await caller.fault("bad")
        assert (fault.code, fault.delivery) == ("session_gone", Delivery.NOT_SENT)
        await caller.is_lost.wait()
        assert caller.loss is not None
        assert (caller.loss.kind, caller.loss.code) == (FaultKind.TRANSPORT, "session_gone")


async def test_a_login_that_is_over_is_told_to_its_call_before_the_server_is_lost() -> None:
    """The call would look as if it may have been carried out."""
    async with calling(fails_with(answer(401))) as caller:
        fault = await caller.fault("bad")
        assert (fault.code, fault.delivery) == ("auth_needed", Delivery.NOT_SENT)
        await caller.is_lost.wait()
        assert caller.loss is not None
        assert caller.loss.code == "auth_needed"


async def test_a_server_that_asks_for_a_pause_gets_it() -> None:
    """A server that is overrun would be called on, and might shut us out."""
    asked_for: list[str] = []

    async def play(asked: HttpAsked) -> bytes:
        asked_for.append(asked.text)
        return answer(429, retry_after="120")

    async with calling(play) as caller:
        first, second = await caller.fault("first"), await caller.fault("second")
        assert asked_for == ["first"], "the second is not sent"
        assert (first.code, second.code) == ("rate_limited", "rate_limited")
        assert "for 120 s" in first.message
        assert second.delivery is Delivery.NOT_SENT


async def test_the_pause_ends() -> None:
    """The server would never be called again."""
    now = [0.0]
    recorder = StatusRecorder(lambda: now[0])
    await recorder.listen(httpx2.Response(503, headers={"Retry-After": "5"}))
    assert recorder.pause_left_s == 5.0
    now[0] = 6.0
    assert recorder.pause_left_s == 0.0


async def test_no_server_can_make_up_a_fault_of_ours() -> None:
    """It would choose what is told of a call's effect."""
    recorder = StatusRecorder()
    fault = FaultRecord(FaultKind.TOOL_ERROR, "it", "rate_limited")
    key = recorder.keep(fault)
    assert recorder.fault_of(MCPError(-32603, "it", "rate_limited")) is None
    assert recorder.fault_of(MCPError(-32603, "it", {"key": key})) is None
    assert recorder.fault_of(MCPError(-32603, "it", key)) is fault
    assert recorder.fault_of(MCPError(-32603, "it", key)) is None, "once"


async def test_faults_that_nobody_asks_for_do_not_pile_up() -> None:
    """A client that gives up its calls would fill the worker's memory."""
    recorder = StatusRecorder()
    keep = partial(recorder.keep, FaultRecord(FaultKind.TOOL_ERROR, "it", "rate_limited"))
    first = keep()
    last = [keep() for _ in range(MAX_KEPT)][-1]
    assert recorder.fault_of(MCPError(-32603, "it", first)) is None
    assert recorder.fault_of(MCPError(-32603, "it", last)) is not None
