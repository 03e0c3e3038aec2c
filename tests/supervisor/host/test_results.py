"""What a client is told: the same on both ways, whole, and never more than one object."""

import json
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.host.results import (
    FAULT_META_KEY,
    SERVER_INFO_KEY,
    bad_result,
    fault_parts,
    fault_result,
    is_for_client,
    outcome_result,
    render,
    splice,
    text_result,
    whole_result,
)
from quarterdeck.tools.results import JsonContentBlock, TextContentBlock, ToolResult
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_object
from quarterdeck_protocol.tools import ToolOutcome, WireResult

LEGACY, MODERN = "2025-11-25", "2026-07-28"
INFO = b'{"name":"hub","version":"1"}'

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
RESULTS = st.dictionaries(
    st.sampled_from(["content", "structuredContent", "isError", "_meta", "x-new", ""]), JSON, max_size=6
)


def joined(parts):
    return json.loads(b"".join(parts))


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("verbatim", "verbatim"),
        (None, ""),
        (True, "true"),
        (1.0, "1.0"),
        ({"é": [None]}, '{"é": [null]}'),
        (float("nan"), "NaN"),
        ({1, 2} - {2}, '"{1}"'),
        ({("a",): 1}, "{('a',): 1}"),
    ],
)
def test_an_output_becomes_text(output, text):
    """The seeds fix the projection; nothing that a tool returns may break the answer."""
    assert render(output) == text


def test_text_that_utf_8_cannot_say_is_escaped():
    """File names hold such characters, and one would end the connection."""
    assert text_result("\ud800é", is_error=False)["content"] == [{"type": "text", "text": "\\ud800é"}]


def test_a_fault_carries_its_remedy_and_its_facts():
    """A model reads the text, a program the facts."""
    fault = ProtocolFault(FaultKind.TIMEOUT, "slow", code="call_timeout", delivery=Delivery.NOT_SENT)
    result = fault_result(fault)
    assert result["content"][0]["text"] == f"slow\nFix: {fault.remedy}"
    assert result["isError"]
    assert result["_meta"] == {FAULT_META_KEY: {"kind": "timeout", "code": "call_timeout", "delivery": "not_sent"}}


def test_a_fault_without_a_code_says_its_message_alone():
    """There is no remedy to add."""
    assert fault_result(ProtocolFault("transport", "gone"))["content"][0]["text"] == "gone"


@given(RESULTS)
def test_a_spliced_result_is_the_servers_own_for_a_legacy_client(result):
    """Not a byte changes."""
    body = json.dumps(result).encode()
    assert splice(WireResult(body, LEGACY), None) == (body,)


@given(RESULTS)
def test_a_spliced_result_is_the_servers_own_under_the_modern_envelope(result):
    """A client of either server must see the same members."""
    answer = joined(splice(WireResult(json.dumps(result).encode(), LEGACY), INFO))
    assert answer.pop("resultType") == "complete"
    meta = answer.pop("_meta")
    if isinstance(result.get("_meta", {}), dict | None):
        assert meta.pop(SERVER_INFO_KEY) == json.loads(INFO)
        assert meta == (result.get("_meta") or {})
    else:
        assert meta == result["_meta"]
    assert answer == {key: value for key, value in result.items() if key != "_meta"}


@given(st.binary(max_size=60))
def test_whatever_is_spliced_is_one_line_of_one_object(noise):
    """Anything else would let a server speak in our name."""
    for info in (None, INFO):
        try:
            parts = splice(WireResult(noise, MODERN), info)
        except BodyError:
            continue
        line = b"".join(parts)
        assert b"\n" not in line
        assert isinstance(json.loads(line), dict)


BAD_BODIES = [
    b"",
    b"null",
    b"[]",
    b"{",
    b"{} {}",
    b'{"a":1}\n',
    b'{"a":\r1}',
    b'{"a":"\xff"}',
    b'{"resultType":"complete"}',
    b'{"\\u0072esultType":"complete"}',
    b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
]


@pytest.mark.parametrize("body", BAD_BODIES)
def test_a_bad_body_is_refused_on_both_ways(body):
    """Its worker let through what it must not."""
    wire = WireResult(body, LEGACY)
    for refuse in (
        lambda: splice(wire, None),
        lambda: splice(wire, INFO),
        lambda: whole_result(wire, is_modern=True),
        lambda: outcome_result(ToolOutcome("1", "text", wire=wire), is_modern=True),
    ):
        with pytest.raises(BodyError):
            refuse()


def test_a_number_that_cannot_be_built_is_refused_on_the_long_way():
    """It would be sent as null."""
    with pytest.raises(BodyError):
        whole_result(WireResult(b'{"n":1e400}', LEGACY), is_modern=True)


