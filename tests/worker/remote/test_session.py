"""The SDK's session past its models: what a server says and asks comes as it is, and so do its requests."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from support.servers.greetings import DISCOVERED, INITIALIZED, LEGACY, MODERN, Answer, JsonObject
from support.servers.scripted_session import PATIENCE_S, ScriptedServer
from support.waiting import turns

from quarterdeck_protocol.backoff import Pace
from quarterdeck_protocol.faults import FaultRecord, ReplyError
from quarterdeck_protocol.link.frames import (
    AskAnswer,
    Asked,
    AskEnded,
    Call,
    Forward,
    ListChanged,
    Listening,
    Log,
    News,
    Note,
    OpenOrder,
    Progress,
    Updated,
)
from quarterdeck_protocol.mcp.jsonrpc import SplitResult
from quarterdeck_worker.notifications import Notifier
from quarterdeck_worker.remote import requests as sdk_requests
from quarterdeck_worker.remote import session as module
from quarterdeck_worker.remote.handshake import greet
from quarterdeck_worker.remote.requests import SdkServer
from quarterdeck_worker.remote.session import Session

pytestmark = pytest.mark.anyio

CAPABLE = b'{"elicitation":{"form":{}},"sampling":{"tools":{}},"roots":{"listChanged":true}}'
LISTENING = "subscriptions/listen"


class Desk:
    """A greeted server over a scripted one, and what it told."""

    def __init__(self) -> None:
        self.news: list[News] = []
        self.bodies: list[bytes] = []
        self.takes = True
        self.ended: list[SplitResult | FaultRecord] = []
        self.moved = anyio.Event()
        self.server: SdkServer
        self.script: ScriptedServer

    def post(self, frame: News, body: bytes = b"") -> bool:
        """See `Post`."""
        self.news.append(frame)
        self.bodies.append(body)
        self.moved.set()
        return self.takes

    def done(self, outcome: SplitResult | FaultRecord) -> None:
        """See `Done`."""
        self.ended.append(outcome)
        self.moved.set()

    async def until(self, is_so: Any) -> None:
        """Wait until it is so."""
        with anyio.fail_after(PATIENCE_S):
            while not is_so():
                self.moved = anyio.Event()
                with anyio.move_on_after(0.05):
                    await self.moved.wait()

    async def reply_to(self, message_id: object) -> JsonObject:
        """What the server was answered."""
        found: list[JsonObject] = []

        def look() -> bool:
            found[:] = [each for each in self.script.asked if each.get("id") == message_id and "method" not in each]
            return bool(found)

        await self.until(look)
        return found[0]


@asynccontextmanager
async def greeted(answers: dict[str, Answer], capabilities: bytes = CAPABLE) -> AsyncIterator[Desk]:
    """A server that answers so, greeted."""
    desk = Desk()
    async with create_client_server_memory_streams() as ((read, write), (heard, said)):
        desk.script = ScriptedServer(answers, said.send)

        async def serve() -> None:
            async for item in heard:
                assert isinstance(item, SessionMessage)
                await desk.script.take(item)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            notifier = Notifier(desk.post, lambda: 0.0)
            async with Session(read, write, notifier, capabilities) as session, anyio.create_task_group() as work:
                card = await greet(session, MODERN if "server/discover" in answers else LEGACY)
                session.let_ask()
                desk.server = SdkServer(card, session, work, notifier, max_bytes=100_000)
                yield desk
                work.cancel_scope.cancel()
            tasks.cancel_scope.cancel()


OLDER: dict[str, Answer] = {"initialize": INITIALIZED}
NEWER: dict[str, Answer] = {"server/discover": DISCOVERED}


async def test_an_older_server_is_told_what_callers_can_be_asked() -> None:
    """It would offer no tool that asks."""
    async with greeted(OLDER) as desk:
        params = desk.script.asked[0]["params"]
        assert params["capabilities"] == json.loads(CAPABLE)
        assert desk.server.card.capabilities != b"{}"
        assert desk.server.card.announces == ("tools",)


async def test_what_it_asks_is_passed_on_as_it_is_and_answered_as_it_is() -> None:
    """The SDK's models drop what they do not know."""
    async with greeted(OLDER) as desk:
        await desk.script.say({"id": "q", "method": "elicitation/create", "params": {"message": "ä", "x-own": [None]}})
        await desk.until(lambda: desk.news)
        assert desk.news == [Asked(1, "elicitation/create")]
        assert json.loads(desk.bodies[0]) == {"message": "ä", "x-own": [None]}
        desk.server.answer(AskAnswer(1), b'{"action":"accept","x-own":[null]}')
        assert (await desk.reply_to("q"))["result"] == {"action": "accept", "x-own": [None]}
        await desk.script.say({"id": "r", "method": "roots/list"})
        await desk.until(lambda: len(desk.news) == 2)
        desk.server.answer(AskAnswer(2, -7, "no"), b"[1]")
        assert (await desk.reply_to("r"))["error"] == {"code": -7, "message": "no", "data": [1]}
        desk.server.answer(AskAnswer(2), b"{}")
        await turns()


