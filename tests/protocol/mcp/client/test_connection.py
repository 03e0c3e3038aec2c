"""Requests of ours: their lines, their one end each, and what a server can do to spoil it."""

import json
from itertools import product

import pytest
from support.servers.greetings import DISCOVERED, INITIALIZED, LEGACY, MODERN, JsonObject

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord
from quarterdeck_protocol.mcp.client import FIRST_ID, Client, Refusal, Relay, RelayMisuseError, connection
from quarterdeck_protocol.mcp.client.events import Answered, Junk, Listed, ListingFailed, Refused, Spoiled, fault_of
from quarterdeck_protocol.mcp.jsonrpc import SplitResult

from .relays import CLIENT, Talk, in_flight, talk

ID = FIRST_ID + 7
"""Of the request with the number 7."""

PREFIX = "io.modelcontextprotocol/"

ENVELOPE = {
    f"{PREFIX}protocolVersion": MODERN,
    f"{PREFIX}clientInfo": {"name": "us", "version": "1"},
    f"{PREFIX}clientCapabilities": {},
    f"{PREFIX}logLevel": "info",
}


def sent(relay: Relay) -> JsonObject:
    lines = relay.take()
    assert lines.count(b"\n") == 1
    assert lines.endswith(b"\n")
    message: JsonObject = json.loads(lines)
    assert message.pop("jsonrpc") == "2.0"
    return message


PARAMS = (b"", b"{}", b" { } ", b'{"a":{}}', b'{"a":"{"}', b'{\r\n"a":\n1}')
METAS = (b"", b"{}", b' {"x": 1} ', b'{"x":\n1}')


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_a_request_is_one_line_with_its_params_and_its_eras_envelope(era: str) -> None:
    """A server would read half a message, or refuse one without its envelope."""
    for params, meta, progress in product(PARAMS, METAS, (False, True)):
        relay = talk(era).relay
        assert relay.request(7, "a/b", params, meta=meta, progress=progress) is None
        own = {**json.loads(meta or b"{}"), **(ENVELOPE if era == MODERN else {})}
        if progress:
            own["progressToken"] = ID
        expected = json.loads(params or b"{}") | ({"_meta": own} if own else {})
        message = sent(relay)
        assert message.pop("params", {}) == expected, (params, meta, progress)
        assert message == {"id": ID, "method": "a/b"}


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_a_call_is_the_same_line_as_the_request_that_it_is(era: str) -> None:
    """The quick way would say something else."""
    for arguments, meta, progress in product((b"{}", b'{"a":1}', b'{"a":\r\n1}'), (b"", b'{"x":1}'), (False, True)):
        quick, plain = talk(era).relay, talk(era).relay
        quick.call(7, 'a"b', arguments, meta=meta, progress=progress)
        plain.request(7, "tools/call", b'{"name":"a\\"b","arguments":%s}' % arguments, meta=meta, progress=progress)
        assert sent(quick) == sent(plain), (arguments, meta, progress)


