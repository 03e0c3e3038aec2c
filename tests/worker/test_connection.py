"""One MCP connection, whatever carries it: the relay's lines leave, its events arrive where they belong."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.servers.greetings import DISCOVERED, INITIALIZED, LEGACY, MODERN, JsonObject

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord, ReplyError
from quarterdeck_protocol.link.frames import (
    AskAnswer,
    Asked,
    AskEnded,
    Call,
    Forward,
    List,
    ListChanged,
    Listening,
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
from quarterdeck_worker.connection import Connection
from quarterdeck_worker.notifications import ASK_BURST, Notifier
from quarterdeck_worker.server import Outcome

ID = FIRST_ID + 7  # of the request with the number 7
CAPABLE = '{"elicitation":{"form":{}},"sampling":{},"roots":{"listChanged":true}}'
ASKS = b'{"jsonrpc":"2.0","id":"q","method":"%s","params":{"a":1}}'
STUCK = FaultRecord(FaultKind.TOOL_ERROR, "it does not read", "busy", Delivery.NOT_SENT)


class Stage:
    """A connection over a carrier that a test plays, and all that came of it."""

    def __init__(self, era: str, capabilities: str) -> None:
        self.news: list[News] = []
        self.bodies: list[bytes] = []
        self.junk: list[bytes] = []
        self.ended: list[Outcome] = []
        self.can_write = True
        self._written = b""
        order = OpenOrder(protocol=era, max_result_bytes=10_000, capabilities=capabilities)
        notifier = Notifier(self._post, lambda: 0.0)
        self.connection = Connection(order, notifier, lambda _, end: self.ended.append(end), self.junk.append, 4711)
        self.connection.begin(self)

    def _post(self, frame: News, body: bytes = b"") -> bool:
        self.news.append(frame)
        self.bodies.append(body)
        return True

    def write(self, lines: bytes) -> None:
        self._written += lines

    def refusal(self) -> FaultRecord | None:
        return None if self.can_write else STUCK

    def asked(self) -> list[JsonObject]:
        """What the server was written since the last time."""
        lines, self._written = self._written.splitlines(), b""
        return [json.loads(line) for line in lines]

    def answers(self, reply: JsonObject) -> JsonObject:
        """The server answers the one request that it was sent, which is returned."""
        [asked] = self.asked()
        self.says(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **reply}).encode())
        return asked

    def says(self, *lines: bytes) -> None:
        for line in lines:
            self.connection.receive(line)


@contextmanager
def stage(era: str = LEGACY, capabilities: str = "{}") -> Iterator[Stage]:
    played = Stage(era, capabilities)
    yield played
    played.connection.close()


@contextmanager
def greeted(era: str = LEGACY, greeting: JsonObject = INITIALIZED, capabilities: str = "{}") -> Iterator[Stage]:
    with stage(era, capabilities) as played:
        played.answers(greeting)
        assert played.connection.greeting.done()
        played.asked()
        yield played


async def test_a_greeted_server_is_known_by_what_it_said() -> None:
    """Nobody would see which server it is; it would offer no tool that asks."""
    with stage(capabilities=CAPABLE) as played:
        asked = played.answers(INITIALIZED)
        assert (asked["method"], asked["params"]["clientInfo"]["name"]) == ("initialize", "quarterdeck")
        assert asked["params"]["capabilities"] == json.loads(CAPABLE)
        assert [message["method"] for message in played.asked()] == ["notifications/initialized"]
        card = played.connection.card
        assert (card.era, card.pid, card.name, card.announces) == (LEGACY, 4711, "scripted", ("tools",))


async def test_a_greeting_that_fails_says_why_and_one_that_never_ends_ends_with_its_connection() -> None:
    """A user would wait until the deadline, and learn nothing."""
    with stage() as played:
        played.answers({"error": {"code": -1, "message": "not today"}})
        assert await played.connection.greeted() == GreetingFailed("not today", -1)
    with stage() as played:
        played.connection.end()
        assert await played.connection.greeted() is None


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"id":%d,"result":{"content":[]}}' % ID, None),
        (b'{"id":%d,"error":{"code":-1,"message":"no"}}' % ID, "reply_error"),
        (b'{"id":%d,"result":[]}' % ID, "bad_output"),
        (b'{"id":%d,"result":{"a":' % ID, "bad_output"),
    ],
)
async def test_a_call_ends_once_with_its_answer(line: bytes, code: str | None) -> None:
    """Nothing could be called, or a caller would wait for its deadline."""
    with greeted() as played:
        played.connection.ask(Call(7, 30.0, "echo", progress=True), b"")
        [asked] = played.asked()
        assert asked["params"] == {"name": "echo", "arguments": {}, "_meta": {"progressToken": ID}}
        assert not played.connection.is_at_rest
        played.says(line, line)
        [end] = played.ended
        if code is None:
            assert end == SplitResult(b'{"content":[]}')
        else:
            assert isinstance(end, FaultRecord)
            assert (end.code, end.delivery) == (code, Delivery.ANSWERED)
        assert played.connection.is_at_rest


async def test_a_request_that_its_carrier_cannot_deliver_ends_in_the_carriers_fault() -> None:
    """A lost HTTP request would wait for its deadline, or be told as the server's own word."""
    with greeted() as played:
        played.connection.ask(Call(7, 30.0, "echo"), b"{}")
        played.connection.ask(List(8, 30.0, "tools"))
        call, listing = (asked["id"] for asked in played.asked())
        assert played.connection.awaits(call)
        for wire_id in (call, listing, listing, 99):
            played.connection.fail(wire_id, STUCK)
        assert played.ended == [STUCK, STUCK]
        assert not played.connection.awaits(call)


