"""An MCP connection over pipes: the relay's lines leave, its events arrive where they belong, nothing piles up."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from support.servers.greetings import DISCOVERED, INITIALIZED, LEGACY, MODERN, JsonObject
from support.waiting import PATIENCE_S, turns

from quarterdeck_protocol.faults import Delivery, FaultRecord, ReplyError
from quarterdeck_protocol.link.frames import (
    AskAnswer,
    Asked,
    AskEnded,
    Call,
    Forward,
    ListChanged,
    Log,
    News,
    Note,
    OpenOrder,
    Progress,
    Updated,
)
from quarterdeck_protocol.mcp.client import FIRST_ID
from quarterdeck_protocol.mcp.client.events import GreetingFailed
from quarterdeck_protocol.mcp.jsonrpc import SplitResult
from quarterdeck_worker.notifications import ASK_BURST, Notifier
from quarterdeck_worker.stdio.connection import StdioConnection

pytestmark = pytest.mark.anyio

ID = FIRST_ID + 7
"""Of the request with the number 7."""

LISTENS: JsonObject = {"result": {**DISCOVERED["result"], "capabilities": {"tools": {"listChanged": True}}}}


class Stage:
    """A server's ends of the pipes, the connection over ours, and all that came of it."""

    pid = 4711

    def __init__(self, era: str, max_line_bytes: int, capabilities: str) -> None:
        self._stdin, self.stdin_fd = os.pipe()
        self.stdout_fd, self._stdout = os.pipe()
        self._fds = {self._stdin, self._stdout, self.stdin_fd, self.stdout_fd}
        for fd in self._fds:
            os.set_blocking(fd, False)
        self.news: list[News] = []
        self.bodies: list[bytes] = []
        self.junk: list[bytes] = []
        self.ended: list[SplitResult | FaultRecord] = []
        order = OpenOrder(protocol=era, max_result_bytes=10_000, capabilities=capabilities)
        notifier = Notifier(self._post, lambda: 0.0)
        played: Any = self
        self.connection = StdioConnection(played, order, notifier, max_line_bytes=max_line_bytes)
        self.connection.on_junk = self.junk.append

    def _post(self, frame: News, body: bytes = b"") -> bool:
        self.news.append(frame)
        self.bodies.append(body)
        return True

    async def answers(self, reply: JsonObject) -> JsonObject:
        """The server answers the one request that it was sent, which is returned."""
        [asked] = self.asked()
        await self.says(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **reply}).encode())
        return asked

    def begins_call(self) -> None:
        """Begin one call, as request 7."""
        self.connection.call(Call(7, 30.0, "echo", progress=True), b"{}", self.ended.append)

    async def says(self, *lines: bytes) -> None:
        """The server writes these lines; what follows from them happens."""
        os.write(self._stdout, b"".join(line + b"\n" for line in lines))
        await turns()

    def asked(self) -> list[JsonObject]:
        """What the server was written since the last time."""
        try:
            return [json.loads(line) for line in os.read(self._stdin, 1 << 22).splitlines()]
        except BlockingIOError:
            return []

    def hangs_up(self) -> None:
        """The server closes its stdout."""
        self._fds.remove(self._stdout)
        os.close(self._stdout)

    def close(self) -> None:
        """Release every descriptor."""
        self.connection.close()
        for fd in self._fds:
            os.close(fd)


@asynccontextmanager
async def stage(era: str = LEGACY, max_line_bytes: int = 1_000_000, capabilities: str = "{}") -> AsyncIterator[Stage]:
    """A pretend server over pipes, not greeted yet."""
    played = Stage(era, max_line_bytes, capabilities)
    try:
        with anyio.fail_after(PATIENCE_S):
            yield played
    finally:
        played.close()


@asynccontextmanager
async def greeted(
    era: str = LEGACY, greeting: JsonObject = INITIALIZED, capabilities: str = "{}"
) -> AsyncIterator[Stage]:
    """A server that can be asked."""
    async with stage(era, capabilities=capabilities) as played:
        await played.answers(greeting)
        assert played.connection.greeting.done()
        played.asked()
        yield played


async def test_a_greeted_server_is_known_by_what_it_said() -> None:
    """Nobody would see which server it is, nor that it tells of changes."""
    async with stage() as played:
        asked = await played.answers(INITIALIZED)
        assert (asked["method"], asked["params"]["clientInfo"]["name"]) == ("initialize", "quarterdeck")
        assert [message["method"] for message in played.asked()] == ["notifications/initialized"]
        card = played.connection.card
        assert (card.era, card.pid, card.name) == (LEGACY, 4711, "scripted")


async def test_a_greeting_that_fails_says_why() -> None:
    """A user would wait until the deadline, and learn nothing."""
    async with stage() as played:
        await played.answers({"error": {"code": -1, "message": "not today"}})
        assert played.connection.greeting.result() == GreetingFailed("not today", -1)


