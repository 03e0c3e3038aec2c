"""Which calls bypass the session: tables of openings, calls and cancellations."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import CLIENT_INFO_META_KEY

from quarterdeck.host.journal import Interrupted, Journal, RequestKind
from quarterdeck.host.raw_call_gate import RawCallGate
from quarterdeck.host.raw_calls import (
    INVALID_REQUEST,
    PARSE_ERROR,
    Cancellation,
    UnreadableError,
    WireRequest,
    read_cancellation,
    read_introduction,
    read_message,
)

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"a": {}},
}


def message(**members):
    """One line, read."""
    return read_message(json.dumps({"jsonrpc": "2.0", **members}).encode())


def call(request_id=9, meta=None, **params):
    """A call, with nothing unusual about it unless given."""
    whole = {"name": "s__t", "arguments": {}, **params}
    if meta is not None:
        whole["_meta"] = meta
    return message(id=request_id, method="tools/call", params=whole)


def legacy_gate():
    """A connection that has shaken hands."""
    gate = RawCallGate()
    gate.forwarded(message(id=0, method="initialize", params={}))
    gate.answered(0, is_success=True)
    gate.forwarded(message(method="notifications/initialized"))
    return gate


def modern_gate(envelope=ENVELOPE):
    """A connection whose session has accepted an envelope."""
    gate = RawCallGate()
    gate.forwarded(message(id=0, method="server/discover", params={"_meta": envelope}))
    gate.answered(0, is_success=True)
    return gate


INITIALIZE = message(id=1, method="initialize", params={"_meta": ENVELOPE})
INITIALIZED = message(method="notifications/initialized")
ENVELOPED = message(id=2, method="tools/list", params={"_meta": ENVELOPE})
PING = message(id=3, method="ping")

OPENINGS = [
    ("initialize answered, then initialized", [INITIALIZE, (1, True), INITIALIZED], True),
    ("initialized pipelined behind initialize", [INITIALIZE, INITIALIZED, (1, True)], True),
    ("a modern request answered", [ENVELOPED, (2, True)], True),
    ("nothing yet", [], False),
    ("initialize not answered", [INITIALIZE, INITIALIZED], False),
    ("initialize refused", [INITIALIZE, (1, False), INITIALIZED], False),
    ("never initialized", [INITIALIZE, (1, True)], False),
    ("initialized before initialize", [INITIALIZED, INITIALIZE, (1, True)], False),
    ("a modern request refused", [ENVELOPED, (2, False)], False),
    ("a modern request not answered", [ENVELOPED], False),
    ("a ping answered", [PING, (3, True)], False),
    ("an answer to nothing", [(2, True)], False),
]


@pytest.mark.parametrize(("steps", "is_open"), [row[1:] for row in OPENINGS], ids=[row[0] for row in OPENINGS])
def test_the_way_opens_only_after_the_session_has_answered(steps, is_open):
    """Otherwise it would be a way around the handshake."""
    gate = RawCallGate()
    for step in steps:
        if isinstance(step, tuple):
            gate.answered(step[0], is_success=step[1])
        else:
            gate.forwarded(step)
    assert gate.is_open == is_open
    taken = [gate.admit(call(meta=meta)) is not None for meta in (None, ENVELOPE)]
    assert any(taken) == is_open


def test_a_plain_legacy_call_is_taken_with_its_parts():
    """What is handed on is what the client wrote."""
    line = b'{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"s__\\u0074","arguments":{ "a":1.0 }}}'
    assert legacy_gate().admit(read_message(line)) == WireRequest(
        key="x",
        id_json=b'"x"',
        name="s__t",
        arguments=b'{ "a":1.0 }',
        meta=b"",
        progress_token=b"",
        is_modern=False,
    )


def test_the_hops_own_meta_keys_stay_here():
    """Envelope and progress token are minted anew on the next hop."""
    meta = {**ENVELOPE, "progressToken": "t", "traceparent": "00"}
    taken = modern_gate().admit(call(meta=meta))
    assert (taken.meta, taken.progress_token, taken.is_modern) == (b'{"traceparent":"00"}', b'"t"', True)


def test_a_program_is_one_caller_whether_or_not_a_request_lets_it_be_asked():
    """A server that asks has a process for each program: its calls would go to two of them."""
    unasked = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": {}}
    gate = modern_gate()
    gate.forwarded(message(id=5, method="server/discover", params={"_meta": unasked}))
    gate.answered(5, is_success=True)
    callers = {gate.admit(call(number, meta)).caller for number, meta in enumerate((ENVELOPE, unasked), 6)}
    assert len(callers) == 1
    assert callers != {""}


TAKEN = {
    "no arguments": {"arguments": ...},
    "a progress token": {"meta": {"progressToken": 0}},
    "empty meta": {"meta": {}},
}
LEFT = {
    "null arguments": {"arguments": None},
    "a list of arguments": {"arguments": []},
    "no name": {"name": ...},
    "a name that is no text": {"name": 5},
    "an unknown parameter": {"task": {}},
    "meta that is not an object": {"meta": []},
    "null meta": {"meta": None, "_meta": None},
    "a progress token that is no id": {"meta": {"progressToken": 1.5}},
    "a progress token that is null": {"meta": {"progressToken": None}},
    "an envelope": {"meta": ENVELOPE},
    "half an envelope": {"meta": {"io.modelcontextprotocol/clientInfo": {}}},
    "another method": {"method": "tools/list"},
    "no id": {"id": ...},
    "a null id": {"id": None},
}


def legacy_call(changes):
    """A call with some of its parts changed, or left out."""
    params = {"name": "s__t", "arguments": {}}
    params |= {key: changes[key] for key in ("name", "arguments", "task", "_meta") if key in changes}
    if changes.get("meta") is not None:
        params["_meta"] = changes["meta"]
    members = {"id": 9, "method": "tools/call"} | {key: changes[key] for key in ("id", "method") if key in changes}
    params = {key: value for key, value in params.items() if value is not ...}
    return message(params=params, **{key: value for key, value in members.items() if value is not ...})


@pytest.mark.parametrize("changes", TAKEN.values(), ids=TAKEN.keys())
def test_usual_variations_are_taken(changes):
    """Raw calls are for most calls, not for one spelling."""
    assert legacy_gate().admit(legacy_call(changes)) is not None


@pytest.mark.parametrize("changes", LEFT.values(), ids=LEFT.keys())
def test_whatever_is_unusual_is_left_to_the_session(changes):
    """It judges; a raw call is only passed on."""
    assert legacy_gate().admit(legacy_call(changes)) is None


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":9,"method":"tools/call"}',
        b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":null}',
        b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"s__t","arguments":{"a":\r1}}}',
        b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"s__t","_meta":{"a":\r1}}}',
    ],
)
def test_a_line_that_a_server_could_misread_is_left_to_the_session(line):
    """A carriage return ends a line for some readers."""
    assert legacy_gate().admit(read_message(line)) is None


@pytest.mark.parametrize(
    "meta",
    [
        None,
        {},
        {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": {}},
        {**ENVELOPE, "io.modelcontextprotocol/logLevel": "debug"},
        {"io.modelcontextprotocol/protocolVersion": "2026-07-28"},
    ],
)
def test_a_modern_call_needs_an_envelope_that_was_accepted(meta):
    """Each request stands alone, and the session alone judges envelopes."""
    assert modern_gate().admit(call(meta=meta)) is None


def test_several_accepted_envelopes_are_remembered_within_bounds():
    """A client that varies its log level keeps its speed, one that varies for ever costs no memory."""
    gate = modern_gate()
    envelopes = [{**ENVELOPE, "io.modelcontextprotocol/logLevel": str(number)} for number in range(20)]
    for number, envelope in enumerate(envelopes):
        gate.forwarded(message(id=number, method="ping", params={"_meta": envelope}))
        gate.answered(number, is_success=True)
    taken = [gate.admit(call(meta=envelope)) is not None for envelope in envelopes]
    assert taken == [False] * 12 + [True] * 8


@pytest.mark.parametrize("again", [9, "9"])
def test_an_id_in_flight_is_not_taken_twice_on_either_way(again):
    """One answer could not be told from the other; the SDK holds 9 and "9" for one."""
    gate = legacy_gate()
    gate.began(gate.admit(call(9)), "call")
    assert gate.admit(call(again)) is None
    gate.ended(9)
    assert gate.admit(call(again)) is not None
    gate.forwarded(call(9, task={}))
    assert gate.in_flight == 1
    assert gate.admit(call(again)) is None
    gate.answered(9, is_success=False)
    assert gate.admit(call(again)) is not None


def test_a_cancelled_request_is_no_longer_in_flight():
    """The session never answers it."""
    gate = legacy_gate()
    gate.forwarded(call(9))
    gate.forwarded(message(method="notifications/cancelled", params={"requestId": "9"}))
    assert gate.in_flight == 0


@pytest.mark.parametrize(
    ("method", "params", "cancelled"),
    [
        ("notifications/cancelled", {"requestId": 1, "reason": "r"}, Cancellation(1, "r", b"1")),
        ("notifications/cancelled", {"requestId": "1", "reason": None}, Cancellation(1, "", b'"1"')),
        ("notifications/cancelled", {"requestId": "a"}, Cancellation("a", "", b'"a"')),
        ("notifications/cancelled", {"requestId": None}, None),
        ("notifications/cancelled", {"requestId": True}, None),
        ("notifications/cancelled", [], None),
        ("notifications/progress", {"requestId": 1}, None),
    ],
)
def test_a_cancellation_names_its_request(method, params, cancelled):
    """A malformed one is nobody's, and the session drops it."""
    assert read_cancellation(message(method=method, params=params)) == cancelled


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"", PARSE_ERROR),
        (b"{", PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"a"}x', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","x":"\xff"}', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","params":' + b"[" * 5000 + b"]" * 5000 + b"}", PARSE_ERROR),
        (b"5", INVALID_REQUEST),
        (b"{}", INVALID_REQUEST),
        (b'{"jsonrpc":2.0}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":{}}', INVALID_REQUEST),
    ],
)
def test_an_unreadable_line_says_what_it_is(line, code):
    """JSON-RPC has a code for each."""
    with pytest.raises(UnreadableError) as caught:
        read_message(line)
    assert caught.value.code == code


