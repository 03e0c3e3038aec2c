"""A client's session, message by message: what is carried out, what is refused and how, what is over when."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_protocol.mcp.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR
from quarterdeck_protocol.mcp.server.methods import HANDSHAKE_VERSIONS, METHODS_OF, UNSUPPORTED_VERSION
from quarterdeck_protocol.mcp.server.requests import ClientInfo, Request, Resumption
from quarterdeck_protocol.mcp.server.session import BUSY, Answer, Cancelled, Notice, ServerSession

KEY = "io.modelcontextprotocol/"
ENVELOPE = {
    f"{KEY}protocolVersion": "2026-07-28",
    f"{KEY}clientInfo": {"name": "a", "version": "1"},
    f"{KEY}clientCapabilities": {"elicitation": {}},
}
GREETING = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": {"name": "a", "version": "1"}}


def line(method: str | None = None, request_id: Any = None, **members: Any) -> bytes:
    message = {"jsonrpc": "2.0", "method": method, "id": request_id, **members}
    return json.dumps({key: value for key, value in message.items() if value is not None}).encode()


def call(request_id: Any = 1, meta: Any = None, **params: Any) -> bytes:
    whole = {"name": "s__t", "arguments": {}, **params} | ({} if meta is None else {"_meta": meta})
    return line("tools/call", request_id, params={key: value for key, value in whole.items() if value is not ...})


def new(**options: Any) -> ServerSession:
    return ServerSession(lambda callback, *args: callback(*args), **options)


def legacy(**options: Any) -> ServerSession:
    session = new(**options)
    greeted = session.receive(line("initialize", "hello", params=GREETING))
    assert isinstance(greeted, Request)
    session.answer(greeted, (b"{}",))
    assert session.receive(line("notifications/initialized")) is Notice.OPENED
    return session


def modern(**options: Any) -> ServerSession:
    session = new(**options)
    found = session.receive(line("server/discover", "hello", params={"_meta": ENVELOPE}))
    assert isinstance(found, Request)
    session.answer(found, (b"{}",))
    return session


def error(event: Any) -> tuple[Any, int]:
    assert isinstance(event, Answer), event
    said = json.loads(b"".join(event.parts))
    assert said["error"]["code"] == event.code
    return said["id"], event.code


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
def test_a_legacy_client_is_answered_in_its_own_revision(version: str) -> None:
    """A client that is answered in another one gives up."""
    session = new()
    greeted = session.receive(line("initialize", 1, params={**GREETING, "protocolVersion": version}))
    assert isinstance(greeted, Request)
    assert (greeted.version, session.version, session.is_open) == (version, version, False)
    assert (session.client, session.asking.capabilities) == (ClientInfo("a", "1"), b'{"roots": {}}')


def test_an_unknown_revision_is_answered_with_the_newest_of_the_era() -> None:
    """The client then decides whether it speaks that one."""
    session = new()
    session.receive(line("initialize", 1, params={**GREETING, "protocolVersion": "1999-01-01"}))
    assert session.version == "2025-11-25"


def test_a_plain_call_passes_with_its_bytes_untouched() -> None:
    """A server gets the very arguments that its client wrote."""
    session = legacy()
    raw = b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"s__t","arguments":{ "a":1.0 },"x":1}}'
    request = session.receive(raw)
    assert isinstance(request, Request)
    assert (request.key, request.id_json, request.name, request.arguments) == (9, b"9", "s__t", b'{ "a":1.0 }')
    assert (request.meta, request.progress_token, request.is_modern) == (b"", b"", False)


def test_keys_of_the_hop_stay_here() -> None:
    """Envelope and progress token are made anew for the next hop."""
    request = modern().receive(call(meta={**ENVELOPE, "progressToken": "t", "traceparent": "00"}))
    assert isinstance(request, Request)
    assert (request.meta, request.progress_token, request.is_modern) == (b'{"traceparent":"00"}', b'"t"', True)
    assert request.capabilities == b'{"elicitation": {}}'


def test_a_program_is_one_caller_whatever_it_can_be_asked() -> None:
    """A server with a process for each program would get two of them."""
    session = modern()
    other = {**ENVELOPE, f"{KEY}clientCapabilities": {}}
    callers = {session.receive(call(n, meta)).caller for n, meta in enumerate((ENVELOPE, other))}  # type: ignore[union-attr]
    stranger = session.receive(call(5, {**ENVELOPE, f"{KEY}clientInfo": {"name": "b", "version": "1"}}))
    assert len(callers) == 1
    assert isinstance(stranger, Request)
    assert stranger.caller not in callers


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"inputResponses": {"a": {}}, "requestState": "s"}, Resumption("s", b'{"a": {}}')),
        ({"requestState": "s"}, Resumption("s")),
        ({"inputResponses": {}}, Resumption(None, b"{}")),
        ({}, None),
    ],
)
def test_a_request_that_is_made_again_brings_its_answers(params: dict[str, Any], expected: object) -> None:
    """A call that waits for a person is taken up where it was; in the legacy era there is no such thing."""
    request = modern().receive(call(meta=ENVELOPE, **params))
    assert isinstance(request, Request)
    assert (request.resumption, request.arguments) == (expected, b"{}")
    assert legacy().receive(call(**params)).resumption is None  # type: ignore[union-attr]


@pytest.mark.parametrize("state", [5, [], {}])
def test_a_state_that_is_no_text_is_refused(state: object) -> None:
    """It comes from a client, so from an attacker."""
    assert error(modern().receive(call(meta=ENVELOPE, requestState=state))) == (1, INVALID_PARAMS)


@pytest.mark.parametrize(
    "params",
    [
        {"arguments": ...},
        {"arguments": None},
        {"meta": {}},
        {"meta": {"progressToken": None}},
        {"unknown": 1},
        {"task": None},
    ],
)
def test_usual_variations_of_a_call_pass(params: dict[str, Any]) -> None:
    """Clients leave out and add members as they like."""
    request = legacy().receive(call(**params))
    assert isinstance(request, Request)
    assert (request.arguments, request.task, request.progress_token) == (b"{}", b"", b"")


BAD_CALLS: list[dict[str, Any]] = [
    {"arguments": []},
    {"arguments": "x"},
    {"name": ...},
    {"name": 5},
    {"meta": []},
    {"meta": {"progressToken": 1.5}},
    {"task": 5},
]


@pytest.mark.parametrize("params", BAD_CALLS)
def test_a_call_with_bad_params_is_refused_under_its_id(params: dict[str, Any]) -> None:
    """Its client waits for that id."""
    assert error(legacy().receive(call(**params))) == (1, INVALID_PARAMS)


@pytest.mark.parametrize("params", [[1], "x", 5])
def test_params_that_are_no_object_are_no_request(params: object) -> None:
    """JSON-RPC's positional parameters mean nothing here."""
    assert error(legacy().receive(line("tools/call", 5, params=params))) == (5, INVALID_REQUEST)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("initialize", {}),
        ("prompts/get", {}),
        ("prompts/get", {"name": "p", "arguments": {"a": 1}}),
        ("resources/read", {"uri": 5}),
        ("completion/complete", {"ref": {"type": "ref/tool", "name": "x"}, "argument": {"name": "a", "value": "b"}}),
        ("logging/setLevel", {"level": "loud"}),
        ("tools/list", {"cursor": 5}),
        ("subscriptions/listen", {"notifications": {"toolsListChanged": "yes"}}),
    ],
)
def test_every_method_has_a_shape(method: str, params: dict[str, Any]) -> None:
    """What a server is asked has the form that its protocol gives it."""
    if method == "initialize":
        event = new().receive(line(method, 1, params=params))
    elif method == "subscriptions/listen":
        event = modern().receive(line(method, 1, params={**params, "_meta": ENVELOPE}))
    else:
        event = legacy().receive(line(method, 1, params=params))
    assert error(event) == (1, INVALID_PARAMS)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", PARSE_ERROR),
        (b"hello", PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method"', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"a"}x', PARSE_ERROR),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
            PARSE_ERROR,
        ),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', PARSE_ERROR),
        (b"[" * 100_000 + b"]" * 100_000, INVALID_REQUEST),
        (b"[]", INVALID_REQUEST),
        (b"5", INVALID_REQUEST),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', INVALID_REQUEST),
        (b'{"id":1,"method":"ping"}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', INVALID_REQUEST),
    ],
)
def test_what_is_no_message_is_refused_by_its_code(raw: bytes, code: int) -> None:
    """JSON-RPC has a code for each, and the session goes on."""
    session = legacy()
    assert error(session.receive(raw)) == (None, code)
    assert isinstance(session.receive(line("ping", 1)), Request)