async def test_a_call_ends_with_its_answer() -> None:
    """Nothing could be called."""
    async with greeted() as played:
        played.begins_call()
        [asked] = played.asked()
        assert (asked["id"], asked["method"]) == (ID, "tools/call")
        assert asked["params"] == {"name": "echo", "arguments": {}, "_meta": {"progressToken": ID}}
        answer = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}' % ID
        await played.says(answer, answer)
        assert played.ended == [SplitResult(b'{"content":[]}')]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"id":%d,"error":{"code":-1,"message":"no"}}' % ID, "reply_error"),
        (b'{"id":%d,"result":[]}' % ID, "bad_output"),
        (b'{"id":%d,"result":{"a":' % ID, "bad_output"),
    ],
)
async def test_a_call_without_a_result_ends_as_a_fault(line: bytes, code: str) -> None:
    """A caller would wait for its deadline."""
    async with greeted() as played:
        played.begins_call()
        await played.says(line)
        [fault] = played.ended
        assert isinstance(fault, FaultRecord)
        assert (fault.code, fault.delivery) == (code, Delivery.ANSWERED)


async def test_a_list_is_the_servers_own_bytes_page_by_page() -> None:
    """A definition would be approved in other words than the server's."""
    async with greeted() as played:
        played.connection.list_items(7, "tools", played.ended.append)
        [first] = played.asked()
        await played.says(b'{"id":%d,"result":{"tools":[{"name" : "a"}],"nextCursor":"n"}}' % first["id"])
        [second] = played.asked()
        assert second["params"] == {"cursor": "n"}
        await played.says(b'{"id":%d,"result":{"tools":[{"n":1e2}]}}' % second["id"])
        assert played.ended == [SplitResult(b'[{"name" : "a"},{"n":1e2}]')]


async def test_a_request_that_is_cancelled_is_told_once_and_ends_for_nobody() -> None:
    """The server would go on working for nobody, or its late answer end another call."""
    async with greeted() as played:
        played.begins_call()
        played.asked()
        assert played.connection.cancel(7, "enough")
        assert not played.connection.cancel(7, "again")
        await turns()
        [told] = played.asked()
        assert told["method"] == "notifications/cancelled"
        assert told["params"] == {"requestId": ID, "reason": "enough"}
        await played.says(b'{"id":%d,"result":{}}' % ID)
        assert played.ended == []


