"""Calls over streamable HTTP: each fails alone and as what it was; streams are taken up; sessions begin and end."""

import gzip
import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from support.servers.greetings import DISCOVERED, INITIALIZED
from support.servers.played_http import EVENTS, HttpAsked, Said, answer, echo_event, echoed, event, events, result
from support.servers.remote_calls import calling, silent_run
from support.waiting import PATIENCE_S, eventually_async, turns

from quarterdeck_protocol.faults import Delivery, FaultKind
from quarterdeck_protocol.link.frames import Forward, ListChanged, OpenOrder, RemoteServer
from quarterdeck_protocol.mcp.jsonrpc import SplitResult
from quarterdeck_worker.http.headers import header_value
from quarterdeck_worker.http.run import run_remote
from quarterdeck_worker.http.streams import ANSWERING, MAX_RETRY_S, MAX_TRIES
from quarterdeck_worker.server import Outcome, ServerFault

from .passing_time import Time

pytestmark = pytest.mark.process

CHANGED = {"method": "notifications/tools/list_changed"}


def fails_with(said: bytes | None) -> Callable[[HttpAsked], Awaitable[bytes | None]]:
    """A server on which calls with the text `bad` end so."""

    async def play(asked: HttpAsked) -> bytes | None:
        return said if asked.text == "bad" else echoed(asked)

    return play


async def play_echo(asked: HttpAsked) -> Said:
    return echoed(asked)


def streamed(data: bytes) -> bytes:
    return answer(200, b"event: message\r\ndata: %b\r\n\r\n" % data, content_type="text/event-stream")


UNKNOWN, NOT_SENT, ANSWERED = Delivery.UNKNOWN, Delivery.NOT_SENT, Delivery.ANSWERED
JSON, STREAM = "application/json", "text/event-stream"
PAGE = b"<html><title>Bad gateway</title><p>nginx</html>"