def test_a_line_break_inside_a_message_does_not_reach_a_server() -> None:
    """For some readers a line ends there: a server would read two messages."""
    raw = b'{"jsonrpc":"2.0","id":9,"method":"tools/call",\n"params":{"name":"s__t",\r"arguments":{"a":\r\n1}}}\r'
    request = legacy().receive(raw)
    assert isinstance(request, Request)
    assert request.arguments == b'{"a":1}'


def test_a_null_id_is_nobodys() -> None:
    """There is nothing that an answer could be told by."""
    assert legacy().receive(b'{"jsonrpc":"2.0","id":null,"method":"ping"}') is None


@pytest.mark.parametrize(("method", "code"), [("tools/call", INVALID_PARAMS), ("no/such", METHOD_NOT_FOUND)])
def test_nothing_is_carried_out_before_the_handshake(method: str, code: int) -> None:
    """Nobody knows what such a client speaks; one that probes is told what there is not."""
    session = new()
    assert error(session.receive(line(method, 1, params={"name": "s__t"}))) == (1, code)
    assert isinstance(session.receive(line("ping", 2)), Request)
    assert isinstance(session.receive(line("initialize", 3, params=GREETING)), Request)


def test_a_greeting_that_failed_may_be_corrected_and_one_that_did_not_is_the_only_one() -> None:
    """A second one would change what is agreed under calls that are under way."""
    session = new()
    assert error(session.receive(line("initialize", 0, params={**GREETING, "capabilities": 1}))) == (0, INVALID_PARAMS)
    assert isinstance(session.receive(line("initialize", 1, params=GREETING)), Request)
    assert error(session.receive(line("initialize", 2, params=GREETING))) == (2, INVALID_REQUEST)
    assert session.version == "2025-11-25"