async def test_more_calls_than_can_wait_are_refused_unsent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller would not know that it may ask again."""
    monkeypatch.setattr("quarterdeck_protocol.mcp.client.connection.MAX_IN_FLIGHT", 0)
    async with greeted() as played:
        played.begins_call()
        [fault] = played.ended
        assert isinstance(fault, FaultRecord)
        assert (fault.code, fault.delivery) == ("busy", Delivery.NOT_SENT)
        assert not played.connection.cancel(7, "")


async def test_a_servers_requests_are_answered_at_once() -> None:
    """A server that pings would hang up, one that asks for more would wait for ever."""
    async with greeted() as played:
        await played.says(
            b'{"jsonrpc":"2.0","id":"p","method":"ping"}',
            b'{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage","params":{}}',
        )
        ping, sampling = played.asked()
        assert ping == {"jsonrpc": "2.0", "id": "p", "result": {}}
        assert (sampling["id"], sampling["error"]["code"]) == (5, -32601)


async def test_a_server_that_asks_but_does_not_read_gets_no_more_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of pings would fill our memory with answers; or, once it reads again, what it is owed never leave."""
    monkeypatch.setattr("quarterdeck_worker.stdio.pipe.MAX_UNREAD_BYTES", 100)
    async with greeted() as played:
        played.connection.pipe.write(b" " * 1_000_000 + b"\n")
        waiting = len(played.connection.pipe._queue)
        await played.says(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        assert len(played.connection.pipe._queue) == waiting
        heard = b""
        while b'"result":{}' not in heard:
            try:
                heard += os.read(played._stdin, 1 << 20)
            except BlockingIOError:
                await turns(1)


async def test_progress_is_given_to_the_call_that_it_belongs_to() -> None:
    """A client would see another's progress."""
    note = b'{"method":"notifications/progress","params":{"progressToken":%s,"progress":1,"total":2,"message":"m"}}'
    async with greeted() as played:
        await played.says(note % b"%d" % ID)
        played.begins_call()
        await played.says(note % b"%d" % ID, note % b"1", note % b'"x"')
        assert played.news == [Progress(7, 1.0, 2.0, "m")]


@pytest.mark.parametrize(
    ("params", "line", "data"),
    [
        (b'{"level":"error","logger":"db","data":"hm"}', Log("error", "db"), b'"hm"'),
        (b'{"data":{"a":[1]}}', Log("info", ""), b'{"a":[1]}'),
        (b"{}", Log("info", ""), b"null"),
    ],
)
async def test_log_lines_are_news(params: bytes, line: Log, data: bytes) -> None:
    """A server's own log would be lost."""
    async with greeted() as played:
        await played.says(b'{"jsonrpc":"2.0","method":"notifications/message","params":%s}' % params)
        assert (played.news, played.bodies) == ([line], [data])


async def test_each_list_that_changed_is_news_once() -> None:
    """A storm of changes would be a storm of frames; changed prompts would have tools listed anew."""
    async with greeted() as played:
        await played.says(b'{"method":"notifications/prompts/list_changed"}')
        assert played.news == [ListChanged("prompts")]
        await played.says(*[b'{"method":"notifications/tools/list_changed"}'] * 3)
        assert played.news == [ListChanged("prompts"), ListChanged("tools")]


async def test_a_modern_server_that_announces_changes_is_listened_to() -> None:
    """Its new tools would be seen at its next start."""
    async with stage(MODERN) as played:
        await played.answers(LISTENS)
        [asked] = played.asked()
        assert asked["method"] == "subscriptions/listen"
        assert asked["params"]["notifications"] == {"toolsListChanged": True}


async def test_other_notifications_are_news_or_left() -> None:
    """What a server says to clients would end here, or be taken for junk."""
    async with greeted() as played:
        await played.says(
            b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x"}}',
            b'{"jsonrpc":"2.0","method":"notifications/of/tomorrow"}',
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
        )
        assert (played.junk, played.asked()) == ([], [])
        assert played.news == [Updated("x"), Note("notifications/of/tomorrow")]


@pytest.mark.parametrize("line", [b"hello world", b"{", b'{"method":"notifications/progress"}'])
async def test_junk_is_counted_and_shown_and_harmless(line: bytes) -> None:
    """A server that prints to stdout would break its own session."""
    async with greeted() as played:
        await played.says(line, b'{"method":"notifications/tools/list_changed"}')
        assert (played.junk, played.connection.junk_lines) == ([line], 1)
        assert played.news == [ListChanged()]


async def test_the_end_of_a_server_is_told_after_its_last_words() -> None:
    """The last answer would be lost."""
    async with greeted() as played:
        played.begins_call()
        os.write(played._stdout, b'{"id":%d,"result":{}}\n' % ID)
        played.hangs_up()
        await played.connection.ended.wait()
        assert played.ended == [SplitResult(b"{}")]
        assert played.connection.overflow is None


async def test_a_line_that_is_too_long_is_an_end_that_says_so() -> None:
    """A user would not learn which limit to raise."""
    async with stage(max_line_bytes=100) as played:
        await played.says(b"x" * 101)
        assert played.connection.ended.is_set()
        assert played.connection.overflow is not None
        assert played.connection.overflow.max_bytes == 100


async def test_nothing_is_written_to_a_server_that_was_closed() -> None:
    """A descriptor that belongs to somebody else by then would be written to."""
    async with greeted() as played:
        played.connection.close()
        played.connection.list_items(1, "tools", played.ended.append)
        await turns()
        assert played.asked() == []


# Other requests, and what the server asks

CAPABLE = '{"elicitation":{"form":{}},"sampling":{},"roots":{"listChanged":true}}'
ASKS = b'{"jsonrpc":"2.0","id":"q","method":"%s","params":{"a":1}}'


async def test_any_request_is_asked_and_its_result_is_not_judged_as_a_tools() -> None:
    """A resource or a method of tomorrow would be taken for a broken tool."""
    async with greeted() as played:
        forward = Forward(7, 30.0, "tasks/result", progress=True, meta=b'{"m":1}')
        played.connection.forward(forward, b'{"x":[1.0]}', played.ended.append)
        [asked] = played.asked()
        assert (asked["method"], asked["params"]) == (
            "tasks/result",
            {"x": [1.0], "_meta": {"m": 1, "progressToken": ID}},
        )
        await played.says(b'{"jsonrpc":"2.0","id":%d,"result":{"content":{"type":"text"}}}' % ID)
        assert played.ended == [SplitResult(b'{"content":{"type":"text"}}')]


async def test_an_error_is_kept_as_the_server_said_it() -> None:
    """A client would be told our words in place of a code and its data."""
    async with greeted() as played:
        played.connection.forward(Forward(7, 30.0, "resources/read"), b"{}", played.ended.append)
        await played.says(b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32002,"message":"none","data":{"uri":"x"}}}' % ID)
        [fault] = played.ended
        assert isinstance(fault, FaultRecord)
        assert fault.reply == ReplyError(-32002, "none", b'{"uri":"x"}')


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("prompts", "prompts/list"),
        ("resources", "resources/list"),
        ("resourceTemplates", "resources/templates/list"),
    ],
)
async def test_each_list_is_taken_by_its_own_request(kind: Any, method: str) -> None:
    """Only tools could be had."""
    async with greeted() as played:
        played.connection.list_items(7, kind, played.ended.append)
        asked = await played.answers({"result": {kind: [{"name": "a"}]}})
        assert asked["method"] == method
        assert played.ended == [SplitResult(b'[{"name": "a"}]')]


