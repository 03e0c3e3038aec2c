"""What passes between clients and a server: any request, its own errors, its news, its log's level, subscriptions."""

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import msgspec
import pytest
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_dual_era_loop, serve_loop
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, JSONRPCError, jsonrpc_message_adapter
from support.fleet.answers import ME, Answering, Waiter
from support.fleet.endpoints import CLOSED, READY, Stage, stage
from support.waiting import turns

from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord, ReplyError
from quarterdeck_protocol.link.frames import Call, Forward, Log, Note, ServerCard, Tell
from quarterdeck_protocol.offers import LogLine, News, RawRequest, ServerNote
from quarterdeck_protocol.tools import RawCall, WireResult

CAN = b'{"tools":{},"resources":{"subscribe":true},"logging":{}}'
OLDER = ServerCard("2025-11-25", capabilities=CAN)
NEWER = ServerCard("2026-07-28", capabilities=CAN)
READ = RawRequest("resources/read", b'{"uri":"file:///a"}', client=ME)


@asynccontextmanager
async def ready(card: ServerCard = OLDER) -> AsyncIterator[tuple[Stage, ServerEndpointImpl, list[News]]]:
    async with stage(READY, card=card) as played:
        news: list[News] = []
        played.endpoint.tell_news = news.append
        yield played, played.endpoint, news


async def ended(waiter: Waiter) -> Any:
    return await waiter.ended


def uri(name: str) -> bytes:
    return msgspec.json.encode({"uri": name})


async def test_a_request_goes_as_it_is_and_its_result_comes_back_whole() -> None:
    """Whatever we do not know of a request or a result would be lost."""
    async with ready() as (played, endpoint, _):
        request = RawRequest("things/of-tomorrow", b'{"x":[1.0]}', b'{"m":1}', 7.5, lambda _: None, ME)
        waiter = Waiter(partial(endpoint.forward, request))
        frame, body = await played.worker.next(Forward)
        assert frame == Forward(frame.request_id, 7.5, "things/of-tomorrow", progress=True, meta=b'{"m":1}')
        assert body == b'{"x":[1.0]}'
        played.worker.answer(frame, b'{"content":7}', era="2025-11-25", result_type="of-tomorrow", denied="read /a")
        end = await ended(waiter)
        assert isinstance(end, WireResult)
        assert (end.body, end.era, end.result_type) == (b'{"content":7}', "2025-11-25", "of-tomorrow")
        assert end.denied == "read /a", "the table of calls would not know what was denied"


async def test_a_servers_error_comes_back_as_it_said_it() -> None:
    """A client branches on codes and data that would be buried in our words."""
    async with ready() as (played, endpoint, _):
        waiter = Waiter(partial(endpoint.forward, READ))
        frame, _ = await played.worker.next(Forward)
        reply = ReplyError(-32002, "Resource not found", b'{"uri":"file:///a"}')
        said = FaultRecord(FaultKind.TOOL_ERROR, "no", "reply_error", Delivery.ANSWERED, reply=reply, denied="read /a")
        played.worker.fail(frame, said)
        fault = await ended(waiter)
        assert (fault.reply, fault.server, fault.code, fault.denied) == (reply, "fs", "reply_error", "read /a")


async def test_a_newer_server_is_told_what_this_very_caller_can_be_asked() -> None:
    """It would ask one who cannot answer, or refuse one who can."""
    async with ready(NEWER) as (played, endpoint, _):
        asker = Answering(b'{"roots":{}}', bridges=False)
        endpoint.forward(RawRequest("prompts/get", b"{}", client=ME, answerer=asker, log_level="error"), lambda _: None)
        frame, _ = await played.worker.next(Forward)
        assert (frame.capabilities, frame.log_level) == (b'{"roots":{}}', "error")
        endpoint.begin(RawCall("t", b"{}", client=ME, answerer=asker), lambda _: None)
        call, _ = await played.worker.next(Call)
        assert (call.capabilities, call.log_level) == (b'{"roots":{}}', "")


@pytest.mark.parametrize(("serve", "answer"), [(serve_loop, {}), (serve_dual_era_loop, INVALID_REQUEST)])
async def test_a_server_is_asked_for_its_eras_with_a_request_that_every_older_one_knows(
    serve: Callable[..., Awaitable[None]], answer: object
) -> None:
    """A hundred lines about a method that no client asked for would be the last that an older server wrote."""
    async with ready() as (played, endpoint, _):
        Waiter(partial(endpoint.ask_era, timeout_s=5.0))
        frame, _ = await played.worker.next(Forward)
    assert frame.method == "ping"
    asked = {"jsonrpc": "2.0", "id": 1, "method": frame.method, "params": {"_meta": json.loads(frame.meta)}}
    assert await said_by_sdk(serve, asked) == answer


