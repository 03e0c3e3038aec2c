"""The SDK's session is the measure: the same conversation through it and through a relay is the same JSON.

Both speak with the same script of a server.  What each of them wrote is compared message by message, ids apart; so is
what each made of the answers, the era's envelope apart.  The greeting is the one that remote servers get.
"""

import json
from typing import Any

import anyio
import mcp_types as types
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp.client.subscriptions import listen
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError
from support.clients.direct_client import without_envelope
from support.clients.sdk_greeting import greet, list_all
from support.schemas.json_values import json_values
from support.servers.greetings import DISCOVERED, LEGACY, MODERN, Answer, JsonObject
from support.servers.scripted_session import scripted_session

from quarterdeck_protocol.mcp.client import HANDSHAKE_REVISIONS, events
from quarterdeck_protocol.mcp.client.greeting import LISTS

from .relays import ANSWERS, Talk, initialized, unsupported

US = types.Implementation(name="us", version="1")
RAW: TypeAdapter[Any] = TypeAdapter(dict[str, Any])


def comparable(messages: list[JsonObject]) -> list[JsonObject]:
    bare: list[JsonObject] = json.loads(json.dumps(messages))
    for message in bare:
        message["id"] = "id" in message
        params = message.get("params", {})
        if "progressToken" in (meta := params.get("_meta", {})):
            meta["progressToken"] = "token"
        if message.get("method") == "notifications/cancelled":
            message["params"] = {"requestId": "id"}  # the SDK gives another reason, and no envelope
    return bare


# The greeting


def discovered(**members: object) -> JsonObject:
    return {"result": {**DISCOVERED["result"], **members}}


ERROR: JsonObject = {"error": {"code": -32000, "message": "not today"}}
UNKNOWN: JsonObject = {"error": {"code": -32601, "message": "no such method"}}
ODD_INFO = {"io.modelcontextprotocol/serverInfo": {"name": 7}}
CAPABLE = {"tools": {"listChanged": True}, "prompts": {}, "x": {"y": [1]}}

DISCOVERIES: list[JsonObject] = [
    *(
        discovered(),
        discovered(capabilities=CAPABLE, instructions="i"),
        discovered(_meta=ODD_INFO),
        discovered(_meta={}),
    ),
    *(discovered(supportedVersions=[]), discovered(supportedVersions=[LEGACY]), discovered(supportedVersions=7)),
    *(discovered(supportedVersions=["2099-01-01", MODERN, LEGACY]), discovered(ttlMs=-5), {"result": {}}),
    *(unsupported(), unsupported(LEGACY), unsupported(MODERN), unsupported("2099-01-01", "1999-01-01")),
    *(ERROR, UNKNOWN, {"error": {"code": -32022, "message": "no"}}),
]
HANDSHAKES: list[JsonObject] = [
    *(initialized(protocolVersion=revision) for revision in (*HANDSHAKE_REVISIONS, MODERN, "1999-01-01")),
    *(initialized(_meta=None), initialized(capabilities=None), initialized(instructions=7)),
    *(initialized(instructions=None), initialized(capabilities=CAPABLE), initialized(serverInfo={"name": "a"})),
    *(unsupported(MODERN), unsupported("2099-01-01"), ERROR, UNKNOWN, {"result": {}}),
]


async def sdk_greeting(answers: dict[str, Answer], forced: str | None) -> tuple[tuple[Any, ...] | None, list[Any]]:
    """Who the server is to the SDK, None where the greeting fails, and what it heard."""
    async with scripted_session(answers, client_info=US, log_level="info") as (session, server):
        try:
            await greet(session, forced)
        except (MCPError, RuntimeError, ValidationError):
            return None, comparable(server.asked)
        if session.protocol_version != MODERN:
            await server.until("notifications/initialized")
        info = session.server_info or types.Implementation(name="", version="")
        lists = {name: getattr(session.server_capabilities, name, None) for name in LISTS}
        announces = {name for name, each in lists.items() if each is not None and each.list_changed}
        who = (info.name, info.version, session.instructions or "", info.title or "", announces)
        return (session.protocol_version, *who), comparable(server.asked)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    discovery=st.sampled_from(DISCOVERIES),
    handshake=st.sampled_from(HANDSHAKES),
    forced=st.sampled_from([None, None, *HANDSHAKE_REVISIONS, MODERN]),
)
def test_a_server_is_greeted_over_lines_as_by_the_sdks_session(
    discovery: JsonObject, handshake: JsonObject, forced: str | None
) -> None:
    """A server that every other client can use would not start here, or be spoken to in another way."""
    answers: dict[str, Answer] = {"server/discover": discovery, "initialize": handshake}
    card, heard = anyio.run(sdk_greeting, answers, forced)
    talked = Talk(answers, forced=forced)
    said = comparable(talked.heard)
    if card is None and talked.relay.server is None and forced in HANDSHAKE_REVISIONS:
        heard = heard[:1]  # the SDK agrees, then the revision is looked at
    assert said == heard
    server = talked.relay.server
    assert (server is None) is (card is None)
    if server is not None:
        who = (server.name, server.version, server.instructions, server.title, server.announces)
        assert (server.era, *who) == card