async def test_a_question_that_it_gives_up_is_withdrawn() -> None:
    """A person would be asked for nothing."""
    async with greeted(OLDER) as desk:
        await desk.script.say({"id": 5, "method": "roots/list"})
        await desk.until(lambda: desk.news)
        await desk.script.say({"method": "notifications/cancelled", "params": {"requestId": 5}})
        await desk.until(lambda: AskEnded(1) in desk.news)


async def test_a_question_that_nobody_answers_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server would wait for ever."""
    monkeypatch.setattr(module, "ASK_S", 0.0)
    async with greeted(OLDER) as desk:
        await desk.script.say({"id": 5, "method": "roots/list"})
        assert "in time" in (await desk.reply_to(5))["error"]["message"]
        assert desk.news == [Asked(1, "roots/list"), AskEnded(1)]


@pytest.mark.parametrize("answers", [OLDER, NEWER])
async def test_what_nobody_can_be_asked_is_refused_at_once(answers: dict[str, Answer]) -> None:
    """A server that may not ask would wait; one of the newer era asks by results alone."""
    async with greeted(answers, b"{}" if answers is OLDER else CAPABLE) as desk:
        await desk.script.say({"id": 5, "method": "roots/list"})
        assert "error" in await desk.reply_to(5)
        assert desk.news == []


async def test_a_question_that_finds_no_way_is_refused() -> None:
    """A server would wait for an answer that cannot come."""
    async with greeted(OLDER) as desk:
        desk.takes = False
        await desk.script.say({"id": 5, "method": "roots/list"})
        assert (await desk.reply_to(5))["error"]["code"] == -32603


async def test_too_many_questions_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a task and a place in memory."""
    monkeypatch.setattr(module, "MAX_ASKS", 2)
    async with greeted(OLDER) as desk:
        for number in range(3):
            await desk.script.say({"id": number, "method": "roots/list"})
        assert (await desk.reply_to(2))["error"]["message"] == "too many requests at once"


async def test_what_a_server_says_is_told_in_its_own_words() -> None:
    """Methods and members that the SDK does not know would be lost."""
    async with greeted(OLDER) as desk:
        for method, params in (
            ("notifications/message", {"level": "error", "logger": "db", "data": {"a": [None]}}),
            ("notifications/prompts/list_changed", None),
            ("notifications/resources/updated", {"uri": "file:///a"}),
            ("notifications/tasks/status", {"taskId": "1", "x": None}),
            ("notifications/message", {"level": 7}),
        ):
            await desk.script.say({"method": method, **({"params": params} if params is not None else {})})
        await desk.until(lambda: len(desk.news) == 4)
        assert desk.news == [
            Log("error", "db"),
            ListChanged("prompts"),
            Updated("file:///a"),
            Note("notifications/tasks/status"),
        ]
        assert [json.loads(body) for body in desk.bodies if body] == [{"a": [None]}, {"taskId": "1", "x": None}]


async def test_any_request_is_passed_on_and_errors_come_back_whole() -> None:
    """A request of tomorrow could not be made, and a client not tell one error from another."""
    wrong: Answer = {"error": {"code": -32002, "message": "none", "data": {"uri": "x"}}}
    answers: dict[str, Answer] = {
        **OLDER,
        "x/y": lambda params: {"result": {"told": params}},
        "resources/read": wrong,
    }
    async with greeted(answers) as desk:
        desk.server.forward(Forward(1, 5.0, "x/y", meta=b'{"m":1}'), b'{"a":[null]}', desk.done)
        await desk.until(lambda: desk.ended)
        [told] = desk.ended
        assert isinstance(told, SplitResult)
        assert json.loads(told.body) == {"told": {"a": [None], "_meta": {"m": 1}}}
        desk.server.forward(Forward(2, 5.0, "resources/read"), b"{}", desk.done)
        await desk.until(lambda: len(desk.ended) == 2)
        fault = desk.ended[1]
        assert isinstance(fault, FaultRecord)
        assert fault.reply == ReplyError(-32002, "none", b'{"uri":"x"}')
        desk.server.forward(Forward(3, 5.0, "x/y"), b"[]", desk.done)
        await desk.until(lambda: len(desk.ended) == 3)
        assert isinstance(desk.ended[2], FaultRecord)


