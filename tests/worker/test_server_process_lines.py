"""A stdio server's lines, sorted: answers of raw calls, news, what the SDK waits for, requests, and junk."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from support.waiting import PATIENCE_S, turns

from quarterdeck_protocol.link.frames import Call, ListChanged, Log, Progress
from quarterdeck_protocol.mcp.jsonrpc import SplitResult
from quarterdeck_worker import server_process as stdio_module
from quarterdeck_worker.notifications import Notifier
from quarterdeck_worker.server_process import StdioLines
from quarterdeck_worker.tool_calls import FIRST_RAW_ID, Ended, RawCalls

pytestmark = pytest.mark.anyio

ID = FIRST_RAW_ID + 7
"""Of the request with the number 7."""


class Stage:
    """A server's ends of the pipes, the lines over ours, and all that came of them."""

    def __init__(self, max_line_bytes: int = 1_000_000) -> None:
        self._stdin, ours_in = os.pipe()
        ours_out, self._stdout = os.pipe()
        self._fds = {self._stdin, self._stdout, ours_in, ours_out}
        for fd in self._fds:
            os.set_blocking(fd, False)
        self.news: list[Progress | Log | ListChanged] = []
        self.junk: list[bytes] = []
        self.ended: list[Ended] = []
        self.lines = StdioLines(ours_in, ours_out, Notifier(self._post, lambda: 0.0), max_line_bytes=max_line_bytes)
        self.lines.on_junk = self.junk.append

    def _post(self, frame: Progress | Log | ListChanged) -> bool:
        self.news.append(frame)
        return True

    def begins_calls(self) -> None:
        """Open the way of raw calls, and begin one call on it as request 7."""
        self.lines.raw_calls = RawCalls(self.lines.pipe.write, envelope={}, max_bytes=10_000)
        self.lines.raw_calls.begin(Call(7, 30.0, "echo", progress=True), b"{}", self.ended.append)
        assert json.loads(self.heard())["id"] == ID

    async def says(self, *lines: bytes) -> None:
        """The server writes these lines; what follows from them happens."""
        os.write(self._stdout, b"".join(line + b"\n" for line in lines))
        await turns()

    def heard(self) -> bytes:
        """What the server was written."""
        try:
            return os.read(self._stdin, 1 << 20)
        except BlockingIOError:
            return b""

    def hangs_up(self) -> None:
        """The server closes its stdout."""
        self._fds.remove(self._stdout)
        os.close(self._stdout)

    def close(self) -> None:
        """Release every descriptor."""
        self.lines.pipe.close()
        for fd in self._fds:
            os.close(fd)


@asynccontextmanager
async def stage(max_line_bytes: int = 1_000_000) -> AsyncIterator[Stage]:
    """A pretend server over pipes."""
    played = Stage(max_line_bytes)
    try:
        with anyio.fail_after(PATIENCE_S):
            yield played
    finally:
        played.close()


REQUEST = JSONRPCRequest(jsonrpc="2.0", id=1, method="initialize", params={"a": None})


async def test_what_the_sdk_writes_reaches_the_server_as_one_line_each() -> None:
    """A server would be sent half a message, or members that nobody set."""
    async with stage() as played, played.lines.streams() as (_, write):
        await write.send(SessionMessage(REQUEST))
        await write.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="x\ny")))
        await turns()
        first, second = played.heard().splitlines()
        assert json.loads(first) == {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"a": None}}
        assert json.loads(second) == {"jsonrpc": "2.0", "method": "x\ny"}


async def test_the_sdk_hears_the_answers_that_it_waits_for_and_no_others() -> None:
    """A server could flood the SDK's session with answers that nobody asked for."""
    async with stage() as played, played.lines.streams() as (read, write):
        await write.send(SessionMessage(REQUEST))
        await turns()
        answer = b'{"jsonrpc":"2.0","id":1,"result":{"n":1}}'
        await played.says(
            b'{"jsonrpc":"2.0","id":2,"result":{}}', answer, answer, b'{"jsonrpc":"2.0","id":null,"result":{}}'
        )
        item = await read.receive()
        assert isinstance(item, SessionMessage)
        assert isinstance(item.message, JSONRPCResponse)
        assert (item.message.id, item.message.result) == (1, {"n": 1})
        await turns()
        with pytest.raises(anyio.WouldBlock):
            read.receive_nowait()
        assert played.junk == []