async def test_an_answer_that_can_be_of_one_request_alone_ends_it_whatever_it_says() -> None:
    """A server that answers with another id, none, or nonsense on a request's own connection would hold it up."""
    for line in (b'{"id":null,"error":{"code":-5,"message":"no"}}', b'{"id":1,"result":{}}', b"nonsense"):
        with greeted() as played:
            played.connection.ask(Call(7, 30.0, "echo"), b"{}")
            played.connection.receive(line, ID)
            assert len(played.ended) == 1


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources", "resourceTemplates"])
async def test_each_list_is_taken_whole_by_its_own_request(kind: Any) -> None:
    """Only tools could be had, or the first page of them."""
    with greeted() as played:
        played.connection.ask(List(7, 30.0, kind))
        first = played.answers({"result": {kind: [{"name": "a"}], "nextCursor": "n"}})
        assert first["method"] == {"resourceTemplates": "resources/templates"}.get(kind, kind) + "/list"
        assert played.answers({"result": {kind: [{"name": "b"}]}})["params"] == {"cursor": "n"}
        assert played.ended == [SplitResult(b'[{"name": "a"},{"name": "b"}]')]


async def test_a_request_that_is_cancelled_is_told_once_and_ends_for_nobody() -> None:
    """The server would go on working for nobody, or its late answer end another call."""
    with greeted() as played:
        played.connection.ask(Call(7, 30.0, "echo"), b"{}")
        played.asked()
        for reason in ("enough", "again"):
            played.connection.cancel(7, reason)
        [told] = played.asked()
        assert told["method"] == "notifications/cancelled"
        assert told["params"] == {"requestId": ID, "reason": "enough"}
        played.says(b'{"id":%d,"result":{}}' % ID)
        assert played.ended == []