RESULT = b'{"content":[]}'


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (b'"result":{"content":[]}', Answered(7, SplitResult(RESULT))),
        (b'"result":{"isError":true}', Answered(7, SplitResult(b'{"isError":true}', is_error=True))),
        (b'"result":{"resultType":"input_required","x":1}', Answered(7, SplitResult(b'{"x":1}', "input_required"))),
        (b'"result":{"resultType":"task","x":1}', Answered(7, SplitResult(b'{"x":1}', "task"))),
        (b'"error":{"code":-5,"message":"no"}', Refused(7, -5, "no")),
        (b'"error":{"code":-5,"message":"no","data":{"a":[1]}}', Refused(7, -5, "no", b'{"a":[1]}')),
        (b'"error":{"code":1,"message":"no","data":%s}' % (b"[" * 300 + b"]" * 300), Refused(7, 1, "no")),
        (b'"error":{"code":1,"message":"no","data":"%s"}' % (b"x" * 70_000), Refused(7, 1, "no")),
        (b'"error":{}', Refused(7, 0, "")),
        (b'"error":7', Spoiled(7, "the error is not a JSON-RPC error object")),
        (b'"result":{},"error":{}', Spoiled(7, "the answer has both result and error")),
        (b'"x":1', Spoiled(7, "the answer has neither result nor error")),
        (b'"result":[]', Spoiled(7, "not one JSON object: expected an object, got an array")),
        (b'"result":%s' % (b'{"a":' * 300 + b"1" + b"}" * 300), Spoiled(7, "nested deeper than 256 levels")),
        (b'"result":{"a":%s}' % (b"1" * 5_000), Spoiled(7, "a number has more than 4,299 digits")),
        (b'"result":{"resultType":7}', Spoiled(7, "resultType is not text")),
        (b'"result":{"content":{}}', Spoiled(7, "the result's content is not a list")),
    ],
)
def test_an_answer_ends_its_request(answer: bytes, end: object) -> None:
    """A caller would wait for an answer that came, or be given one that its reader refuses."""
    talked = talk()
    talked.relay.call(7, "echo")
    assert talked.say(b'{"jsonrpc":"2.0","id":%d,%s}' % (ID, answer)) == [end]
    assert in_flight(talked.relay) == []


def test_a_result_beyond_the_limit_is_no_answer() -> None:
    """One server could fill the supervisor's memory."""
    talked = talk(max_bytes=100)
    talked.relay.call(7, "echo")
    assert talked.say({"id": ID, "result": {"a": "x" * 100}}) == [Spoiled(7, "109 bytes exceed the limit of 100")]


@pytest.mark.parametrize("said", [ID, str(ID)])
def test_an_id_that_comes_back_as_text_is_the_same(said: int | str) -> None:
    """A server that writes ids as text would answer nobody."""
    talked = talk()
    talked.relay.call(7, "echo")
    assert talked.say({"id": said, "result": {}}) == [Answered(7, SplitResult(b"{}"))]


def test_late_and_forged_and_second_answers_are_dropped() -> None:
    """A caller would be given another's answer, or two."""
    talked = talk()
    talked.relay.call(7, "echo")
    answer: JsonObject = {"id": ID, "result": {}}
    forged: list[JsonObject | bytes] = [{"id": i, "result": {}} for i in (1, 2, ID + 1, str(ID + 1), "x", None, -1)]
    assert talked.say(*forged, {"result": {}}, b'{"id":true}', b'{"id":1e30,"result":{}}') == [
        Junk(b'{"id":true}'),
        Junk(b'{"id":1e30,"result":{}}'),
    ]
    assert talked.say(answer, answer) == [Answered(7, SplitResult(b"{}"))]
    talked.relay.call(8, "echo")
    assert talked.relay.cancel(8, "why")
    assert talked.say({"id": FIRST_ID + 8, "result": {}}) == []


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":%d,"result":{"a":' % ID,
        b'{"jsonrpc":"2.0","result":{"a":NaN},"id":"%d"}' % ID,
        b'{"jsonrpc":"2.0","id":%d,"result":{"text":"\\ud800"}}' % ID,
        b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (ID, b"[" * 30_000),
    ],
)
def test_an_answer_that_is_no_message_ends_its_request(line: bytes) -> None:
    """A caller would wait for its deadline, and learn nothing."""
    talked = talk()
    for request_id in (6, 7, 8):
        talked.relay.call(request_id, "echo")
    assert talked.say(line) == [Junk(line), Spoiled(7, connection.NO_MESSAGE)]
    assert in_flight(talked.relay) == [6, 8]


@pytest.mark.parametrize(
    "line",
    [
        *(b"hello", b"{", b"[]", b'{"method":7}', b"\xff\xfe", b"[" * 30_000, b'{"id":1.5,"result":{}}'),
        b'[{"id":%d}]' % ID,
    ],
    ids=["words", "half", "array", "number", "bytes", "deep", "float", "batch"],
)
def test_junk_is_told_and_harmless(line: bytes) -> None:
    """A server that prints to stdout would break its own session."""
    talked = talk()
    talked.relay.call(7, "echo")
    assert talked.say(line) == [Junk(line)]
    assert in_flight(talked.relay) == [7]
    assert talked.relay.take().count(b"\n") == 1


