"""What a server of 2026-07-28 asks by a result, and the request that answers it."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from quarterdeck.fleet.core.rounds import MAX_QUESTIONS, MAX_STATE_BYTES, RoundError, next_params, read_round
from quarterdeck_protocol.mcp.jsonrpc import check_object
from quarterdeck_protocol.questions import Question

FORM = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {"type": "object"}}}


def members(result: Any) -> dict[str, Raw]:
    return check_object(json.dumps(result).encode(), max_bytes=100_000_000)


def test_each_question_has_the_servers_own_name_and_words() -> None:
    """An answer would be given to another question."""
    asked = read_round("s", members({"inputRequests": {"who": FORM, "where": {"method": "roots/list"}}}))
    assert asked.state == b""
    who, where = asked.questions
    assert (who.server, who.method, who.key, json.loads(who.params)) == (
        "s",
        "elicitation/create",
        "who",
        FORM["params"],
    )
    assert where == Question("s", "roots/list", b"{}", "where")


def test_a_state_alone_asks_nothing_and_is_given_back_as_it_came() -> None:
    """A server that is busy would be taken for a broken one, or lose its thread."""
    asked = read_round("s", members({"requestState": 'a"\u2028b'}))
    assert asked.questions == ()
    again = next_params(b'{"name":"t","arguments":{"n":1.0}}', {}, asked.state)
    assert json.loads(again) == {"name": "t", "arguments": {"n": 1.0}, "requestState": 'a"\u2028b'}


def test_a_hop_s_envelope_is_not_shown_to_the_one_that_is_asked() -> None:
    """It belongs to our connection with the server."""
    meta = {"io.modelcontextprotocol/serverInfo": {"name": "x"}, "own": 1}
    asked = read_round("s", members({"inputRequests": {"r": {"method": "roots/list", "params": {"_meta": meta}}}}))
    assert json.loads(asked.questions[0].params) == {"_meta": {"own": 1}}


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({}, "asks nothing"),
        ({"inputRequests": {}}, "asks nothing"),
        ({"inputRequests": None}, "asks nothing"),
        ({"inputRequests": []}, "cannot be read"),
        ({"inputRequests": {"k": 1}}, "cannot be read"),
        ({"inputRequests": {"k": {}}}, "cannot be read"),
        ({"inputRequests": {"k": {"method": "tools/call"}}}, "nobody can answer"),
        ({"inputRequests": {"k": {**FORM, "params": []}}}, "cannot be passed on"),
        ({"inputRequests": {str(n): FORM for n in range(MAX_QUESTIONS + 1)}}, "17 questions"),
        ({"inputRequests": {str(n): {**FORM, "params": {"x": "x" * 7_000_000}} for n in range(5)}}, "35,000,045 bytes"),
        ({"requestState": 7}, "cannot be read"),
        ({"requestState": "x" * MAX_STATE_BYTES}, "bytes"),
    ],
)
def test_what_nobody_could_answer_is_an_error(result: Any, words: str) -> None:
    """A client would be asked nonsense, or without end."""
    with pytest.raises(RoundError, match=words):
        read_round("s", members(result))


@given(
    params=st.dictionaries(st.text(), st.integers() | st.text()),
    answers=st.dictionaries(st.text(), st.dictionaries(st.text(), st.booleans()), max_size=3),
)
def test_the_request_is_the_same_but_for_the_answers(params: dict[str, Any], answers: dict[str, Any]) -> None:
    """A later round would ask for something else, or carry the answers of an earlier one."""
    given_ = {key: msgspec.json.encode(value) for key, value in answers.items()}
    first = next_params(msgspec.json.encode({**params, "inputResponses": {"old": {}}}), given_, b'"s"')
    wanted = {key: value for key, value in params.items() if key not in ("inputResponses", "requestState")}
    wanted["requestState"] = "s"
    if answers:
        wanted["inputResponses"] = answers
    assert msgspec.json.decode(first) == wanted