@pytest.mark.parametrize(
    "broken",
    [
        b'{"jsonrpc":"2.0","id":1,"result":{"text":"\\ud800"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"result":%s}' % (b"[" * 300 + b"]" * 300),
        b'{"jsonrpc":"2.0","id":1,"result":[]}',
        b'{"jsonrpc":"2.0","result":{"a":NaN},"id":"1"}',
    ],
)
async def test_an_answer_that_the_sdk_cannot_read_is_an_error_at_once(broken: bytes) -> None:
    """Whoever asked would wait until the deadline, and learn nothing."""
    async with stage() as played, played.lines.streams() as (read, write):
        await write.send(SessionMessage(REQUEST))
        await turns()
        await played.says(broken)
        item = await read.receive()
        assert isinstance(item, SessionMessage)
        assert isinstance(item.message, JSONRPCError)
        assert (item.message.id, item.message.error.message) == (1, "the server's answer does not follow MCP")
        assert played.junk == [broken]


async def test_a_notification_of_megabytes_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server would have its worker take many times that from our memory."""
    monkeypatch.setattr(stdio_module, "MAX_NOTE_BYTES", 200)
    async with stage() as played:
        for size in (300, 3):
            data = b"x" * size
            await played.says(b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"%s"}}' % data)
        assert [note.data for note in played.news if isinstance(note, Log)] == ["xxx"]
        assert played.lines.junk_lines == 1


async def test_answers_of_our_range_end_raw_calls() -> None:
    """Every call would pay for the SDK, or be answered twice."""
    async with stage() as played, played.lines.streams() as (read, _):
        played.begins_calls()
        await played.says(
            b'{"jsonrpc":"2.0","id":"%d","result":{"content":[]}}' % ID, b'{"id":%d,"result":{}}' % (ID + 5)
        )
        assert played.ended == [Ended(SplitResult(b'{"content":[]}'))]
        with pytest.raises(anyio.WouldBlock):
            read.receive_nowait()


async def test_a_servers_requests_are_answered_at_once() -> None:
    """A server that pings would hang up, one that asks for more would wait for ever."""
    async with stage() as played:
        await played.says(
            b'{"jsonrpc":"2.0","id":"p","method":"ping"}',
            b'{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage","params":{}}',
        )
        ping, sampling = map(json.loads, played.heard().splitlines())
        assert ping == {"jsonrpc": "2.0", "id": "p", "result": {}}
        assert (sampling["id"], sampling["error"]["code"]) == (5, -32601)


async def test_a_server_that_asks_but_does_not_read_gets_no_more_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of pings would fill our memory with answers."""
    monkeypatch.setattr("quarterdeck_worker.server_pipe.MAX_UNREAD_BYTES", 100)
    async with stage() as played:
        played.lines.pipe.write(b"x" * 1_000_000)
        waiting = len(played.lines.pipe._queue)
        await played.says(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        assert len(played.lines.pipe._queue) == waiting


async def test_progress_is_given_to_the_call_that_it_belongs_to() -> None:
    """A client would see another's progress."""
    note = b'{"method":"notifications/progress","params":{"progressToken":%s,"progress":1,"total":2,"message":"m"}}'
    async with stage() as played:
        await played.says(note % b"%d" % ID)
        played.begins_calls()
        await played.says(note % b"%d" % ID, note % b'"%d"' % ID, note % b"1", note % b'"x"')
        assert played.news == [Progress(7, 1.0, 2.0, "m")] * 2


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
    async with stage() as played:
        await played.says(b'{"jsonrpc":"2.0","method":"notifications/message","params":%s}' % params)
        assert played.news == [line]


async def test_changed_tools_are_news_once() -> None:
    """A storm of changes would be a storm of frames."""
    async with stage() as played:
        await played.says(*[b'{"method":"notifications/tools/list_changed"}'] * 3)
        assert played.news == [ListChanged()]


async def test_the_sdk_hears_only_the_notifications_that_it_keeps_account_of() -> None:
    """A flood of notifications would stand before the answers that the SDK waits for."""
    async with stage() as played, played.lines.streams() as (read, _):
        await played.says(
            b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x"}}',
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
        )
        item = await read.receive()
        assert isinstance(item, SessionMessage)
        assert isinstance(item.message, JSONRPCNotification)
        assert item.message.method == "notifications/cancelled"


@pytest.mark.parametrize(
    "line",
    [
        b"hello world",
        b"{",
        b"[]",
        b'{"id":true}',
        b'{"id":1.5,"result":{}}',
        b'{"method":7}',
        b"\xff\xfe",
        b"[" * 30_000,
    ],
    ids=["words", "half", "array", "bool", "float", "number", "bytes", "deep"],
)
async def test_junk_is_counted_and_shown_and_harmless(line: bytes) -> None:
    """A server that prints to stdout would break its own session."""
    async with stage() as played:
        await played.says(line, b'{"method":"notifications/tools/list_changed"}')
        assert played.junk == [line]
        assert played.lines.junk_lines == 1
        assert played.news == [ListChanged()]


@pytest.mark.parametrize(
    "line",
    [
        b'{"method":"notifications/progress","params":{"progress":1}}',
        b'{"method":"notifications/progress"}',
        b'{"method":"notifications/progress","params":{"progressToken":1,"progress":"far"}}',
        b'{"method":"notifications/message","params":{"level":7}}',
        b'{"method":"notifications/message","params":{"data":%s}}' % (b"[" * 2_000 + b"]" * 2_000),
    ],
)
async def test_broken_news_are_counted_and_harmless(line: bytes) -> None:
    """One odd notification would end the server's session."""
    async with stage() as played:
        await played.says(line, b'{"method":"notifications/tools/list_changed"}')
        assert played.lines.junk_lines == 1
        assert played.news == [ListChanged()]


async def test_a_spoiled_answer_ends_its_call() -> None:
    """A caller would wait for its deadline."""
    async with stage() as played:
        played.begins_calls()
        await played.says(b'{"jsonrpc":"2.0","id":%d,"result":{"a":' % ID)
        assert len(played.ended) == 1
        assert played.lines.junk_lines == 1


async def test_an_sdk_that_falls_behind_holds_the_server_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that floods what the SDK keeps account of would fill our memory."""
    monkeypatch.setattr(stdio_module, "MAX_INBOX", 4)
    note = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
    async with stage() as played, played.lines.streams() as (read, _):
        await played.says(*[note] * 4)
        await played.says(b'{"method":"notifications/tools/list_changed"}')
        assert played.news == []
        assert not played.lines.pipe._reading
        for _ in range(4):
            await read.receive()
        await turns()
        assert played.news == [ListChanged()]


async def test_the_end_of_a_server_is_told_after_its_last_words() -> None:
    """The SDK would wait for ever, or miss the last answer."""
    async with stage() as played, played.lines.streams() as (read, _):
        note = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
        os.write(played._stdout, note + b"\n")
        played.hangs_up()
        assert [type(item) async for item in read] == [SessionMessage]
        assert played.lines.ended.is_set()
        assert played.lines.overflow is None


async def test_a_line_that_is_too_long_is_an_end_that_says_so() -> None:
    """A user would not learn which limit to raise."""
    async with stage(max_line_bytes=100) as played, played.lines.streams() as (read, _):
        await played.says(b"x" * 101)
        assert [item async for item in read] == []
        assert played.lines.overflow is not None
        assert played.lines.overflow.max_bytes == 100


async def test_the_streams_end_quietly_when_the_session_is_gone_first() -> None:
    """A server that speaks while it is being closed would look broken."""
    async with stage() as played, played.lines.streams() as (read, _):
        await read.aclose()
        await played.says(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}')