def test_a_cancelled_request_is_told_to_the_server_and_ends_in_nothing() -> None:
    """A server would work on for nobody."""
    talked = talk()
    relay = talked.relay
    relay.call(7, "echo")
    relay.take()
    assert relay.cancel(7, 'the "user"\nwent')
    assert sent(relay) == {
        "method": "notifications/cancelled",
        "params": {"requestId": ID, "reason": 'the "user"\nwent'},
    }
    assert not relay.cancel(7)
    assert relay.take() == b""


def test_a_cancellation_of_the_modern_era_carries_its_envelope() -> None:
    """A modern server would not heed it."""
    relay = talk(MODERN).relay
    relay.call(7, "echo")
    relay.take()
    relay.cancel(7)
    assert sent(relay)["params"] == {"requestId": ID, "reason": "the caller gave up", "_meta": ENVELOPE}


def test_requests_in_flight_are_bounded_and_a_number_is_used_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never answers would fill our memory with questions; two callers would share one answer."""
    monkeypatch.setattr(connection, "MAX_IN_FLIGHT", 1)
    monkeypatch.setattr(connection, "MAX_LISTS", 1)
    relay = talk().relay
    assert relay.call(7, "echo") is None
    assert relay.call(8, "echo") is relay.request(9, "ping") is Refusal.BUSY
    assert relay.list_all(10, "tools/list", 0.0) is None
    assert relay.list_all(11, "tools/list", 0.0) is Refusal.BUSY
    assert in_flight(relay) == [7]
    monkeypatch.setattr(connection, "MAX_IN_FLIGHT", 9)
    with pytest.raises(RelayMisuseError, match="request 7 is under way already"):
        relay.call(7, "echo")


def test_nothing_is_sent_before_the_greeting() -> None:
    """A server would be asked in an era that it does not speak."""
    relay = Relay(CLIENT, now=0.0, max_bytes=1)
    relay.take()
    assert relay.call(1, "echo") is relay.request(1, "ping") is relay.list_all(1, "tools/list", 0.0) is Refusal.NOT_OPEN
    assert relay.take() == b""
    assert not relay.cancel(1)


@pytest.mark.parametrize("progress", [False, True])
def test_a_modern_server_is_told_for_whom_each_request_is(progress: bool) -> None:
    """It would ask a client what that one cannot answer, or keep from it what it could."""
    other = Client("them", "2", capabilities=b'{"elicitation":{}}', log_level="debug")
    relay = talk(MODERN).relay
    relay.request(1, "tools/call", b'{"name":"a","arguments":{}}', progress=progress, client=other)
    asked = sent(relay)["params"]
    asked["_meta"].pop("progressToken", None)
    assert asked["_meta"] == {
        f"{PREFIX}protocolVersion": MODERN,
        f"{PREFIX}clientInfo": {"name": "them", "version": "2"},
        f"{PREFIX}clientCapabilities": {"elicitation": {}},
        f"{PREFIX}logLevel": "debug",
    }
    relay.call(2, "a", client=other)
    assert sent(relay)["params"] == asked
    relay.call(3, "a")
    assert sent(relay)["params"]["_meta"] == ENVELOPE
    legacy = talk(LEGACY).relay
    legacy.call(1, "a", client=other)
    assert sent(legacy)["params"] == {"name": "a", "arguments": {}}


def test_what_we_offer_is_told_in_both_eras() -> None:
    """A server would not ask what our users could answer."""
    offering = Client("us", "1", capabilities=b'{"roots":{}}')
    for era in (LEGACY, MODERN):
        relay = Relay(offering, now=0.0, max_bytes=1, forced=era)
        params = sent(relay)["params"]
        said = (
            params["capabilities"] if era == LEGACY else params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        )
        assert said == {"roots": {}}


@pytest.mark.parametrize(
    ("end", "kind", "code", "text"),
    [
        (Refused(7, -5, "no", b"[1]"), FaultKind.TOOL_ERROR, "reply_error", "no (JSON-RPC error -5): [1]"),
        (Refused(7, 0, ""), FaultKind.TOOL_ERROR, "reply_error", "the server refused the call (JSON-RPC error 0)"),
        (Spoiled(7, "broken"), FaultKind.TOOL_ERROR, "bad_output", "broken"),
        (ListingFailed(7, "too_many_pages", "no end"), FaultKind.PROTOCOL, "too_many_pages", "no end"),
    ],
)
def test_a_bad_end_is_a_fault_that_says_what_came(
    end: Refused | Spoiled | ListingFailed, kind: FaultKind, code: str, text: str
) -> None:
    """A user would not learn whose error it was."""
    fault = fault_of(end)
    assert (fault.kind, fault.code, fault.message, fault.delivery) == (kind, code, text, Delivery.ANSWERED)


def test_a_list_can_be_given_up() -> None:
    """A list that nobody waits for would be taken to its end."""
    talked = talk(answers={"tools/list": None})
    talked.relay.list_all(7, "tools/list", 0.0)
    talked.settle()
    [asked] = talked.heard
    assert talked.relay.cancel(7)
    talked.settle()
    assert talked.heard[-1]["params"]["requestId"] == asked["id"]
    assert talked.say({"id": asked["id"], "result": {"tools": []}}) == []
    talked.relay.list_all(8, "tools/list", 0.0)
    talked.settle()
    assert talked.say({"id": talked.heard[-1]["id"], "result": {"tools": []}}) == [Listed(8, b"[]")]


@pytest.mark.parametrize("end", ["answered", "cancelled", "lost", "broken"])
def test_only_a_tools_result_is_judged_as_one(end: str) -> None:
    """A result of tomorrow's would be refused; and each other request be remembered for ever."""
    played = Talk({"initialize": INITIALIZED, "x/y": None, "tools/call": None}, forced=LEGACY)
    odd = {"content": {"type": "text"}}
    played.relay.request(1, "x/y")
    played.relay.request(2, "tools/call", b'{"name":"t"}')
    match end:
        case "answered":
            assert played.say({"id": FIRST_ID + 1, "result": odd})[0] == Answered(
                1, SplitResult(b'{"content": {"type": "text"}}')
            )
            assert isinstance(played.say({"id": FIRST_ID + 2, "result": odd})[0], Spoiled)
        case "cancelled":
            played.relay.cancel(1)
        case "lost":
            played.relay.fail(FIRST_ID + 1, FaultRecord(FaultKind.TOOL_ERROR, "it broke off"), 0.0)
        case "broken":
            played.say(b'{"id":%d,"result":{' % (FIRST_ID + 1))
    assert played.relay._no_calls == set()


def test_an_older_server_and_lists_are_told_what_all_callers_can_and_a_request_what_its_own_can() -> None:
    """A server would hide its tools that ask, or ask one who cannot answer."""
    can = b'{"roots":{}}'
    older, newer = (
        Relay(Client("us", "1", handshake=can), now=0.0, max_bytes=1_000, forced=era) for era in (LEGACY, MODERN)
    )
    assert json.loads(older.take())["params"]["capabilities"] == {"roots": {}}
    of = "io.modelcontextprotocol/clientCapabilities"
    [asked] = map(json.loads, newer.take().splitlines())
    assert asked["params"]["_meta"][of] == {"roots": {}}
    newer.receive(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **DISCOVERED}).encode(), 0.0)
    newer.list_all(1, "tools/list", 0.0)
    newer.call(2, "t")
    newer.call(3, "t", client=Client("us", "1", b'{"sampling":{}}'))
    metas = [json.loads(line)["params"]["_meta"][of] for line in newer.take().splitlines()]
    assert metas == [{"roots": {}}, {}, {"sampling": {}}]