async def said_by_sdk(serve: Callable[..., Awaitable[None]], asked: dict[str, Any]) -> object:
    """The result of the SDK's server on a legacy connection, or the code of its error."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    async with (
        create_client_server_memory_streams() as ((reading, writing), theirs),
        anyio.create_task_group() as group,
    ):
        group.start_soon(partial(serve, Server("s"), *theirs, lifespan_state={}))
        for message in (hello, {"jsonrpc": "2.0", "method": "notifications/initialized"}, asked):
            await writing.send(SessionMessage(jsonrpc_message_adapter.validate_python(message)))
        answers = [(await reading.receive()).message for _ in (hello, asked)]
        group.cancel_scope.cancel()
    last = answers[-1]
    return last.error.code if isinstance(last, JSONRPCError) else last.result


@pytest.mark.parametrize(("card", "is_told"), [(OLDER, False), (NEWER, True)])
async def test_answers_that_come_with_a_request_are_for_newer_servers(card: ServerCard, *, is_told: bool) -> None:
    """A server of an older era would refuse a request for members that its revision does not know."""
    own, answers = {"name": "t", "arguments": {"requestState": 1}}, {"inputResponses": {"k": {}}, "requestState": "s"}
    async with ready(card) as (played, endpoint, _):
        endpoint.forward(RawRequest("tools/call", msgspec.json.encode(own | answers), client=ME), lambda _: None)
        _, body = await played.worker.next(Forward)
        assert json.loads(body) == (own | answers if is_told else own)


@pytest.mark.parametrize("card", [OLDER, NEWER])
async def test_a_plain_call_carries_nothing_more_than_it_did(card: ServerCard) -> None:
    """Calls of plain tools would cost more."""
    async with ready(card) as (played, endpoint, _):
        endpoint.begin(RawCall("t", b"{}", client=ME), lambda _: None)
        call, _ = await played.worker.next(Call)
        assert call == Call(call.request_id, 20.0, "t")


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("initialize", b"{}", "bad_arguments"),
        ("logging/setLevel", b"{}", "bad_arguments"),
        ("resources/subscribe", b"{}", "bad_arguments"),
        ("subscriptions/listen", b"{}", "bad_arguments"),
        ("tools/call", b'{"name":"secret-one"}', "unknown_tool"),
    ],
)
async def test_what_is_of_the_connection_or_hidden_is_not_passed_on(method: str, params: bytes, code: str) -> None:
    """One client would silence the log of all, or call a tool that the configuration hides."""
    async with ready() as (played, endpoint, _):
        fault = await ended(Waiter(partial(endpoint.forward, RawRequest(method, params, client=ME))))
        assert (fault.code, fault.delivery) == (code, Delivery.NOT_SENT)
        assert played.worker.asked.empty()


async def test_nothing_is_asked_of_a_server_that_is_not_there() -> None:
    """A request would wait for an answer that never comes."""
    async with stage(CLOSED) as played:
        assert (await ended(Waiter(partial(played.endpoint.forward, READ)))).code == "not_connected"
        played.endpoint.tell("notifications/roots/list_changed")
        played.endpoint.unsubscribe(ME, "file:///a")
        played.endpoint.set_level(ME, "debug")
        played.endpoint.leave(ME)


async def test_a_completion_is_as_long_as_the_protocol_allows() -> None:
    """Strict clients would refuse the answer."""
    async with ready() as (played, endpoint, _):
        waiter = Waiter(partial(endpoint.forward, RawRequest("completion/complete", b"{}", client=ME)))
        frame, _ = await played.worker.next(Forward)
        played.worker.answer(frame, json.dumps({"completion": {"values": ["x"] * 10_000}}).encode())
        assert len(json.loads((await ended(waiter)).body)["completion"]["values"]) == 100


# News


async def test_news_are_told_with_those_whom_they_may_be_meant_for(caplog: pytest.LogCaptureFixture) -> None:
    """A client would be shown the log lines of another's call, or none."""
    caplog.set_level(logging.DEBUG)
    async with ready() as (played, endpoint, news):
        played.worker.says(Log("error", "db"), b'"free"')
        await turns()
        endpoint.begin(RawCall("t", b"{}", client=ME), lambda _: None)
        await played.worker.next(Call)
        played.worker.says(Log("info", ""), b'{"a":[1]}')
        played.worker.says(Note("notifications/of-tomorrow"), b'{"x":"1"}')
        played.worker.says(Note("notifications/tasks/status"), b'{"taskId":"nobody\'s"}')
        played.worker.says(Note("notifications/bare"))
        await turns()
        assert news == [
            LogLine("fs", "error", "db", b'"free"'),
            LogLine("fs", "info", "", b'{"a":[1]}', frozenset({"door-1"})),
            ServerNote("fs", "notifications/of-tomorrow", b'{"x":"1"}', frozenset({"door-1"})),
            ServerNote("fs", "notifications/bare", b"", frozenset({"door-1"})),
        ]
        assert 'fs says: {"a":[1]}' in caplog.text


@pytest.mark.parametrize(
    ("frame", "body"),
    [
        (Log("info", ""), b""),
        (Note("x"), b"[]"),
    ],
)
async def test_a_worker_that_passes_on_what_it_must_not_is_killed(frame: Log | Note, body: bytes) -> None:
    """A hostile worker would write into every client's stream."""
    async with ready() as (played, endpoint, news):
        played.worker.says(frame, body)
        await played.until(lambda: endpoint.phase is EndpointPhase.FAULTED)
        assert (endpoint.fault is not None and endpoint.fault.code, news) == ("protocol_violation", [])


async def test_an_older_server_is_told_what_clients_say_and_a_newer_one_is_not() -> None:
    """A server would work with the roots of yesterday; the newer era knows no such word."""
    for card, count in ((OLDER, 1), (NEWER, 0)):
        async with ready(card) as (played, endpoint, _):
            endpoint.tell("notifications/roots/list_changed")
            await turns()
            assert played.worker.told.qsize() == count
            if count:
                assert await played.worker.next_told() == (Tell("notifications/roots/list_changed"), b"{}")