@given(st.binary(max_size=80) | st.text(max_size=80).map(str.encode))
def test_no_line_breaks_the_reader(line):
    """One client's noise must not reach the loop as an exception."""
    try:
        gate = legacy_gate()
        read = read_message(line)
    except UnreadableError:
        return
    gate.admit(read)
    gate.forwarded(read)


class Noted(Journal):
    """A journal that remembers."""

    def __init__(self):
        self.under_way = {}

    def began(self, id_json, kind):
        """Once for each request that is under way."""
        assert id_json not in self.under_way
        self.under_way[id_json] = kind

    def ended(self, id_json):
        """Of any id."""
        self.under_way.pop(id_json, None)


@pytest.mark.parametrize(
    ("members", "is_modern", "id_json"),
    [
        ({}, False, b"9"),
        ({"params": {}}, False, b"9"),
        ({"params": {"_meta": {}}}, False, b"9"),
        ({"id": "9"}, False, b'"9"'),
        ({"params": {"_meta": ENVELOPE}}, True, b"9"),
        ({}, True, None),
        ({"params": {"_meta": ENVELOPE}}, False, None),
        ({"params": {"_meta": {"progressToken": 1}}}, False, None),
        ({"params": {"_meta": {**ENVELOPE, "x": 1}}}, True, None),
        ({"params": {"cursor": "2"}}, False, None),
        ({"params": []}, False, None),
        ({"method": "prompts/list"}, False, None),
        ({"id": None}, False, None),
        ({"id": 8}, False, None),
    ],
)
def test_a_list_is_taken_only_when_it_says_no_more_than_its_era_needs(members, is_modern, id_json):
    """A page that was asked for would be answered with all tools; or what the session has not judged be answered."""
    gate = modern_gate() if is_modern else legacy_gate()
    gate.forwarded(message(id=8, method="ping"))
    assert gate.admit_list(message(**{"id": 9, "method": "tools/list", **members})) == id_json
    assert RawCallGate().admit_list(message(id=9, method="tools/list")) is None