async def test_a_server_that_takes_no_more_is_asked_and_told_nothing_until_it_does() -> None:
    """What it never reads would pile up in the worker, or be sent long after its caller has gone."""
    with greeted() as played:
        played.can_write = False
        assert played.connection.ask(Call(7, 30.0, "echo"), b"{}") is STUCK
        assert played.connection.ask(Forward(8, 30.0, "prompts/get"), b"{}") is STUCK
        assert played.connection.ask(List(9, 30.0, "tools")) is STUCK
        played.connection.tell("notifications/roots/list_changed", b"")
        played.says(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        assert (played.asked(), played.ended) == ([], [])
        played.can_write = True
        played.connection.flush()
        assert [message["result"] for message in played.asked()] == [{}]


async def test_more_requests_than_can_wait_are_refused_unsent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of calls would fill the worker's memory."""
    monkeypatch.setattr("quarterdeck_protocol.mcp.client.connection.MAX_IN_FLIGHT", 1)
    with greeted() as played:
        assert played.connection.ask(Call(7, 30.0, "echo"), b"{}") is None
        refused = played.connection.ask(Call(8, 30.0, "echo"), b"{}")
        assert refused is not None
        assert (refused.code, refused.delivery) == ("busy", Delivery.NOT_SENT)
        assert len(played.asked()) == 1


async def test_any_request_is_asked_and_its_end_is_kept_as_the_server_said_it() -> None:
    """A resource would be taken for a broken tool; a client be told our words instead of a code and its data."""
    with greeted() as played:
        played.connection.ask(Forward(7, 30.0, "tasks/result", progress=True, meta=b'{"m":1}'), b'{"x":[1.0]}')
        [asked] = played.asked()
        assert asked["method"] == "tasks/result"
        assert asked["params"] == {"x": [1.0], "_meta": {"m": 1, "progressToken": ID}}
        played.says(b'{"jsonrpc":"2.0","id":%d,"result":{"content":{"type":"text"}}}' % ID)
        played.connection.ask(Forward(8, 30.0, "resources/read"), b"{}")
        played.answers({"error": {"code": -32002, "message": "none", "data": {"uri": "x"}}})
        result, fault = played.ended
        assert result == SplitResult(b'{"content":{"type":"text"}}')
        assert isinstance(fault, FaultRecord)
        assert fault.reply == ReplyError(-32002, "none", b'{"uri": "x"}')


async def test_what_a_server_says_unasked_is_news_and_the_rest_is_junk() -> None:
    """A client would miss progress, log lines and changes; a server that prints would break its own session."""
    with greeted() as played:
        played.connection.ask(Call(7, 30.0, "echo", progress=True), b"{}")
        lines = [
            b'{"method":"notifications/progress","params":{"progressToken":%d,"progress":1,"total":2}}' % ID,
            b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","logger":"db","data":[1]}}',
            *[b'{"method":"notifications/tools/list_changed"}'] * 2,
            b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x"}}',
            b'{"jsonrpc":"2.0","method":"notifications/of/tomorrow"}',
            b'{"method":"notifications/progress"}',
            b"hello world",
        ]
        played.says(*lines)
        other = Note("notifications/of/tomorrow")
        assert played.news == [Progress(7, 1.0, 2.0), Log("error", "db"), ListChanged(), Updated("x"), other]
        assert played.bodies[1] == b"[1]"
        assert (played.junk, played.connection.junk_lines) == (lines[-2:], 2)


async def test_a_list_makes_later_changes_news_again() -> None:
    """The second change of a server's tools would never be told."""
    changed = b'{"method":"notifications/tools/list_changed"}'
    with greeted() as played:
        played.says(changed, changed)
        played.connection.ask(List(1, 30.0))
        played.says(changed)
        assert played.news == [ListChanged(), ListChanged()]


async def test_a_modern_server_is_listened_to_for_its_lists_and_what_is_wanted_besides() -> None:
    """Its new tools would be seen at its next start; a client hear nothing of what it subscribed."""
    announcing = {"result": {**DISCOVERED["result"], "capabilities": {"tools": {"listChanged": True}}}}
    with stage(MODERN) as played:
        played.answers(announcing)
        [asked] = played.asked()
        assert (asked["method"], asked["params"]["notifications"]) == (
            "subscriptions/listen",
            {"toolsListChanged": True},
        )
        played.connection.listen(("file:///a",))
        *_, asked = played.asked()
        filtered = {"toolsListChanged": True, "resourceSubscriptions": ["file:///a"]}
        assert asked["params"]["notifications"] == filtered
        stamp = {"io.modelcontextprotocol/subscriptionId": asked["id"]}
        for method, params in (
            ("subscriptions/acknowledged", {"notifications": filtered}),
            ("resources/updated", {"uri": "file:///a"}),
        ):
            note = {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": {**params, "_meta": stamp}}
            played.says(json.dumps(note).encode())
        assert played.news == [Listening(1), Updated("file:///a")]


async def test_a_modern_server_is_told_who_asks_with_each_request() -> None:
    """It would ask one who cannot answer, and log for one who does not read."""
    with greeted(MODERN, DISCOVERED, CAPABLE) as played:
        played.connection.ask(List(1, 30.0, "tools"))
        played.connection.ask(Call(2, 30.0, "echo"), b"{}")
        played.connection.ask(Call(3, 30.0, "echo", capabilities=b'{"roots":{}}', log_level="error"), b"{}")
        played.connection.ask(Forward(4, 30.0, "prompts/get", capabilities=b'{"sampling":{}}'), b"{}")
        metas = [asked["params"]["_meta"] for asked in played.asked()]
        of = "io.modelcontextprotocol/"
        able = [meta[f"{of}clientCapabilities"] for meta in metas]
        assert able == [json.loads(CAPABLE), {}, {"roots": {}}, {"sampling": {}}]
        assert [meta[f"{of}logLevel"] for meta in metas] == ["info", "info", "error", "info"]


async def test_what_a_server_asks_is_passed_on_and_answered() -> None:
    """Its user could not be asked."""
    with greeted(capabilities=CAPABLE) as played:
        played.says(ASKS % b"elicitation/create", (ASKS % b"roots/list").replace(b'"q"', b"7"))
        assert played.news == [Asked(1, "elicitation/create"), Asked(2, "roots/list")]
        assert played.bodies == [b'{"a":1}'] * 2
        played.connection.answer(AskAnswer(1), b'{"action":"accept"}')
        played.connection.answer(AskAnswer(2, -1, "no"), b"[1]")
        played.connection.answer(AskAnswer(2), b"{}")
        first, second = played.asked()
        assert (first["id"], first["result"]) == ("q", {"action": "accept"})
        assert (second["id"], second["error"]) == (7, {"code": -1, "message": "no", "data": [1]})
        played.says(
            (ASKS % b"roots/list").replace(b'"q"', b"8"),
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}',
        )
        assert played.news[2:] == [Asked(3, "roots/list"), AskEnded(3)]


@pytest.mark.parametrize("capabilities", ["{}", '{"roots":{}}'])
async def test_what_nobody_can_be_asked_is_refused_at_once(capabilities: str) -> None:
    """A server that may not ask would wait, and its question travel for nothing."""
    with greeted(capabilities=capabilities) as played:
        played.says(ASKS % b"elicitation/create")
        [refused] = played.asked()
        assert (refused["error"]["code"], played.news) == (-32601, [])


async def test_a_server_that_asks_a_thousand_times_is_refused_the_most() -> None:
    """Each question costs the supervisor a way there and back."""
    with greeted(capabilities=CAPABLE) as played:
        for number in range(1_000):
            played.says((ASKS % b"roots/list").replace(b'"q"', b"%d" % number))
            for frame in played.news:
                assert isinstance(frame, Asked)
                played.connection.answer(AskAnswer(frame.ask_id, -1, "no"), b"")
        assert len(played.news) == ASK_BURST
        assert played.asked()[-1]["error"]["code"] == -32603


async def test_clients_words_are_passed_on() -> None:
    """A server would work with the roots of yesterday."""
    with greeted() as played:
        played.connection.tell("notifications/roots/list_changed", b"")
        played.connection.listen(("file:///a",))  # an older server is asked, by an ordinary request
        assert played.asked() == [{"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}]