FAILURES = [
    pytest.param(None, "server_lost", UNKNOWN, id="hangs-up"),
    pytest.param(b"garbage\r\n\r\n", "server_lost", UNKNOWN, id="no-http"),
    pytest.param(answer(200, x="y" * 1_000_000), "server_lost", UNKNOWN, id="huge-header"),
    pytest.param(
        answer(
            403,
            b'{"jsonrpc": "2.0", "id": 1, "error": {"code": -32003, "message": "no"}}',
            content_type=JSON,
            www_authenticate='Bearer error="insufficient_scope", scope="write"',
        ),
        "scope_needed",
        NOT_SENT,
        id="scope",
    ),
    pytest.param(answer(200, PAGE, content_type="text/html; charset=x"), "web_page", UNKNOWN, id="page"),
    pytest.param(
        answer(200, gzip.compress(bytes(2_000_000)), content_type=JSON, content_encoding="gzip"),
        "result_too_large",
        ANSWERED,
        id="bomb",
    ),
    pytest.param(
        answer(200, b"data: " + b"x" * 1_000_001, content_type=STREAM), "result_too_large", ANSWERED, id="event"
    ),
    pytest.param(
        answer(200, b"\n" * 50, content_type="text/event-stream; charset=zlib"), "server_lost", UNKNOWN, id="empty"
    ),
    pytest.param(answer(200, b"no", content_type=JSON, content_encoding="gzip"), "bad_output", ANSWERED, id="no-gzip"),
    pytest.param(streamed(b"{"), "bad_output", ANSWERED, id="broken-event"),
    pytest.param(streamed(b'"%b"' % bytes(1_100_000)), "result_too_large", ANSWERED, id="large-event"),
    pytest.param(
        answer(200, b'{"jsonrpc":"2.0","id":1,"result":{"x":%b}}' % (b"[" * 1_000), content_type=JSON),
        "bad_output",
        ANSWERED,
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


@pytest.mark.parametrize(("status", "code"), [(404, "session_gone"), (401, "auth_needed")])
async def test_a_session_or_login_that_is_over_is_told_to_its_call_before_the_server_is_lost(
    status: int, code: str
) -> None:
    async with calling(fails_with(answer(status))) as caller:
        fault = await caller.fault("bad")
        assert (fault.code, fault.delivery) == (code, NOT_SENT)
        await caller.is_lost.wait()
        assert caller.loss is not None
        assert (caller.loss.kind, caller.loss.code) == (FaultKind.TRANSPORT, code)


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


# Streams of answers


def broken_off(*resumed: bytes | None, first: bytes = b"id: 1\ndata:\n\n") -> tuple[Any, Any, list[HttpAsked]]:
    """A server whose call's stream ends at once; what its GETs with an id are answered, in their turn."""
    gets: list[HttpAsked] = []

    async def play(asked: HttpAsked) -> Said:
        if asked.text == "good":
            return echoed(asked)
        plays.append(asked)
        return events(first)

    async def get(asked: HttpAsked) -> Said:
        if "last-event-id" not in asked.headers:
            return answer(405)
        gets.append(asked)
        said = resumed[min(len(gets), len(resumed)) - 1]
        return said if said is not None else events(echo_event(plays[0]))

    plays: list[HttpAsked] = []
    return play, get, gets


@pytest.mark.parametrize("retry", [b"", b"retry: 0\n"])
async def test_a_calls_stream_is_taken_up_by_id_and_its_result_is_not_lost(retry: bytes) -> None:
    """A proxy that cuts long answers would cost their results."""
    passing = Time()
    cut = EVENTS + b'id: \xc3\xa4-2\ndata:\n\nid: 3\ndata: {"jsonrpc": "2.0", "id": 3, "resu'

    async def cut_off() -> Any:
        yield cut

    play, get, gets = broken_off(cut, None, first=b"id: 1\n" + retry + b"data:\n\n")

    async def got(asked: HttpAsked) -> Said:
        said = await get(asked)
        return cut_off() if said == cut else said

    async with calling(play, got, timing=passing.timing) as caller:
        assert isinstance(await caller.call("late"), SplitResult)
        assert [asked.headers["last-event-id"].encode("utf-8", "surrogateescape") for asked in gets] == [
            b"1",
            b"\xc3\xa4-2",
        ]
        assert {asked.headers["mcp-session-id"] for asked in gets} == {"session-1"}
        assert all(ANSWERING.first_s <= pause_s <= MAX_RETRY_S for pause_s in passing.pauses), passing.pauses


async def test_a_call_is_taken_up_as_often_as_its_server_likes() -> None:
    """A server that has its clients poll would lose the results of long calls after some hundred times."""
    passing = Time()
    empty = answer(200, b"id: 2\n\n", content_type="text/event-stream")
    play, get, gets = broken_off(*[empty] * 200, None)
    async with calling(play, get, timing=passing.timing) as caller:
        assert isinstance(await caller.call("late"), SplitResult)
        assert len(gets) == 201
        assert passing.now >= 190 * ANSWERING.longest_s, "but not as soon as it likes"


@pytest.mark.parametrize(
    ("said", "code", "tries"),
    [
        (answer(405), "server_lost", 1),
        (answer(404), "session_gone", 1),
        (answer(401), "auth_needed", 1),
        (answer(503), "server_lost", MAX_TRIES),
        (answer(200, b"{}", content_type="application/json"), "server_lost", 1),
    ],
)
async def test_a_call_that_cannot_be_taken_up_says_so(said: bytes, code: str, tries: int) -> None:
    """It would wait until its deadline, or look as if it had not been carried out."""
    passing = Time()
    play, get, gets = broken_off(said)
    async with calling(play, get, timing=passing.timing) as caller:
        fault = await caller.fault("late")
        assert (fault.code, fault.delivery, len(gets)) == (code, Delivery.UNKNOWN, tries)
        if code == "server_lost":
            assert isinstance(await caller.call("good"), SplitResult)
        else:
            await caller.is_lost.wait()
            assert caller.loss is not None
            assert caller.loss.code == code


@pytest.mark.parametrize(
    "head", [EVENTS, b"HTTP/1.1 200 Played\r\nx: ", EVENTS.replace(b"text/event-stream", b"application/json")]
)
async def test_a_call_that_is_given_up_leaves_no_connection(head: bytes) -> None:
    """A hundred calls that ran into their deadline would be all the connections that there are."""
    closed, begun = anyio.Event(), anyio.Event()

    async def endless() -> Any:
        try:
            yield head
            begun.set()
            while True:
                yield b":\n" if head is EVENTS else b"x"
                await anyio.sleep(0.01)
        finally:
            closed.set()

    async def play(asked: HttpAsked) -> Said:
        return endless() if asked.text == "bad" else echoed(asked)

    async with calling(play) as caller:
        number = caller.begin("bad")
        await begun.wait()
        caller.server.cancel(number, "too late")
        await closed.wait()
        assert isinstance(await caller.call("good"), SplitResult)


async def test_a_notification_that_is_not_taken_holds_up_no_call() -> None:
    """All calls after a cancelled one would wait for it."""
    held = anyio.Event()

    async def silent() -> Any:
        held.set()
        await anyio.sleep_forever()
        yield b""

    async def play(asked: HttpAsked) -> Said:
        return events(b":\n") if asked.text == "bad" else echoed(asked)

    def takes(asked: HttpAsked) -> Said:
        return silent() if asked.message.get("method") == "notifications/roots/list_changed" else None

    async with calling(play, notes=takes) as caller:
        caller.server.tell("notifications/roots/list_changed", b"")
        await held.wait()
        assert isinstance(await caller.call("good"), SplitResult)


async def test_a_call_that_is_given_up_is_not_taken_up_any_more() -> None:
    """A server could have us come back for ever for a call that nobody waits for."""
    passing = Time()
    play, get, gets = broken_off(answer(200, b"id: 2\n\n", content_type="text/event-stream"))
    async with calling(play, get, timing=passing.timing) as caller:
        number = caller.begin("late")
        await eventually_async(lambda: len(gets) > 3)
        caller.server.cancel(number, "too late")
        assert isinstance(await caller.call("good"), SplitResult)
        count = len(gets)
        for _ in range(5):
            assert isinstance(await caller.call("good"), SplitResult)
        assert len(gets) <= count + 1


async def test_a_standing_stream_that_only_pings_is_no_news_to_the_supervisor() -> None:
    """Each ping of each server would wake it."""
    passing = Time()
    said = b": ping\n\nid: 1\n\nevent: ping\ndata: {}\n\n" * 1_000
    opened: list[str | None] = []

    async def get(asked: HttpAsked) -> Said:
        opened.append(asked.headers.get("last-event-id"))
        return events(said, event(CHANGED), said) if len(opened) == 1 else answer(405)

    async with calling(play_echo, get, timing=passing.timing) as caller:
        await eventually_async(lambda: len(opened) > 1)
        assert isinstance(await caller.call("good"), SplitResult)
        assert caller.news == [ListChanged("tools")]
        assert opened == [None, "1"]


# The session, its headers, and both eras


async def test_a_session_is_named_in_every_request_and_ended_with_the_run() -> None:
    """A server would refuse all that follows the greeting, or keep sessions of clients that are long gone."""
    asked: list[HttpAsked] = []

    def note(one: HttpAsked) -> Said:
        asked.append(one)
        return None

    async with calling(play_echo, notes=note) as caller:
        assert isinstance(await caller.call("x"), SplitResult)
    methods = [one.message.get("method", one.method) for one in asked if one.method != "GET"]
    assert methods == ["initialize", "notifications/initialized", "tools/call", "DELETE"]
    named = [(one.headers.get("mcp-session-id"), one.headers.get("mcp-protocol-version")) for one in asked]
    assert named[0] == (None, None)
    assert set(named[1:]) == {("session-1", "2025-11-25")}
    assert {one.headers["accept-encoding"] for one in asked} == {"gzip, deflate"}


async def test_nothing_is_asked_before_the_server_knows_that_it_is_greeted() -> None:
    """A strict server would refuse the first list and calls."""
    asked: list[str] = []
    release = anyio.Event()

    async def taken_late() -> Any:
        await release.wait()
        yield answer(202)

    def note(one: HttpAsked) -> Said:
        asked.append(one.message.get("method", one.method))
        return taken_late() if asked[-1] == "notifications/initialized" else None

    async with calling(play_echo, notes=note) as caller, anyio.create_task_group() as tasks:
        tasks.start_soon(caller.call, "x")
        await eventually_async(lambda: "notifications/initialized" in asked)
        await turns(200)
        assert "tools/call" not in asked
        release.set()


@pytest.mark.parametrize("given", ["\u00e9", "a b", ""])
async def test_a_session_id_that_no_header_can_hold_is_none(given: str) -> None:
    """Each request would fail in our own hands."""
    asked: list[HttpAsked] = []

    def note(one: HttpAsked) -> Said:
        asked.append(one)
        if one.message.get("method") != "initialize":
            return None
        return result(one, INITIALIZED).replace(b"session-1", given.encode("latin-1"))

    async with calling(play_echo, notes=note) as caller:
        assert isinstance(await caller.call("x"), SplitResult)
    assert not any("mcp-session-id" in one.headers for one in asked)


async def test_a_modern_server_is_told_in_headers_what_a_request_is_about() -> None:
    """A proxy before the server could not tell whose task or tool it is."""
    asked: list[HttpAsked] = []

    def note(one: HttpAsked) -> Said:
        asked.append(one)
        match one.message.get("method"):
            case "initialize":
                return answer(400, b"{}", content_type="application/json")
            case "server/discover":
                return result(one, DISCOVERED)
            case "tasks/get":
                return result(one, {"result": {"resultType": "complete", "taskId": "1"}})
            case _:
                return None

    async with calling(play_echo, notes=note, protocol="2026-07-28") as caller:
        assert isinstance(await caller.call("x"), SplitResult)
        caller.server.ask(Forward(99, 5.0, "tasks/get"), '{"taskId":"\u00e4"}'.encode())
        await eventually_async(lambda: asked[-1].message.get("method") == "tasks/get")
    told = [
        (one.headers.get("mcp-method"), one.headers.get("mcp-name"), one.headers.get("mcp-protocol-version"))
        for one in asked
    ]
    assert told == [
        ("server/discover", None, "2026-07-28"),
        ("tools/call", "echo", "2026-07-28"),
        ("tasks/get", "=?base64?w6Q=?=", "2026-07-28"),
    ]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("file:///a b", "file:///a b"),
        (" a", "=?base64?IGE=?="),
        ("a\n", "=?base64?YQo=?="),
        ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ("", ""),
    ],
)
def test_a_name_is_written_so_that_a_header_holds_it(text: str, written: str) -> None:
    """A name with a line break would become another header."""
    assert header_value(text) == written