@pytest.mark.parametrize("version", ["2026-07-28", "2031-01-01", 7])
def test_a_modern_request_in_a_legacy_session_is_refused(version: object) -> None:
    """Two eras in one session would disagree about every envelope."""
    meta = {**ENVELOPE, f"{KEY}protocolVersion": version}
    assert error(legacy().receive(call(meta=meta))) == (1, INVALID_REQUEST)


def test_a_greeting_in_a_modern_session_is_refused() -> None:
    """The first request decides the era, once."""
    assert error(modern().receive(line("initialize", 1, params=GREETING))) == (1, UNSUPPORTED_VERSION)


def test_where_the_carrier_decides_the_era_a_greeting_is_an_unknown_method() -> None:
    """2026-07-28 over HTTP has no `initialize`: a client that probes goes by that code."""
    session = new(version="2026-07-28")
    assert error(session.receive(line("initialize", 1, params={**GREETING, "_meta": ENVELOPE}))) == (
        1,
        METHOD_NOT_FOUND,
    )


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        (None, INVALID_PARAMS),
        ({}, INVALID_PARAMS),
        ({f"{KEY}protocolVersion": "2026-07-28"}, INVALID_PARAMS),
        ({**ENVELOPE, f"{KEY}protocolVersion": 7}, INVALID_PARAMS),
        ({**ENVELOPE, f"{KEY}protocolVersion": "2031-01-01"}, UNSUPPORTED_VERSION),
        ({**ENVELOPE, f"{KEY}clientCapabilities": 5}, INVALID_PARAMS),
        ({**ENVELOPE, f"{KEY}clientCapabilities": {"elicitation": []}}, INVALID_PARAMS),
        ({**ENVELOPE, f"{KEY}clientInfo": {"name": 5}}, INVALID_PARAMS),
    ],
)
def test_every_modern_request_stands_alone(meta: Any, code: int) -> None:
    """One that was right before is no excuse for one that is wrong now."""
    session = modern()
    assert error(session.receive(call(meta=meta))) == (1, code)
    assert isinstance(session.receive(call(meta=ENVELOPE)), Request)


@pytest.mark.parametrize(
    ("era", "method"),
    [
        (legacy, "server/discover"),
        (legacy, "tasks/update"),
        (modern, "ping"),
        (modern, "tasks/list"),
        (legacy, "no/such"),
    ],
)
def test_a_method_of_the_other_era_is_not_found(era: Any, method: str) -> None:
    """A client learns by that code what there is."""
    params = {"_meta": ENVELOPE} if era is modern else {}
    assert error(era().receive(line(method, 1, params=params))) == (1, METHOD_NOT_FOUND)


@pytest.mark.parametrize("method", sorted({"prompts/list", "resources/read", "completion/complete", "tasks/get"}))
def test_where_only_tools_are_shown_there_is_nothing_else(method: str) -> None:
    """A client that asks for prompts would wait for a list that nobody has."""
    assert error(legacy(has_offers=False).receive(line(method, 1, params={}))) == (1, METHOD_NOT_FOUND)


def test_an_answer_is_given_once() -> None:
    """Two answers to one id break clients."""
    session = legacy()
    request = session.receive(call(7))
    assert isinstance(request, Request)
    assert b"".join(session.answer(request, (b'{"a":', b"1}"))) == b'{"jsonrpc":"2.0","id":7,"result":{"a":1}}'
    assert session.answer(request, (b"{}",)) == ()
    assert session.refuse(request, {"code": 1}) == ()
    assert session.under_way == 0


