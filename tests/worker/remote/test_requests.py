"""Calls through the SDK's session: results whole, errors told apart, and one call's trouble kept to itself."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import msgspec
import pytest
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError
from support.fleet.workers import CARD
from support.servers.greetings import LEGACY, MODERN, Answer, JsonObject
from support.servers.scripted_session import PATIENCE_S, ScriptedServer, scripted_session
from support.waiting import turns

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord
from quarterdeck_protocol.link.frames import Call, News, Progress
from quarterdeck_protocol.mcp.jsonrpc import SplitResult
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_worker.notifications import Notifier
from quarterdeck_worker.remote import requests as sdk_requests
from quarterdeck_worker.remote.requests import ListingError, SdkServer, list_items

pytestmark = pytest.mark.anyio

OK: JsonObject = {"result": {"content": [{"type": "text", "text": "ä", "x-own": 1}], "structuredContent": {"n": None}}}


class Desk:
    """A caller: begins calls and waits for their ends."""

    def __init__(self, server: SdkServer) -> None:
        self.server = server
        self.ended: dict[int, SplitResult | FaultRecord] = {}
        self._moved = anyio.Event()

    def begin(self, request_id: int, arguments: bytes = b"{}", *, progress: bool = False, meta: bytes = b"") -> None:
        """Begin a call of `echo`."""
        self.server.call(Call(request_id, 30.0, "echo", progress, meta), arguments, partial(self._done, request_id))

    def lists(self, request_id: int) -> None:
        """Begin to list."""
        self.server.list_items(request_id, "tools", partial(self._done, request_id))

    def _done(self, request_id: int, outcome: SplitResult | FaultRecord) -> None:
        assert request_id not in self.ended, "a request ended twice"
        self.ended[request_id] = outcome
        self._moved.set()

    async def end_of(self, request_id: int) -> SplitResult | FaultRecord:
        """How it ended."""
        with anyio.fail_after(PATIENCE_S):
            while request_id not in self.ended:
                self._moved = anyio.Event()
                await self._moved.wait()
        return self.ended[request_id]


@asynccontextmanager
async def open_calls(
    answer: Answer, era: str = LEGACY, max_bytes: int = 10_000, listed: Answer = None
) -> AsyncIterator[tuple[Desk, ScriptedServer, list[News]]]:
    """Calls to a scripted server, and the news that it gives."""
    news: list[News] = []

    def post(frame: News, body: bytes = b"") -> bool:
        news.append(frame)
        return True

    async with (
        scripted_session({"tools/call": answer, "tools/list": listed}, era) as (session, server),
        anyio.create_task_group() as tasks,
    ):
        notifier = Notifier(post, lambda: 0.0)
        yield Desk(SdkServer(CARD, session, tasks, notifier, max_bytes=max_bytes)), server, news
        tasks.cancel_scope.cancel()


async def test_a_result_comes_back_whole() -> None:
    """Members that the SDK does not know would be lost."""
    async with open_calls(OK) as (desk, server, _):
        desk.begin(1, b'{"a":[1,null]}', meta=b'{"k":{"deep":1}}')
        outcome = await desk.end_of(1)
        assert isinstance(outcome, SplitResult)
        assert msgspec.json.decode(outcome.body) == OK["result"]
        params = server.asked[0]["params"]
        assert (params["name"], params["arguments"], params["_meta"]) == ("echo", {"a": [1, None]}, {"k": {"deep": 1}})


async def test_a_modern_result_loses_its_envelope_only() -> None:
    """A legacy client would be shown another era's keys, or lose the server's own."""
    meta = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}, "own": 1}
    answer = {"result": {"resultType": "complete", "content": [], "isError": True, "_meta": meta}}
    async with open_calls(answer, MODERN) as (desk, _, _):
        desk.begin(1)
        outcome = await desk.end_of(1)
        assert isinstance(outcome, SplitResult)
        assert outcome.is_error
        assert msgspec.json.decode(outcome.body) == {"content": [], "isError": True, "_meta": {"own": 1}}


@pytest.mark.parametrize(
    ("answer", "kind", "code", "delivery", "words"),
    [
        (
            {"error": {"code": -32602, "message": "bad", "data": [1]}},
            FaultKind.TOOL_ERROR,
            "reply_error",
            Delivery.ANSWERED,
            "bad (JSON-RPC error -32602): [1]",
        ),
        (
            {"error": {"code": -32000, "message": "closed"}},
            FaultKind.TOOL_ERROR,
            "server_lost",
            Delivery.UNKNOWN,
            "closed",
        ),
        ({"result": {"content": "text"}}, FaultKind.TOOL_ERROR, "bad_output", Delivery.ANSWERED, "content"),
        (
            {"result": {"content": [], "structuredContent": {"n": float("nan")}}},
            FaultKind.TOOL_ERROR,
            "bad_output",
            Delivery.ANSWERED,
            "JSON",
        ),
        (
            {"result": {"content": [{"type": "text", "text": "x" * 20_000}]}},
            FaultKind.TOOL_ERROR,
            "bad_output",
            Delivery.ANSWERED,
            "limit",
        ),
        (
            {"result": {"content": [{"type": "text", "text": "\ud800"}]}},
            FaultKind.TOOL_ERROR,
            "bad_output",
            Delivery.ANSWERED,
            "surrogates",
        ),
    ],
    ids=["refusal", "closed", "bad shape", "NaN", "too large", "not Unicode"],
)
async def test_every_other_answer_is_a_fault_that_says_what_it_was(
    answer: Answer, kind: FaultKind, code: str, delivery: Delivery, words: str
) -> None:
    """A caller could not tell a refusal from a broken server, or would get bytes that break its stream."""
    async with open_calls(answer) as (desk, _, _):
        desk.begin(1)
        fault = await desk.end_of(1)
        assert isinstance(fault, FaultRecord)
        assert (fault.kind, fault.code, fault.delivery) == (kind, code, delivery)
        assert words in fault.message


async def test_a_cancelled_call_is_called_off_and_the_others_go_on() -> None:
    """The server would work for nobody, or one caller's cancel would end another's call."""
    async with open_calls(lambda params: OK if params["arguments"] else None) as (desk, server, _):
        desk.begin(1)
        await server.until("tools/call")
        assert desk.server.cancel(1, "enough")
        note = await server.until("notifications/cancelled")
        assert note["params"]["requestId"] == server.asked[0]["id"]
        desk.begin(2, b'{"now":1}')
        assert isinstance(await desk.end_of(2), SplitResult)
        assert 1 not in desk.ended
        assert not desk.server.cancel(1, "again")
        assert not desk.server.cancel(2, "late")


async def test_a_call_cancelled_before_its_task_ran_is_never_sent() -> None:
    """The server would be asked for what nobody wants any more."""
    async with open_calls(OK) as (desk, server, _):
        desk.begin(1)
        assert desk.server.cancel(1, "at once")
        desk.begin(2)
        await desk.end_of(2)
        assert server.methods == ["tools/call"]
        assert 1 not in desk.ended


@pytest.mark.parametrize("wanted", [True, False])
async def test_progress_is_passed_on_when_it_is_wanted(wanted: bool) -> None:
    """A client would not see how far its call is, or a server would tell it for nothing."""
    async with open_calls(None) as (desk, server, news):
        desk.begin(7, progress=wanted)
        request = await server.until("tools/call")
        token = request["params"].get("_meta", {}).get("progressToken")
        assert (token is not None) is wanted
        note = {"progressToken": token if wanted else 1, "progress": 1.0, "total": 2.0, "message": "half"}
        await server.say({"method": "notifications/progress", "params": note})
        await server.say({"id": request["id"], **OK})
        await desk.end_of(7)
        assert news == ([Progress(7, 1.0, 2.0, "half")] if wanted else [])


@pytest.mark.parametrize(
    ("arguments", "meta"),
    [(b"[1]", b""), (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, b""), (b"{}", b"[1]")],
    ids=["not an object", "too deep", "bad meta"],
)
async def test_arguments_that_the_sdk_refuses_end_that_call_alone(arguments: bytes, meta: bytes) -> None:
    """One caller's odd arguments would end every other call, and the session."""
    async with open_calls(OK) as (desk, _, _):
        desk.begin(1, arguments, meta=meta)
        desk.begin(2)
        assert isinstance(await desk.end_of(1), FaultRecord)
        assert isinstance(await desk.end_of(2), SplitResult)


