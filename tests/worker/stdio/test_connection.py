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

from quarterdeck_protocol.faults import Delivery, FaultRecord
from quarterdeck_protocol.link.frames import Call, ListChanged, Log, OpenOrder, Progress
from quarterdeck_protocol.mcp.jsonrpc import SplitResult
from quarterdeck_protocol.mcp.relay import FIRST_ID
from quarterdeck_protocol.mcp.relay.events import GreetingFailed
from quarterdeck_worker.notifications import Notifier
from quarterdeck_worker.stdio.connection import StdioConnection

pytestmark = pytest.mark.anyio

ID = FIRST_ID + 7
"""Of the request with the number 7."""

LISTENS: JsonObject = {"result": {**DISCOVERED["result"], "capabilities": {"tools": {"listChanged": True}}}}


class Stage:
    """A server's ends of the pipes, the connection over ours, and all that came of it."""

    pid = 4711

    def __init__(self, era: str, max_line_bytes: int) -> None:
        self._stdin, self.stdin_fd = os.pipe()
        self.stdout_fd, self._stdout = os.pipe()
        self._fds = {self._stdin, self._stdout, self.stdin_fd, self.stdout_fd}
        for fd in self._fds:
            os.set_blocking(fd, False)
        self.news: list[Progress | Log | ListChanged] = []
        self.junk: list[bytes] = []
        self.ended: list[SplitResult | FaultRecord] = []
        order = OpenOrder(era=era, max_result_bytes=10_000)
        notifier = Notifier(self._post, lambda: 0.0)
        played: Any = self
        self.connection = StdioConnection(played, order, notifier, max_line_bytes=max_line_bytes)
        self.connection.on_junk = self.junk.append

    def _post(self, frame: Progress | Log | ListChanged) -> bool:
        self.news.append(frame)
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
async def stage(era: str = LEGACY, max_line_bytes: int = 1_000_000) -> AsyncIterator[Stage]:
    """A pretend server over pipes, not greeted yet."""
    played = Stage(era, max_line_bytes)
    try:
        with anyio.fail_after(PATIENCE_S):
            yield played
    finally:
        played.close()


@asynccontextmanager
async def greeted(era: str = LEGACY, greeting: JsonObject = INITIALIZED) -> AsyncIterator[Stage]:
    """A server that can be asked."""
    async with stage(era) as played:
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


async def test_a_silent_server_is_greeted_in_the_older_way_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that never answer what they do not know could not be used."""
    monkeypatch.setattr("quarterdeck_protocol.mcp.relay.greeting.PROBE_S", 0.0)
    async with stage(era="") as played:
        methods: list[str] = []
        while "initialize" not in methods:
            methods += [message["method"] for message in played.asked()]
            await turns(1)
        assert methods[0] == "server/discover"


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
        played.connection.list_tools(7, played.ended.append)
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
    monkeypatch.setattr("quarterdeck_protocol.mcp.relay.connection.MAX_IN_FLIGHT", 0)
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
    ("params", "line"),
    [
        (b'{"level":"error","logger":"db","data":"hm"}', Log("error", "db", "hm")),
        (b'{"data":{"a":[1]}}', Log("info", "", '{"a": [1]}')),
        (b"{}", Log("info", "", "null")),
    ],
)
async def test_log_lines_are_news(params: bytes, line: Log) -> None:
    """A server's own log would be lost."""
    async with greeted() as played:
        await played.says(b'{"jsonrpc":"2.0","method":"notifications/message","params":%s}' % params)
        assert played.news == [line]


async def test_changed_tools_are_news_once_and_other_changes_none() -> None:
    """A storm of changes would be a storm of frames; changed prompts would have tools listed anew."""
    async with greeted() as played:
        await played.says(b'{"method":"notifications/prompts/list_changed"}')
        assert played.news == []
        await played.says(*[b'{"method":"notifications/tools/list_changed"}'] * 3)
        assert played.news == [ListChanged()]


async def test_a_modern_server_that_announces_changes_is_listened_to() -> None:
    """Its new tools would be seen at its next start."""
    async with stage(MODERN) as played:
        await played.answers(LISTENS)
        [asked] = played.asked()
        assert asked["method"] == "subscriptions/listen"
        assert asked["params"]["notifications"] == {"toolsListChanged": True}


async def test_other_notifications_are_heard_and_left() -> None:
    """A server that says more than the link can carry would be taken for one that writes junk."""
    async with greeted() as played:
        await played.says(
            b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x"}}',
            b'{"jsonrpc":"2.0","method":"notifications/of/tomorrow"}',
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
        )
        assert (played.news, played.junk, played.asked()) == ([], [], [])


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
        played.connection.list_tools(1, played.ended.append)
        await turns()
        assert played.asked() == []