def test_a_cancelled_request_is_over_and_has_no_answer() -> None:
    """Whatever still comes of it is nobody's."""
    session = legacy()
    request = session.receive(call(7))
    params = {"requestId": "7", "reason": "enough"}
    cancelled = session.receive(line("notifications/cancelled", params=params))
    assert isinstance(request, Request)
    assert cancelled == Cancelled(request, "enough")
    assert (session.answer(request, (b"{}",)), session.under_way) == ((), 0)
    assert session.receive(line("notifications/cancelled", params=params)) is None


@pytest.mark.parametrize(
    "params", [{"requestId": None}, {"requestId": True}, {"requestId": 8}, [], {"requestId": "hello"}]
)
def test_a_cancellation_of_nothing_is_ignored(params: Any) -> None:
    """A malformed one is nobody's."""
    session = legacy()
    session.receive(call(7))
    assert session.receive(line("notifications/cancelled", params=params)) is None
    assert session.under_way == 1


def test_requests_under_one_id_are_both_answered() -> None:
    """A client that counts wrongly waits for two answers; cancelling means the later one."""
    session = legacy()
    first, second = session.receive(call(7)), session.receive(call("7"))
    assert isinstance(first, Request)
    assert isinstance(second, Request)
    assert (session.under_way, session.requests) == (2, (second, first))
    assert session.answer(first, (b"1",))
    third = session.receive(call(7))
    cancelled = session.receive(line("notifications/cancelled", params={"requestId": 7}))
    assert cancelled == Cancelled(third, "")  # type: ignore[arg-type]
    assert session.answer(second, (b"2",))
    assert (session.under_way, session.requests) == (0, ())


def test_more_requests_than_fit_are_refused_and_cancellations_still_read() -> None:
    """A client that floods must not fill our memory."""
    session = legacy()
    session.max_under_way = 2
    for number in (1, 2):
        session.receive(call(number))
    assert error(session.receive(call(3))) == (3, BUSY)
    assert isinstance(session.receive(line("notifications/cancelled", params={"requestId": 1})), Cancelled)
    assert isinstance(session.receive(call(4)), Request)


def test_roots_count_once_the_client_is_greeted() -> None:
    """Servers that asked for them ask again."""
    roots = line("notifications/roots/list_changed")
    assert legacy().receive(roots) is Notice.ROOTS_CHANGED
    assert new().receive(roots) is None
    assert modern().receive(roots) is None


# Any bytes, any order

IDS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers()), st.just({}))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
METAS = st.one_of(st.just(ENVELOPE), st.dictionaries(st.sampled_from([*ENVELOPE, "progressToken", "x"]), JSON), JSON)
PARAMS = st.one_of(
    st.just(GREETING),
    st.fixed_dictionaries(
        {},
        optional={
            "_meta": METAS,
            "name": JSON,
            "arguments": JSON,
            "uri": st.text(),
            "requestId": IDS,
            "cursor": JSON,
            "notifications": JSON,
            "requestState": JSON,
            "inputResponses": JSON,
            "level": JSON,
        },
    ),
    JSON,
)
NOTES = ["notifications/initialized", "notifications/cancelled", "notifications/roots/list_changed"]
MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0"])},
    optional={
        "id": IDS,
        "method": st.sampled_from([*METHODS_OF, *NOTES, "no/such"]) | st.text(),
        "params": PARAMS,
        "result": JSON,
        "error": JSON,
    },
).map(lambda message: json.dumps(message).encode())


@given(st.lists(st.one_of(MESSAGES, MESSAGES, MESSAGES, st.binary()), max_size=30), st.data())
def test_whatever_comes_every_request_has_one_answer_and_nothing_is_raised(lines: list[bytes], data: Any) -> None:
    """A client may send anything; a session that breaks takes its other requests with it, one that keeps grows."""
    session, open_requests = new(), []
    session.max_under_way = 8
    for raw in lines:
        match session.receive(raw):
            case Request() as request:
                open_requests.append(request)
                assert json.loads(request.arguments) is not None
            case Cancelled(request):
                open_requests.remove(request)
                assert session.answer(request, (b"{}",)) == ()
            case Answer(parts=parts, code=code):
                assert json.loads(b"".join(parts))["error"]["code"] == code
        if open_requests and data.draw(st.booleans()):
            request = open_requests.pop(data.draw(st.integers(0, len(open_requests) - 1)))
            assert json.loads(b"".join(session.answer(request, (b"{}",))))["id"] == json.loads(request.id_json)
            assert session.answer(request, (b"{}",)) == ()
        assert session.under_way == len(open_requests) <= 8
        assert {id(request) for request in session.requests} == {id(request) for request in open_requests}