def tool(name: str, **members: object) -> JsonObject:
    """A tool object as a server writes it."""
    return {"name": name, "inputSchema": {"type": "object"}, **members}


def page(*tools: JsonObject, following: str | None = None) -> JsonObject:
    """A page of a list."""
    return {"result": {"tools": list(tools), **({"nextCursor": following} if following is not None else {})}}


async def listed(*pages: JsonObject, era: str = LEGACY) -> tuple[list[JsonObject], list[JsonObject]]:
    """The tools of a server with these pages, and the params of each request."""
    left = iter(pages)
    async with scripted_session({"tools/list": lambda _: next(left)}, era) as (session, server):
        body = await list_items(session, "tools")
        return json.loads(body), [message.get("params") or {} for message in server.asked]


async def refused(*pages: JsonObject) -> ListingError | MCPError:
    """Why the list of a server with these pages cannot be taken."""
    left = iter(pages)
    async with scripted_session({"tools/list": lambda _: next(left)}, LEGACY) as (session, _):
        with pytest.raises((ListingError, MCPError)) as caught:
            await list_items(session, "tools")
        return caught.value


async def test_every_page_is_asked_for_and_every_tool_is_kept_whole() -> None:
    """Tools of later pages, or members that we do not know, would be missing."""
    odd = tool("a", **{"x-own": [1, None], "title": "Ä", "_meta": {"k": "v"}})
    tools, params = await listed(page(odd, tool("b"), following="2"), page(following="3"), page(tool("c")))
    assert tools == [odd, tool("b"), tool("c")]
    assert [asked.get("cursor") for asked in params] == [None, "2", "3"]