@pytest.mark.parametrize("value", ["[1]", "null", "5", '"x"'])
def test_structured_content_too_new_for_a_legacy_client_is_left_out(value):
    """It would refuse the whole result, text included."""
    body = b'{"content":[],"structuredContent":%b}' % value.encode()
    modern = WireResult(body, MODERN)
    assert joined(splice(modern, None)) == whole_result(modern, is_modern=False) == {"content": []}
    assert "structuredContent" in whole_result(modern, is_modern=True)
    assert "structuredContent" in joined(splice(modern, INFO))
    assert splice(WireResult(body, LEGACY), None) == (body,)


@given(RESULTS, st.sampled_from([LEGACY, MODERN]), st.sampled_from([None, INFO]))
def test_a_body_that_was_checked_before_gives_the_very_same_result(result, era, info):
    """What saves a second look at a large body would change what a client is told."""
    body = json.dumps(result).encode()
    members = check_object(body, max_bytes=len(body))
    before = dict(members)
    assert splice(WireResult(body, era, members=members), info) == splice(WireResult(body, era), info)
    assert members == before


def test_structured_content_that_is_an_object_passes_between_eras():
    """Both eras allow it."""
    body = b'{"structuredContent":{"a":1}}'
    assert splice(WireResult(body, MODERN), None) == (body,)


def test_an_outcome_is_its_wire_when_it_has_one_and_its_output_when_not():
    """The projection is for those who have nothing better."""
    assert outcome_result(ToolOutcome("1", "o", wire=WireResult(b'{"x":1}', LEGACY)), is_modern=True) == {"x": 1}
    assert outcome_result(ToolOutcome("1", "o", is_error=True), is_modern=True) == text_result("o", is_error=True)


def test_what_a_success_has_structured_stands_beside_its_text():
    """A program would have to find a value in a text that is written for a model."""
    outcome = ToolOutcome("1", "done", structured={"n": [1]})
    text = text_result("done", is_error=False)
    assert outcome_result(outcome, is_modern=True) == {**text, "structuredContent": {"n": [1]}}
    assert outcome_result(outcome, is_modern=False, takes_structures=False) == text
    shown = ToolOutcome("1", "done", wire=WireResult(b'{"content":[]}', LEGACY), structured={"n": 1})
    assert outcome_result(shown, is_modern=False) == {"content": [], "structuredContent": {"n": 1}}


def test_a_failure_has_nothing_structured():
    """A client would judge it by the schema of a success."""
    outcome = ToolOutcome("1", "bad", is_error=True, structured={"n": 1})
    assert outcome_result(outcome, is_modern=True) == text_result("bad", is_error=True)


def test_what_utf8_cannot_say_is_escaped_within_a_structure():
    """One half of a surrogate pair in a file's name would end the client's stream."""
    result = outcome_result(ToolOutcome("1", "", structured={"a\ud800": [{"b": "\udfff"}, 1, None]}), is_modern=True)
    assert result["structuredContent"] == {"a\\ud800": [{"b": "\\udfff"}, 1, None]}


def test_a_faults_parts_are_its_result_under_the_envelope():
    """A fault of a raw call reads as any other."""
    fault = bad_result("why")
    assert joined(fault_parts(fault, None)) == fault_result(fault)
    assert joined(fault_parts(fault, INFO))["_meta"].keys() == {FAULT_META_KEY, SERVER_INFO_KEY}


def test_a_call_that_cannot_be_taken_up_is_an_error_for_the_program_that_forged_it() -> None:
    """A result would count as the call's own, and the protocol wants a state that was tampered with to be refused."""
    refused = ProtocolFault.not_sent(FaultKind.TOOL_ERROR, "its requestState is not this client's", "not_resumable")
    assert is_for_client(refused)
    assert not is_for_client(ProtocolFault.not_sent(FaultKind.TOOL_ERROR, "it is not connected", "not_connected"))


def test_several_blocks_of_a_native_tool_are_a_text_each() -> None:
    """A model would read a list of quoted texts in one line."""
    blocks = ToolResult((TextContentBlock("done"), JsonContentBlock({"a": 1}))).to_outcome("1")
    result = outcome_result(blocks, is_modern=True)
    assert result["content"] == [{"type": "text", "text": "done"}, {"type": "text", "text": '{"a": 1}'}]


@pytest.mark.parametrize("output", [[], [1, 2], [{"type": "text", "text": "x"}], [{"type": "text", "text": "x"}, {}]])
def test_a_list_that_is_no_blocks_stays_one_value(output: object) -> None:
    """A tool's own list would be taken apart."""
    [only] = cast("list[dict[str, str]]", outcome_result(ToolOutcome("1", output), is_modern=True)["content"])
    assert json.loads(only["text"]) == output