def test_the_journal_knows_each_request_that_is_under_way_and_what_was_cancelled():
    """After the death of its process a client would wait for an answer for ever, or get one to what it gave up."""
    journal = Noted()
    gate = RawCallGate(journal)
    gate.forwarded(message(id="a", method="initialize", params={}))
    assert journal.under_way == {b'"a"': RequestKind.INITIALIZE}
    gate.answered("a", is_success=True)
    journal.ended(b'"a"')
    gate.forwarded(message(method="notifications/initialized"))
    gate.began(gate.admit(call(1)), "call")
    gate.forwarded(message(id=2, method="tools/list"))
    gate.forwarded(call(3, ENVELOPE))
    gate.forwarded(call(4))
    gate.forwarded(call("4"))
    assert journal.under_way == {
        b"1": RequestKind.CALL,
        b"2": RequestKind.OTHER,
        b"3": RequestKind.MODERN_CALL,
        b"4": RequestKind.CALL,
        b'"4"': RequestKind.CALL,
    }
    gate.forwarded(message(method="notifications/cancelled", params={"requestId": 3}))
    gate.forwarded(message(method="notifications/cancelled", params={"requestId": "4"}))
    assert list(journal.under_way) == [b"1", b"2", b"4"]


def test_a_modern_raw_call_is_noted_as_one():
    """Its answer would lack the envelope that its client checks."""
    journal = Noted()
    gate = RawCallGate(journal)
    gate.forwarded(message(id=0, method="server/discover", params={"_meta": ENVELOPE}))
    gate.answered(0, is_success=True)
    journal.ended(b"0")
    gate.began(gate.admit(call(1, ENVELOPE)), "call")
    assert journal.under_way == {b"1": RequestKind.MODERN_CALL}