async def test_an_empty_list_and_an_empty_cursor_end_the_list() -> None:
    """A server without tools would be an error."""
    assert (await listed(page()))[0] == []
    assert len((await listed(page(tool("a"), following=""), page(tool("b"))))[0]) == 2


async def test_a_modern_server_is_asked_in_its_envelope() -> None:
    """Modern servers would refuse to list."""
    complete = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": [tool("a")]}
    tools, params = await listed({"result": complete}, era=MODERN)
    assert [row["name"] for row in tools] == ["a"]
    assert params[0]["_meta"]["io.modelcontextprotocol/protocolVersion"] == MODERN


@pytest.mark.parametrize(
    ("pages", "code"),
    [
        ([page(following="x"), page(following="x")], "too_many_pages"),
        ([page(following=str(number)) for number in range(5)], "too_many_pages"),
        ([page(*map(tool, "abcde"))], "too_many_tools"),
        ([page(tool("a", description="x" * 2_000))], "too_many_tools"),
        ([{"result": {"tools": "none"}}], "bad_output"),
        ([{"result": {}}], "bad_output"),
        ([page(following="x" * 70_000)], "bad_output"),
    ],
    ids=["a cycle", "no end", "too many", "too large", "not a list", "no tools", "a cursor without an end"],
)
async def test_a_list_that_cannot_be_taken_is_an_error_with_a_code(
    pages: list[JsonObject], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile list would take all memory, or never end."""
    monkeypatch.setattr(sdk_requests, "MAX_PAGES", 4)
    monkeypatch.setattr(sdk_requests, "MAX_ITEMS", 4)
    monkeypatch.setattr(sdk_requests, "MAX_LIST_BYTES", 1_000)
    error = await refused(*pages)
    assert isinstance(error, ListingError)
    assert error.code == code


async def test_a_refusal_is_the_servers_own_error() -> None:
    """A user would not learn why the server does not list."""
    error = await refused({"error": {"code": -1, "message": "not now"}})
    assert isinstance(error, MCPError)
    assert "not now" in str(error)


async def test_one_broken_tool_is_left_for_the_supervisor_to_judge() -> None:
    """One bad tool would cost the whole list."""
    broken = {"name": 7, "inputSchema": "none"}
    assert (await listed(page(tool("a"), broken)))[0] == [tool("a"), broken]


async def test_text_that_is_no_unicode_is_replaced() -> None:
    """One broken description would cost the whole list."""
    tools, _ = await listed(page(tool("a", description="x\ud800y")))
    assert tools[0]["description"] == "x?y"


async def test_a_number_that_json_does_not_know_costs_at_most_its_own_tool() -> None:
    """A remote server's one NaN would cost its whole list, for the supervisor cannot read it."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is no JSON")

    async with scripted_session({"tools/list": page(tool("a", weight=float("nan")), tool("b"))}, LEGACY) as (
        session,
        _,
    ):
        body = await list_items(session, "tools")
    assert json.loads(body, parse_constant=refuse)[-1]["name"] == "b"


def test_errors_are_told_in_one_line() -> None:
    """A validation error's report would fill a screen."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(dict[str, int]).validate_python({"a": "x", "b": "y"})
    assert plain_words(caught.value) == "a: must be a whole number"
    assert plain_words(ValueError("one\ntwo")) == "one"


async def test_a_list_is_a_request_like_another() -> None:
    """A remote server's tools could not be had."""
    async with open_calls(None, listed=page(tool("a"))) as (desk, _, _):
        desk.lists(1)
        outcome = await desk.end_of(1)
        assert isinstance(outcome, SplitResult)
        assert json.loads(outcome.body) == [tool("a")]


@pytest.mark.parametrize(
    ("answer", "code"),
    [({"result": {}}, "bad_output"), ({"error": {"code": -1, "message": "not now"}}, "reply_error")],
)
async def test_a_list_without_a_result_ends_as_a_fault(answer: JsonObject, code: str) -> None:
    """Whoever asked would wait for the deadline."""
    async with open_calls(None, listed=answer) as (desk, _, _):
        desk.lists(1)
        fault = await desk.end_of(1)
        assert isinstance(fault, FaultRecord)
        assert (fault.code, fault.delivery) == (code, Delivery.ANSWERED)


async def test_a_list_cancelled_before_it_began_ends_for_nobody() -> None:
    """A request would be answered twice."""
    async with open_calls(None, listed=page()) as (desk, server, _):
        desk.lists(1)
        assert desk.server.cancel(1, "at once")
        await turns()
        assert (desk.ended, server.asked) == ({}, [])
