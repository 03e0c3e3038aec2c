"""A server that says anything at all: nothing is raised, nothing grows, and what is handed on can be read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.schemas.json_values import ATOMS, json_values
from support.servers.greetings import LEGACY, MODERN

from quarterdeck_protocol.mcp.client import FIRST_ID, Relay, connection, events
from quarterdeck_protocol.mcp.jsonrpc import MAX_DEPTH, MAX_DIGITS

from .relays import CLIENT, Talk, in_flight, talk

JSON = json_values(ATOMS | st.integers(-(2**70), 2**70) | st.floats(), max_leaves=8)
IDS = st.sampled_from([1, 2, 3, FIRST_ID + 7, str(FIRST_ID + 7), "x", None, 2**63, -1, 1.5, True]) | JSON
METHODS = st.sampled_from(
    ["ping", "initialize", "server/discover", "elicitation/create", "tools/call"]
    + [f"notifications/{name}" for name in ("progress", "message", "cancelled", "subscriptions/acknowledged")]
    + [f"notifications/{name}" for name in ("tools/list_changed", "resources/updated", "x")]
)
MEMBERS = ("tools", "nextCursor", "content", "resultType", "_meta", "isError")
WORDS = ("protocolVersion", "capabilities", "serverInfo", "supportedVersions", "instructions")
RESULTS = st.dictionaries(st.sampled_from([*MEMBERS, *WORDS]), JSON | st.lists(JSON, max_size=2), max_size=4)
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "progressToken": IDS,
        "progress": JSON,
        "requestId": IDS,
        "uri": JSON,
        "level": JSON,
        "data": JSON,
        "notifications": JSON,
        "_meta": st.fixed_dictionaries({}, optional={"io.modelcontextprotocol/subscriptionId": IDS}) | JSON,
    },
)
ERRORS = st.fixed_dictionaries({}, optional={"code": JSON, "message": JSON, "data": JSON})
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | JSON,
        "id": IDS,
        "method": METHODS | JSON,
        "params": PARAMS | JSON,
        "result": RESULTS | JSON,
        "error": ERRORS | JSON,
    },
)


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    line = json.dumps(draw(MESSAGES)).encode()
    match draw(st.integers(0, 9)):
        case 0:
            return line[: draw(st.integers(0, len(line)))]
        case 1:
            at = draw(st.integers(0, len(line)))
            return line[:at] + draw(st.binary(min_size=1, max_size=3)) + line[at:]
        case 2:
            return line + draw(st.sampled_from([b"\r", b" ", line, b"\x00"]))
        case _:
            return line


def is_readable(data: bytes) -> None:
    assert b"\n" not in data
    assert b"\r" not in data
    if data:
        json.loads(data.decode())


def check(event: events.Event) -> None:
    match event:
        case events.Answered(result=result):
            assert isinstance(json.loads(result.body), dict)
            is_readable(result.body)
        case events.Listed(items=items):
            assert isinstance(json.loads(items), list)
            is_readable(items)
        case events.Refused(data=data) | events.Logged(data=data):
            is_readable(data)
        case events.Asked(params=data) | events.Noted(params=data) | events.Listening(honoured=data):
            is_readable(data)
        case events.Greeted(server=server):
            is_readable(server.capabilities)
            is_readable(server.info)
        case _:
            pass


@given(said=st.lists(lines(), max_size=6), era=st.sampled_from([LEGACY, MODERN]))
def test_whatever_a_greeted_server_says_nothing_is_raised_and_all_can_be_read(said: list[bytes], era: str) -> None:
    """One server could end its worker, or one client of ours, with a line."""
    talked = talk(era, {"tools/list": None, "tools/call": None}, offers=frozenset({"elicitation/create"}))
    talked.relay.call(7, "echo", progress=True)
    talked.relay.list_all(8, "tools/list", 0.0)
    if era == MODERN:
        talked.relay.listen(("tools",), ("a",))
    ended: set[int] = set()
    for line in said:
        for event in talked.say(line.replace(b"\n", b" ")):
            check(event)
            if isinstance(event, events.Answered | events.Refused | events.Spoiled | events.Listed):
                assert event.request_id not in ended
                ended.add(event.request_id)
    assert {7, 8} - ended - set(in_flight(talked.relay)) <= {8}
    for line in talked.relay.take().splitlines():
        json.loads(line)


@given(said=st.lists(lines(), max_size=4), era=st.sampled_from(["", LEGACY, MODERN]))
def test_whatever_a_program_says_to_a_greeting_nothing_is_raised(said: list[bytes], era: str) -> None:
    """A program that is no server could end its worker before it is known."""
    relay = Relay(CLIENT, now=0.0, max_bytes=1_000, forced=era)
    for line in said:
        for event in relay.receive(line.replace(b"\n", b" "), 0.0):
            check(event)
    relay.advance(100.0)
    for line in relay.take().splitlines():
        json.loads(line)


def test_a_flood_of_everything_leaves_nothing_behind() -> None:
    """A server that talks for an hour would fill its worker's memory."""
    talked = talk(MODERN, offers=frozenset({"elicitation/create"}))
    talked.relay.listen(("tools",))
    flood = [
        {"id": 1, "method": "elicitation/create"},
        {"id": 2, "method": "ping"},
        {"id": 3, "result": {}},
        {"method": "notifications/cancelled", "params": {"requestId": 2}},
        {"method": "notifications/message", "params": {"data": 1}},
        {"method": "notifications/progress", "params": {"progressToken": FIRST_ID, "progress": 1}},
        b"junk",
    ]
    talked.say(*flood * 3_000)
    assert len(talked.relay.take()) < connection.MAX_REPLY_BYTES + 2_000


@pytest.mark.parametrize("value", [b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), b"1" * (MAX_DIGITS + 1)])
def test_what_a_clients_reader_refuses_is_handed_on_nowhere(value: bytes) -> None:
    """One server's answer would crash every client that reads it."""
    said: list[tuple[bytes, type[events.Event]]] = [
        (b'{"id":%d,"result":{"a":%s}}' % (FIRST_ID + 7, value), events.Spoiled),
        (b'{"id":%d,"error":{"code":1,"message":"","data":%s}}' % (FIRST_ID + 7, value), events.Refused),
        (b'{"method":"notifications/message","params":{"data":%s}}' % value, events.Junk),
        (b'{"method":"x","params":{"a":%s}}' % value, events.Junk),
    ]
    for line, kind in said:
        talked = talk()
        talked.relay.call(7, "echo")
        [event] = talked.say(line)
        assert isinstance(event, kind)
        assert value not in repr(event).encode() or kind is events.Junk
    talked = Talk({"server/discover": None, "initialize": None}, forced=LEGACY)
    [failure] = talked.say(b'{"id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"a":%s}}}' % value)
    assert isinstance(failure, events.GreetingFailed)
