"""A server on the SDK with one of everything: a relay is told what the SDK's own session is told, in both eras."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.client.session import ClientSession
from mcp.client.subscriptions import listen
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter
from support.clients.direct_client import without_envelope
from support.clients.sdk_greeting import greet
from support.servers.greetings import LEGACY, MODERN, JsonObject
from support.servers.whole_server import ANSWERS, QUESTIONS, served, served_lines
from support.waiting import PATIENCE_S

from quarterdeck_protocol.mcp.client import MEMBERS, Client, Relay, events

pytestmark = [
    pytest.mark.anyio,
    # Deprecated or not, servers have it.
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

RAW: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
US = types.Implementation(name="us", version="1")
ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN])

OFFERED = {"elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}, "sampling": {}}
"""What the SDK offers a server when it has callbacks for all of it."""


class Relayed:
    """A relay whose lines are carried; `told` is all that it said."""

    def __init__(self, era: str, lines: MemoryObjectReceiveStream[bytes], say: Callable[[bytes], Any]) -> None:
        client = Client("us", "1", capabilities=json.dumps(OFFERED).encode())
        self.relay = Relay(client, now=0.0, max_bytes=1 << 20, forced=era, offers=frozenset(QUESTIONS))
        self.told: list[events.Event] = []
        self._lines = lines
        self._say = say
        self._last = 0

    async def until(self, *kinds: type[events.Event]) -> events.Event:
        """Carry lines until one of these is told."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                await self._say(self.relay.take())
                for event in self.relay.receive(await self._lines.receive(), 0.0):
                    self.told.append(event)
                    if isinstance(event, events.Asked):
                        answer = ANSWERS[event.method].model_dump_json(by_alias=True, exclude_none=True)
                        self.relay.answer(event.ask_id, answer.encode())
                    if isinstance(event, kinds):
                        return event

    async def ask(self, method: str, params: JsonObject, **members: Any) -> events.Event:
        """The end of a request."""
        self._last += 1
        assert self.relay.request(self._last, method, json.dumps(params).encode(), **members) is None
        return await self.until(events.Answered, events.Refused, events.Spoiled)

    async def list_all(self, method: str) -> list[JsonObject]:
        """A whole list."""
        self._last += 1
        assert self.relay.list_all(self._last, method, 0.0) is None
        end = await self.until(events.Listed)
        assert isinstance(end, events.Listed)
        items: list[JsonObject] = json.loads(end.items)
        return items


@asynccontextmanager
async def relayed(era: str) -> AsyncIterator[Relayed]:
    async with served_lines() as (lines, say):
        connection = Relayed(era, lines, say)
        greeted = await connection.until(events.Greeted, events.GreetingFailed)
        assert isinstance(greeted, events.Greeted)
        yield connection


@asynccontextmanager
async def direct(era: str, told: list[Any] | None = None) -> AsyncIterator[ClientSession]:
    async def note(message: Any) -> None:
        if told is not None:
            told.append(message)

    async def answer(*given: Any) -> Any:
        method = {1: "roots/list"}.get(len(given))
        kinds = {
            "ElicitRequestFormParams": "elicitation/create",
            "CreateMessageRequestParams": "sampling/createMessage",
        }
        return ANSWERS[method or kinds[type(given[1]).__name__]]

    callbacks = {"elicitation_callback": answer, "list_roots_callback": answer, "sampling_callback": answer}
    async with served() as (read, write):
        session = ClientSession(read, write, client_info=US, log_level="info", message_handler=note, **callbacks)
        async with session:
            await greet(session, era)
            yield session


REQUESTS: list[tuple[str, JsonObject]] = [
    ("tools/call", {"name": "blocks", "arguments": {"a": [None, 1.5, "\u2028"]}}),
    ("tools/call", {"name": "blocks", "arguments": {}, "_meta": {"own/key": {"a": 1}}}),
    ("tools/call", {"name": "fail"}),
    *[("tools/call", {"name": "ask", "arguments": {"what": what}}) for what in QUESTIONS],
    ("resources/read", {"uri": "file:///a"}),
    ("prompts/get", {"name": "p", "arguments": {"a": "b"}}),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "p"},
            "argument": {"name": "a", "value": "v"},
            "context": {"arguments": {}},
        },
    ),
    ("ping", {}),
    ("logging/setLevel", {"level": "debug"}),
    ("resources/subscribe", {"uri": "file:///a"}),
    ("no/such", {}),
]