# Requests

VALUES = json_values(max_leaves=6)
OBJECTS = st.dictionaries(st.text('abcxyz äß"\\\n', max_size=4), VALUES, max_size=3)
PRESENT = VALUES.filter(lambda value: value is not None)
METAS = st.none() | st.dictionaries(st.sampled_from(["traceparent", "own/key", "x"]), PRESENT, min_size=1, max_size=2)
"""The SDK leaves out what is null in a `_meta`; we leave it in."""

BLOCK: JsonObject = {
    "type": "text",
    "text": "hi",
    "annotations": {"audience": ["user"]},
    "_meta": {"k": None},
    "odd": 1,
}
LINK: JsonObject = {"type": "resource_link", "uri": "file:///a", "name": "a"}

RESULTS: dict[str, list[JsonObject]] = {
    "tools/call": [
        {"content": []},
        {"content": [BLOCK, LINK], "structuredContent": {"n": None}, "isError": False, "own": [1]},
        {"content": [BLOCK], "isError": True, "_meta": {"own": {}}},
    ],
    "resources/read": [{"contents": [{"uri": "file:///a", "text": "x", "odd": 1}]}, {"contents": []}],
    "prompts/get": [{"messages": [{"role": "user", "content": BLOCK}], "description": "d"}],
    "completion/complete": [{"completion": {"values": ["a"], "total": 1, "hasMore": False}}],
}
INPUT_REQUIRED: JsonObject = {
    "resultType": "input_required",
    "inputRequests": {"k": {"method": "roots/list"}},
    "requestState": "s",
}
REFUSALS: list[JsonObject] = [
    {"error": {"code": -32602, "message": "bad", "data": {"why": ["x", None]}}},
    {"error": {"code": 7, "message": ""}},
]


def request_of(method: str, arguments: JsonObject, meta: JsonObject | None) -> types.Request[Any, Any]:
    of = types.CallToolRequestParams, types.ReadResourceRequestParams, types.GetPromptRequestParams
    match method:
        case "tools/call":
            return types.CallToolRequest(
                params=of[0].model_validate({"name": "t", "arguments": arguments, "_meta": meta})
            )
        case "resources/read":
            return types.ReadResourceRequest(params=of[1].model_validate({"uri": "file:///a b", "_meta": meta}))
        case "prompts/get":
            texts = {key: str(value) for key, value in arguments.items()}
            return types.GetPromptRequest(params=of[2].model_validate({"name": "p", "arguments": texts, "_meta": meta}))
        case _:
            ref = types.PromptReference(type="ref/prompt", name="p")
            argument = types.CompletionArgument(name="a", value="v")
            params = types.CompleteRequestParams.model_validate({"ref": ref, "argument": argument, "_meta": meta})
            return types.CompleteRequest(params=params)


@st.composite
def conversations(draw: st.DrawFn, era: str) -> list[tuple[str, JsonObject, JsonObject | None, bool, JsonObject]]:
    """Requests one after another: method, arguments, `_meta`, whether progress is wanted, and the answer."""

    def one() -> tuple[str, JsonObject, JsonObject | None, bool, JsonObject]:
        method = draw(st.sampled_from(list(RESULTS)))
        result = draw(st.sampled_from(RESULTS[method]))
        answer: JsonObject = {"result": result}
        if era == MODERN:
            stamp = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}}
            caching = {"ttlMs": 0, "cacheScope": "private"} if method == "resources/read" else {}
            meta = {**result.get("_meta", {}), **stamp}
            answer = {"result": {"resultType": "complete", **caching, **result, "_meta": meta}}
            if method != "completion/complete" and draw(st.booleans()):
                answer = {"result": INPUT_REQUIRED}
        if draw(st.integers(0, 4)) == 0:
            answer = draw(st.sampled_from(REFUSALS))
        return method, draw(OBJECTS), draw(METAS), draw(st.booleans()), answer

    return [one() for _ in range(draw(st.integers(1, 4)))]


Outcome = tuple[str, Any]


async def sdk_conversation(era: str, asked: list[Any]) -> tuple[list[Outcome], list[JsonObject], list[JsonObject]]:
    """What the SDK makes of the answers, what the server heard, and the params of each request as they were sent."""
    outcomes: list[Outcome] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        pass

    async with scripted_session({}, era, client_info=US, log_level="info") as (session, server):
        for method, arguments, meta, progress, answer in asked:
            server.answers[method] = answer
            try:
                result = await session.send_request(
                    request_of(method, arguments, meta), RAW, progress_callback=on_progress if progress else None
                )
            except MCPError as error:
                outcomes.append(("error", (error.error.code, error.error.message, error.error.data)))
            else:
                outcomes.append((result.get("resultType", "complete"), without_envelope(result)))
        sent = [message["params"] for message in server.asked]
        return outcomes, comparable(server.asked), sent