async def test_a_modern_server_is_told_who_asks_with_each_request() -> None:
    """It would ask one who cannot answer, and log for one who does not read."""
    async with greeted(MODERN, DISCOVERED, CAPABLE) as played:
        played.connection.list_items(1, "tools", played.ended.append)
        played.connection.call(Call(2, 30.0, "echo"), b"{}", played.ended.append)
        plain = Call(3, 30.0, "echo", capabilities=b'{"roots":{}}', log_level="error")
        played.connection.call(plain, b"{}", played.ended.append)
        forward = Forward(4, 30.0, "prompts/get", capabilities=b'{"sampling":{}}')
        played.connection.forward(forward, b"{}", played.ended.append)
        await turns()
        metas = [asked["params"]["_meta"] for asked in played.asked()]
        of = "io.modelcontextprotocol/"
        assert [meta[f"{of}clientCapabilities"] for meta in metas] == [
            json.loads(CAPABLE),
            {},
            {"roots": {}},
            {"sampling": {}},
        ]
        assert [meta[f"{of}logLevel"] for meta in metas] == ["info", "info", "error", "info"]


async def test_an_older_server_is_told_once_what_callers_can_be_asked() -> None:
    """It would offer no tool that asks."""
    async with stage(capabilities=CAPABLE) as played:
        [asked] = played.asked()
        assert asked["params"]["capabilities"] == json.loads(CAPABLE)


async def test_what_it_asks_is_passed_on_and_answered() -> None:
    """Its user could not be asked."""
    async with greeted(capabilities=CAPABLE) as played:
        await played.says(ASKS % b"elicitation/create", (ASKS % b"roots/list").replace(b'"q"', b"7"))
        assert played.news == [Asked(1, "elicitation/create"), Asked(2, "roots/list")]
        assert played.bodies == [b'{"a":1}'] * 2
        played.connection.answer(AskAnswer(1), b'{"action":"accept"}')
        played.connection.answer(AskAnswer(2, -1, "no"), b"[1]")
        played.connection.answer(AskAnswer(2), b"{}")
        await turns()
        first, second = played.asked()
        assert (first["id"], first["result"]) == ("q", {"action": "accept"})
        assert (second["id"], second["error"]) == (7, {"code": -1, "message": "no", "data": [1]})
        await played.says(
            (ASKS % b"roots/list").replace(b'"q"', b"8"),
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}',
        )
        assert played.news[2:] == [Asked(3, "roots/list"), AskEnded(3)]


@pytest.mark.parametrize("capabilities", ["{}", '{"roots":{}}'])
async def test_what_nobody_can_be_asked_is_refused_at_once(capabilities: str) -> None:
    """A server that may not ask would wait, and its question travel for nothing."""
    async with greeted(capabilities=capabilities) as played:
        await played.says(ASKS % b"elicitation/create")
        [refused] = played.asked()
        assert (refused["error"]["code"], played.news) == (-32601, [])


async def test_a_server_that_asks_a_thousand_times_is_refused_the_most() -> None:
    """Each question costs the supervisor a way there and back."""
    async with greeted(capabilities=CAPABLE) as played:
        for number in range(1_000):
            await played.says((ASKS % b"roots/list").replace(b'"q"', b"%d" % number))
            for frame in played.news:
                assert isinstance(frame, Asked)
                played.connection.answer(AskAnswer(frame.ask_id, -1, "no"), b"")
            played.asked()
        assert len(played.news) == ASK_BURST


async def test_clients_words_and_wishes_are_passed_on_in_the_servers_era() -> None:
    """Roots of yesterday; and no news of what a client subscribed."""
    async with greeted() as played:
        played.connection.tell("notifications/roots/list_changed", b"")
        played.connection.listen(("file:///a",))
        await turns()
        [told] = played.asked()
        assert told == {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
    async with greeted(MODERN, DISCOVERED) as played:
        played.connection.listen(("file:///a",))
        [listens] = played.asked()
        assert listens["params"]["notifications"] == {"resourceSubscriptions": ["file:///a"]}
        await played.says(
            json.dumps(
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/resources/updated",
                    "params": {
                        "uri": "file:///a",
                        "_meta": {"io.modelcontextprotocol/subscriptionId": listens["id"]},
                    },
                }
            ).encode()
        )
        assert played.news == [Updated("file:///a")]