MODELS: dict[str, Any] = {
    "tools/call": types.CallToolRequest,
    "resources/read": types.ReadResourceRequest,
    "prompts/get": types.GetPromptRequest,
    "completion/complete": types.CompleteRequest,
    "ping": types.PingRequest,
    "logging/setLevel": types.SetLevelRequest,
    "resources/subscribe": types.SubscribeRequest,
    "tools/list": types.ListToolsRequest,
    "prompts/list": types.ListPromptsRequest,
    "resources/list": types.ListResourcesRequest,
    "resources/templates/list": types.ListResourceTemplatesRequest,
}


def asked(method: str, params: JsonObject) -> Any:
    model = MODELS.get(method)
    return (
        types.Request[Any, Any](method=method, params=params)
        if model is None
        else model.model_validate({"method": method, "params": params})
    )


@ERAS
async def test_every_request_ends_in_what_the_sdk_gets(era: str) -> None:
    async with direct(era) as session, relayed(era) as connection:
        for method, params in REQUESTS:
            own = {key: value for key, value in params.items() if key != "_meta"}
            meta = json.dumps(params["_meta"]).encode() if "_meta" in params else b""
            end = await connection.ask(method, own, meta=meta)
            assert outcome_of(end) == await sdk_outcome(session, asked(method, params)), method


def outcome_of(end: events.Event) -> tuple[object, ...]:
    match end:
        case events.Answered(result=result):
            return result.result_type, without_envelope(json.loads(result.body))
        case events.Refused(code=code, message=message, data=data):
            return code, message, json.loads(data) if data else None
        case _:
            raise AssertionError(end)


async def sdk_outcome(session: ClientSession, request: Any) -> tuple[object, ...]:
    try:
        result = await session.send_request(request, RAW)
    except MCPError as error:
        return error.code, error.message, error.data
    return result.get("resultType", "complete"), without_envelope(result)


@ERAS
@pytest.mark.parametrize("method", MEMBERS)
async def test_every_list_is_what_the_sdk_gets(era: str, method: str) -> None:
    async with direct(era) as session, relayed(era) as connection:
        expected: list[JsonObject] = []
        cursor: str | None = None
        while True:
            page = await session.send_request(asked(method, {"cursor": cursor} if cursor else {}), RAW)
            expected += page[MEMBERS[method]]
            if not (cursor := page.get("nextCursor")):
                break
        assert await connection.list_all(method) == expected


@ERAS
async def test_what_the_server_says_of_itself_is_what_the_sdk_is_told(era: str) -> None:
    async with direct(era) as session, relayed(era) as connection:
        server = connection.relay.server
        assert server is not None
        info, said = session.server_info, session.server_capabilities
        assert info is not None
        assert said is not None
        assert json.loads(server.info) == info.model_dump(by_alias=True, mode="json", exclude_none=True)
        assert json.loads(server.capabilities) == said.model_dump(by_alias=True, mode="json", exclude_unset=True)
        assert (server.name, server.title, server.instructions) == (info.name, info.title, session.instructions)
        assert server.announces >= {"tools"}


@ERAS
async def test_what_a_server_says_during_a_call_comes_before_its_answer(era: str) -> None:
    async with relayed(era) as connection:
        if era == MODERN:
            connection.relay.listen(("tools",))
            await connection.until(events.Listening)
        connection.told.clear()
        end = await connection.ask("tools/call", {"name": "talk"}, progress=True)
        assert isinstance(end, events.Answered)
        if era == MODERN:
            while events.Changed(("tools",)) not in connection.told:
                await connection.until(events.Changed)
        unasked = [event for event in connection.told if event != end]
        assert sorted(unasked, key=str) == [
            events.Changed(("tools",)),
            events.Logged("warning", "own", b'{"a":[1]}'),
            events.Progressed(end.request_id, 1.0, 2.0, "half"),
        ]
        news = [type(event) for event in connection.told]
        assert news.index(events.Progressed) < news.index(events.Answered)


async def test_the_sdk_hears_of_the_same_changes() -> None:
    """The measure itself would be off: this server may tell a modern client nothing."""
    told: list[Any] = []
    async with direct(MODERN, told) as session, listen(session, tools_list_changed=True) as changes:
        await session.send_request(asked("tools/call", {"name": "talk"}), RAW)
        with anyio.fail_after(PATIENCE_S):
            async for _ in changes:
                break