def relayed_conversation(era: str, asked: list[Any], sent: list[JsonObject]) -> tuple[list[Outcome], list[JsonObject]]:
    """The same through a relay, from the params that the SDK made, without what its session put into them."""
    outcomes: list[Outcome] = []
    talked = Talk(forced=era)
    talked.heard.clear()
    for number, ((method, _, meta, progress, answer), params) in enumerate(zip(asked, sent, strict=True), 1):
        talked.answers[method] = answer
        own = {key: value for key, value in params.items() if key != "_meta"}
        body, own_meta = json.dumps(own).encode(), json.dumps(meta).encode() if meta else b""
        if method == "tools/call" and number % 2:
            arguments = json.dumps(own["arguments"]).encode()
            talked.relay.call(number, own["name"], arguments, meta=own_meta, progress=progress)
        else:
            talked.relay.request(number, method, body, meta=own_meta, progress=progress)
        talked.settle()
        match talked.told.pop():
            case events.Answered(result=result):
                outcomes.append((result.result_type, without_envelope(json.loads(result.body))))
                assert "resultType" not in json.loads(result.body)
            case events.Refused(code=code, message=message, data=data):
                outcomes.append(("error", (code, message, json.loads(data) if data else None)))
            case other:
                raise AssertionError(other)
    return outcomes, comparable(talked.heard)


@pytest.mark.parametrize("era", [LEGACY, MODERN])
@given(data=st.data())
def test_a_conversation_is_the_sdks(era: str, data: st.DataObject) -> None:
    """A server would be asked something else than by other clients, or a caller be told something else."""
    asked = data.draw(conversations(era))
    outcomes, heard, sent = anyio.run(sdk_conversation, era, asked)
    assert relayed_conversation(era, asked, sent) == (outcomes, heard)


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_a_list_is_taken_as_through_the_sdk(era: str) -> None:
    """A tool would be missing, or not be what its server offers."""
    odd = {"name": "ä", "inputSchema": {"type": "object", "x": [None, 1.5]}, "own": {"a": None}, "_meta": {"k": 1}}
    caching = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if era == MODERN else {}
    pages: dict[str | None, JsonObject] = {
        None: {"result": {"tools": [odd, {"name": 7}], "nextCursor": "2", **caching}},
        "2": {"result": {"tools": [], "nextCursor": "", **caching}},
        "": {"result": {"tools": [odd], **caching}},
    }
    answers: dict[str, Answer] = {"tools/list": lambda params: pages[params.get("cursor")]}
    async with scripted_session(answers, era, client_info=US, log_level="info") as (session, server):
        listed = await list_all(session, "tools/list", "tools")
        heard = comparable(server.asked)
    talked = Talk({**ANSWERS, **answers}, forced=era)
    talked.heard.clear()
    talked.relay.list_all(1, "tools/list", 0.0)
    talked.settle()
    assert comparable(talked.heard) == heard
    end = talked.told.pop()
    assert isinstance(end, events.Listed)
    assert json.loads(end.items) == listed


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_what_is_given_up_is_told_to_the_server_as_the_sdk_tells_it(era: str) -> None:
    """A server would work on for nobody."""
    async with scripted_session({"tools/call": None}, era, client_info=US, log_level="info") as (session, server):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.send_request, request_of("tools/call", {}, None), RAW)
                await server.until("tools/call")
                scope.cancel()
        await server.until("notifications/cancelled")
        heard = comparable(server.asked)
    talked = Talk(forced=era)
    talked.answers["tools/call"] = None
    talked.heard.clear()
    talked.relay.call(1, "t")
    talked.settle()
    talked.relay.cancel(1)
    talked.settle()
    assert comparable(talked.heard) == heard


async def test_the_standing_request_is_the_sdks() -> None:
    """A modern server would not be listened to as by other clients."""
    async with (
        scripted_session({"subscriptions/listen": None}, MODERN, client_info=US, log_level="info") as (session, server),
        anyio.create_task_group() as tasks,
    ):

        async def hear() -> None:
            wanted = listen(session, tools_list_changed=True, resource_subscriptions=["file:///a"])
            async with wanted:
                pass

        tasks.start_soon(hear)
        await server.until("subscriptions/listen")
        heard = comparable(server.asked)
        tasks.cancel_scope.cancel()
    talked = Talk(forced=MODERN)
    talked.answers["subscriptions/listen"] = None
    talked.heard.clear()
    talked.relay.listen(("tools",), ("file:///a",))
    talked.settle()
    assert comparable(talked.heard) == heard