ENDS: dict[str, Answer] = {
    "becomes": {"result": {"resultType": "task", "taskId": "t", "task": {"taskId": "t", "status": "working"}}},
    "becomes none": {"result": {"content": []}},
    "refuses": {"error": {"code": 1, "message": "no"}},
    "is late": None,
}
"""By its tool, how a call is answered that asks for a task."""

PROGRESS = "notifications/progress"
MARK = "notifications/mark"


async def told(desk: Desk, **members: object) -> list[News]:
    """What is passed on of the progress of the last call."""
    desk.news.clear()
    token = desk.script.asked[-1]["params"]["_meta"]["progressToken"]
    note = {"progressToken": token, "progress": 1, "message": "x" * 5_000, **members}
    await desk.script.say({"method": PROGRESS, "params": note})
    await desk.script.say({"method": MARK})
    await desk.until(lambda: Note(MARK) in desk.news)
    await turns()
    return [news for news in desk.news if news != Note(MARK)]


def tasking(answers: dict[str, Answer]) -> AbstractAsyncContextManager[Desk]:
    """A server whose calls end so."""

    def answered(params: JsonObject) -> Any:
        return ENDS[params["name"]]

    return greeted({**answers, "tools/call": answered})


def begin(desk: Desk, number: int, tool: str, **members: object) -> None:
    """Call a tool, its progress wanted."""
    body = json.dumps({"name": tool, "arguments": {}, **members}).encode()
    desk.server.forward(Forward(number, 5.0, "tools/call", progress=True), body, desk.done)


async def test_the_progress_of_a_call_is_its_tasks_once_it_is_answered() -> None:
    """A person would see nothing of what a remote server's task does: the SDK drops the token with the answer."""
    async with tasking(OLDER) as desk:
        begin(desk, 7, "is late", task={})
        asked = await desk.script.until("tools/call")
        assert await told(desk) == [Progress(7, 1.0, None, "x" * 1_000)]
        await desk.script.say({"id": asked["id"], **ENDS["becomes"]})
        await desk.until(lambda: desk.ended)
        desk.bodies.clear()
        assert await told(desk, total=2) == [Note(PROGRESS)]
        assert json.loads(desk.bodies[0]) == {"taskId": "t", "progress": 1.0, "total": 2.0, "message": "x" * 1_000}
        for members in ({"progress": float("inf")}, {"progress": "much"}, {"progressToken": 1}, {"message": "\ud800"}):
            assert await told(desk, **members) == []


@pytest.mark.parametrize(
    ("answers", "tool", "members"),
    [
        (OLDER, "becomes", {}),
        (OLDER, "becomes none", {"task": {}}),
        (OLDER, "refuses", {"task": {}}),
        (OLDER, "is late", {"task": {}}),
        (NEWER, "becomes", {"task": {}}),
    ],
)
async def test_a_call_that_becomes_no_task_leaves_nothing(
    answers: dict[str, Answer], tool: str, members: JsonObject
) -> None:
    """Each would cost memory as long as the server is there, or a server would tell of what nobody can name."""
    async with tasking(answers) as desk:
        begin(desk, 7, tool, **members)
        await desk.script.until("tools/call")
        if ENDS[tool] is None:
            assert desk.server.cancel(7, "enough")
            await desk.script.until("notifications/cancelled")
        else:
            await desk.until(lambda: desk.ended)
        assert not desk.server._task_tokens.calls
        desk.script.asked = [each for each in desk.script.asked if each.get("method") == "tools/call"]
        assert await told(desk) == []