async def test_what_a_modern_call_was_given_up_for_is_told_by_closing_its_stream_alone() -> None:
    """A server of that era takes no notification, and would answer each with an error."""
    asked: list[HttpAsked] = []
    closed = anyio.Event()

    async def stream() -> Any:
        try:
            yield EVENTS
            while True:
                yield b":\n"
                await anyio.sleep(0.01)
        finally:
            closed.set()

    async def play(one: HttpAsked) -> Said:
        return stream()

    def note(one: HttpAsked) -> Said:
        asked.append(one)
        return result(one, DISCOVERED) if one.message.get("method") == "server/discover" else None

    async with calling(play, notes=note, protocol="2026-07-28") as caller:
        number = caller.begin("x")
        await eventually_async(lambda: len(asked) == 2)
        caller.server.cancel(number, "enough")
        await closed.wait()
    assert [one.message["method"] for one in asked] == ["server/discover", "tools/call"]


@pytest.mark.parametrize("said", [answer(202), answer(204), answer(307, location="http://other.example/")])
async def test_an_answer_without_a_message_ends_its_call(said: bytes) -> None:
    """It would wait for its deadline."""
    async with calling(fails_with(said)) as caller:
        fault = await caller.fault("bad")
        assert (fault.code, fault.delivery) == ("web_page", Delivery.UNKNOWN)
        assert isinstance(await caller.call("good"), SplitResult)


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_server_that_broke_off_is_looked_for_once_more_before_it_is_lost(is_there: bool) -> None:
    """One broken connection would end a session, or a dead server look ready for ever."""

    def note(asked: HttpAsked) -> Said:
        return b"garbage\r\n\r\n" if asked.message.get("method") == "ping" and not is_there else None

    async with calling(fails_with(None), notes=note) as caller:
        assert (await caller.fault("bad")).code == "server_lost"
        if is_there:
            assert isinstance(await caller.call("good"), SplitResult)
            assert caller.loss is None
        else:
            await caller.is_lost.wait()
            assert caller.loss is not None
            assert (caller.loss.kind, caller.loss.code) == (FaultKind.TRANSPORT, "server_lost")


async def test_a_remote_server_that_cannot_be_reached_is_a_transport_fault_with_its_url() -> None:
    """A user would not know which address is wrong."""
    with anyio.fail_after(PATIENCE_S), pytest.raises(ServerFault, match=r"127\.0\.0\.1:9") as caught:
        await run_remote(OpenOrder(RemoteServer("http://127.0.0.1:9/mcp")), silent_run())
    record = caught.value.record
    assert (record.kind, record.code, record.delivery) == (FaultKind.TRANSPORT, "connect_failed", Delivery.NOT_SENT)