INFO = {"name": "an editor", "version": "2"}


@pytest.mark.parametrize(
    ("said", "client"),
    [
        (message(id=1, method="initialize", params={"clientInfo": INFO}), ("an editor", "2")),
        (message(id=1, method="tools/list", params={"_meta": {CLIENT_INFO_META_KEY: INFO}}), ("an editor", "2")),
        (message(id=1, method="initialize", params={"clientInfo": {"name": "half"}}), None),
        (message(id=1, method="initialize"), None),
        (message(id=1, method="tools/list", params={"_meta": {CLIENT_INFO_META_KEY: "x"}}), None),
        (message(id=1, method="tools/list", params={"_meta": None}), None),
        (message(method="notifications/initialized"), None),
    ],
)
def test_a_client_is_known_by_how_it_introduces_itself_in_either_era(said, client):
    """`status` would not say who is connected."""
    found = read_introduction(said)
    assert (None if found is None else (found.name, found.version)) == client


def test_a_greeting_that_was_answered_is_not_answered_again():
    """A client would get a second answer to `initialize`; or, had the first one not come, none."""
    line = b'{"jsonrpc":"2.0","id":"hello","method":"initialize"}\n'
    assert Interrupted(line, is_greeted=True).greeted_id == "hello"
    assert Interrupted(unread=line + line[:5], is_greeted=True).greeted_id == "hello"
    assert Interrupted(line).greeted_id is None
    assert Interrupted(is_greeted=True).greeted_id is None