async def test_a_modern_server_is_told_who_asks_with_each_request() -> None:
    """It would ask one who cannot answer."""
    complete = {"resultType": "complete", "content": [], "ttlMs": 0, "cacheScope": "private", "tools": []}
    answers: dict[str, Answer] = {**NEWER, "tools/call": {"result": complete}, "tools/list": {"result": complete}}
    async with greeted(answers) as desk:
        desk.server.call(Call(1, 5.0, "t"), b"{}", desk.done)
        desk.server.call(Call(2, 5.0, "t", capabilities=b'{"roots":{}}', log_level="error"), b"{}", desk.done)
        desk.server.list_items(3, "tools", desk.done)
        await desk.until(lambda: len(desk.ended) == 3)
        metas = {
            (asked["method"], index): asked["params"]["_meta"]
            for index, asked in enumerate(desk.script.asked)
            if "params" in asked
        }
        of = "io.modelcontextprotocol/"
        told = [
            (method, meta[f"{of}clientCapabilities"], meta.get(f"{of}logLevel")) for (method, _), meta in metas.items()
        ]
        assert sorted(told[1:], key=repr) == sorted(
            [
                ("tools/call", {}, "info"),
                ("tools/call", {"roots": {}}, "error"),
                ("tools/list", json.loads(CAPABLE), "info"),
            ],
            key=repr,
        )


async def test_a_request_about_a_task_says_in_a_header_which(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy before the server would send it to another instance, which has no such task."""
    seen: list[tuple[str, object]] = []
    original = module.RawDispatcher.send_raw_request

    async def spy(self: Any, method: str, params: Any, options: Any = None) -> Any:
        seen.append((method, (options or {}).get("headers", {}).get("mcp-name")))
        return await original(self, method, params, options)

    monkeypatch.setattr(module.RawDispatcher, "send_raw_request", spy)
    state = {"result": {"resultType": "complete", "taskId": "1"}}
    async with greeted({**NEWER, "tasks/get": state, "tasks/cancel": state}) as desk:
        desk.server.forward(Forward(1, 5.0, "tasks/get"), b'{"taskId":"job-1"}', desk.done)
        desk.server.forward(Forward(2, 5.0, "tasks/cancel"), '{"taskId":"ä"}'.encode(), desk.done)
        await desk.until(lambda: len(desk.ended) == 2)
    assert [each for each in seen if each[0].startswith("tasks/")] == [
        ("tasks/get", "job-1"),
        ("tasks/cancel", "=?base64?w6Q=?="),
    ]


async def test_what_clients_say_is_passed_on() -> None:
    """A server would work with the roots of yesterday."""
    async with greeted(OLDER) as desk:
        desk.server.tell("notifications/roots/list_changed", b"")
        assert "params" not in await desk.script.until("notifications/roots/list_changed")
        desk.server.tell("notifications/x", b"nonsense")
        await turns()


async def test_a_modern_server_is_listened_to_for_what_is_wanted_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes would not be seen, or told of what nobody wants any more; a lost stream would be the last."""
    monkeypatch.setattr(sdk_requests, "RELISTEN", Pace(0.0, 0.0, 0.0))
    asked: list[Any] = []
    async with greeted({**NEWER, LISTENING: None}) as desk:
        script = desk.script

        async def listening() -> Any:
            await desk.until(lambda: script.methods.count(LISTENING) == len(asked) + 1)
            message = [each for each in script.asked if each.get("method") == LISTENING][-1]
            asked.append(message)
            stamp = {"io.modelcontextprotocol/subscriptionId": message["id"]}
            wanted = message["params"]["notifications"]
            note = {"notifications": wanted, "_meta": stamp}
            await script.say({"method": "notifications/subscriptions/acknowledged", "params": note})
            return wanted, stamp, message["id"]

        desk.server.start_listening()
        desk.server.listen(("file:///a",))
        wanted, stamp, message_id = await listening()
        assert wanted == {"resourceSubscriptions": ["file:///a"]}
        await script.say({"method": "notifications/resources/updated", "params": {"uri": "file:///a", "_meta": stamp}})
        await desk.until(lambda: desk.news == [Listening(1), Updated("file:///a")])
        await script.say({"method": "notifications/cancelled", "params": {"requestId": message_id}})
        await desk.until(lambda: desk.news == [Listening(1), *[Updated("file:///a")] * 2])
        await listening()
        desk.server.listen(("file:///b",))
        assert (await listening())[0] == {"resourceSubscriptions": ["file:///b"]}
        assert {each["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] for each in asked} == {MODERN}


def test_what_a_server_is_told_is_read_from_the_order() -> None:
    """The words of an order are those of the protocol."""
    types.ClientCapabilities.model_validate_json(OpenOrder(capabilities=CAPABLE.decode()).capabilities)
