"""Taking an era's envelope off a result, and nothing else."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from quarterdeck_protocol.mcp import jsonrpc

from .json_text import JSON, OBJECTS, TRICKY_TEXT, dumped

MIB = 1 << 20


def _split(body: bytes, max_bytes: int = MIB) -> tuple[bytes, str, bool]:
    split = jsonrpc.split_result(body, max_bytes=max_bytes)
    return split.body, split.result_type, split.is_error


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b' { "content" : [ ] } ',
        b'{"content":[{"type":"text","text":"resultType"}],"structuredContent":{"resultType":"x"}}',
        b'{ "content": [], "_meta": { "a": 1, "b" : {} } }',
        b'{"content":[],"_meta":{}}',
        b'{"content":[],"_meta":null}',
        b'{"_meta":{"x":{"io.modelcontextprotocol/y":1}}}',
        b'{"_meta":{"io.modelcontextprotocol":1,"IO.modelcontextprotocol/x":1}}',
        b'{"a":1,"a":2}',
        b'{"content":[1,"\xc3\xa9"]}',
    ],
)
def test_a_result_with_nothing_to_take_off_keeps_its_very_bytes(body: bytes) -> None:
    """A client sees the server's own spelling, and a large result is not copied."""
    split = jsonrpc.split_result(body, max_bytes=MIB)
    assert split.body is body
    assert (split.result_type, split.is_error) == ("complete", False)


@pytest.mark.parametrize(
    ("body", "rest", "result_type"),
    [
        (b'{"resultType":"complete","content":[]}', b'{"content":[]}', "complete"),
        (b'{"content":[],"resultType":"input_required"}', b'{"content":[]}', "input_required"),
        (b'{"\\u0072esultType":"x","content":[ 1 ]}', b'{"content":[ 1 ]}', "x"),
        (b'{"resultType":"a","resultType":"b"}', b"{}", "b"),
        (b'{"resultType":"complete"}', b"{}", "complete"),
        (b'{"resultType":"complete","_meta":null}', b'{"_meta":null}', "complete"),
        (b'{"resultType":"complete","_meta":{ "a":1}}', b'{"_meta":{ "a":1}}', "complete"),
        (b'{"_meta":{"io.modelcontextprotocol/serverInfo":{}}}', b"{}", "complete"),
        (b'{"_meta":{"a":[ ],"io.modelcontextprotocol/x":1},"z":0}', b'{"_meta":{"a":[ ]},"z":0}', "complete"),
        (b'{"_meta":{"\\u0069o.modelcontextprotocol\\/x":1,"b":2}}', b'{"_meta":{"b":2}}', "complete"),
        (b'{"\\u005fmeta":{"io.modelcontextprotocol/x":1}}', b"{}", "complete"),
        (b'{"_meta":{"io.modelcontextprotocol/x":1,"io.modelcontextprotocol/x":2}}', b"{}", "complete"),
        (b'{"_meta":{"a":1},"_meta":{"io.modelcontextprotocol/x":1}}', b"{}", "complete"),
    ],
)
def test_the_envelope_of_an_era_is_taken_off_however_it_is_spelled(body: bytes, rest: bytes, result_type: str) -> None:
    """A hop's own keys must not reach a client of another era, not even escaped or repeated."""
    assert _split(body) == (rest, result_type, False)


@pytest.mark.parametrize(
    ("member", "is_error"),
    [(b"true", True), (b" true ", True), (b"false", False), (b"null", False), (b"1", False), (b'"true"', False)],
)
def test_an_error_is_only_what_the_server_plainly_calls_one(member: bytes, is_error: bool) -> None:
    """`isError` is passed on as it is, and understood only when it is true."""
    body = b'{"isError":%s}' % member
    assert _split(body) == (body, "complete", is_error)


@pytest.mark.parametrize(
    "body",
    [
        *(b"[]", b'{"content":{}}', b'{"content":null}', b'{"content":"[]"}', b'{"_meta":[]}', b'{"_meta":"x"}'),
        *(b'{"_meta":{"a":1}', b'{"resultType":null}', b'{"resultType":1}', b'{"resultType":["complete"]}'),
        b'{"resultType":"%s"}' % (b"x" * (jsonrpc.MAX_RESULT_TYPE_CHARS + 1)),
        b'{"content":[' + b"[" * jsonrpc.MAX_DEPTH + b"]" * jsonrpc.MAX_DEPTH + b"]}",
        b'{"_meta":{"\xff":1}}',
        b'{"content":[]}\n{"jsonrpc":"2.0","id":9,"result":{}}',
    ],
    ids=lambda body: repr(body[:40]),
)
def test_what_is_no_result_is_refused(body: bytes) -> None:
    """The call ends in a fault, and no client sees it."""
    with pytest.raises(jsonrpc.BodyError):
        jsonrpc.split_result(body, max_bytes=MIB)


def test_a_number_that_clients_cannot_read_is_refused_and_digits_in_a_text_are_not() -> None:
    """A client would refuse the whole line, and wait for its answer for ever."""
    fits, too_long = b"9" * jsonrpc.MAX_DIGITS, b"9" * (jsonrpc.MAX_DIGITS + 1)
    assert _split(b'{"content":[],"structuredContent":{"a":[1,%s]}}' % fits)
    for text in (too_long, b"\\\\" + too_long, b'\\"' + too_long, b'\\\\\\"1,' + too_long):
        assert _split(b'{"content":[{"type":"text","text":"%s"}]}' % text)
        with pytest.raises(jsonrpc.BodyError, match="digits"):
            _split(b'{"content":["%s"],"structuredContent":{"a":%s}}' % (text, too_long))


def test_members_that_nobody_knows_are_few() -> None:
    """Looking at a million of them would stop every other server for a second."""
    many = b",".join(b'"k%d":1' % number for number in range(100_000))
    assert len(many) > jsonrpc.MAX_OTHER_BYTES
    assert _split(b'{"content":[],"structuredContent":{%s}}' % many, 2 * len(many))
    for member in (b"contents", b"messages"):  # of a resource, of a prompt
        assert _split(b'{"%s":[{%s}]}' % (member, many), 2 * len(many))
    for body in (b'{"content":[],%s}' % many, b'{"content":[],"_meta":{%s}}' % many):
        with pytest.raises(jsonrpc.BodyError, match="beside its content"):
            _split(body, 2 * len(many))


def test_a_result_has_its_limit() -> None:
    """`max_result_bytes` counts the result, not the line."""
    with pytest.raises(jsonrpc.BodyError, match="exceed the limit"):
        jsonrpc.split_result(b'{"content":["x"]}', max_bytes=10)


ENVELOPED = st.builds(
    lambda result, result_type, meta, stamps: (
        result | result_type | ({"_meta": meta | stamps} if meta or stamps else {})
    ),
    OBJECTS.filter(lambda value: not value.keys() & {"content", "resultType", "_meta", "isError"}),
    st.just({}) | st.builds(lambda text: {"resultType": text}, TRICKY_TEXT),
    OBJECTS,
    st.dictionaries(st.sampled_from(["a", "serverInfo", ""]).map(jsonrpc.ENVELOPE_PREFIX.__add__), JSON, max_size=2),
)


@given(written=dumped(ENVELOPED))
def test_taking_the_envelope_off_takes_nothing_else(written: tuple[Any, bytes]) -> None:
    """Whatever a server puts beside the envelope reaches the client as it was."""
    value, body = written
    split = jsonrpc.split_result(body, max_bytes=MIB)
    expected = {key: member for key, member in value.items() if key != "resultType"}
    if "_meta" in value:
        meta = {key: member for key, member in value["_meta"].items() if not key.startswith(jsonrpc.ENVELOPE_PREFIX)}
        if meta or not value["_meta"]:
            expected["_meta"] = meta
        else:
            del expected["_meta"]
    assert json.loads(split.body) == expected
    assert list(json.loads(split.body)) == list(expected)
    assert split.result_type == value.get("resultType", "complete")
    assert (split.body is body) == (expected == value)
    again = jsonrpc.split_result(split.body, max_bytes=MIB)
    assert again.body is split.body


@pytest.mark.parametrize(
    ("meta", "kept"),
    [
        (b"{}", b"{}"),
        (b'{ "a":1 }', b'{ "a":1 }'),
        (b'{"io.modelcontextprotocol/a":1}', b""),
        (b'{"io.modelcontextprotocol/a":1,"b": [ ]}', b'{"b":[ ]}'),
    ],
)
def test_a_meta_loses_only_its_envelope(meta: bytes, kept: bytes) -> None:
    """The caller's own keys go down as they came up."""
    assert jsonrpc.without_envelope(meta) == kept


@pytest.mark.parametrize("meta", [b"", b"null", b"[]", b'{"a"', b'{"\xff":1}', b'{"a":' + b"[" * 100_000])
def test_a_meta_that_is_no_object_is_refused(meta: bytes) -> None:
    """Nothing of another shape may be spliced into a request."""
    with pytest.raises(jsonrpc.BodyError):
        jsonrpc.without_envelope(meta)


@given(written=dumped(OBJECTS))
def test_joining_the_members_of_an_object_gives_the_object(written: tuple[Any, bytes]) -> None:
    """Raw members are copied, plain ones are encoded."""
    value, body = written
    members = jsonrpc.check_object(body, max_bytes=MIB)
    assert json.loads(msgspec.json.encode(members)) == value
    assert json.loads(msgspec.json.encode({"own": 1, "raw": Raw(body)})) == {"own": 1, "raw": value}


def test_what_is_no_tools_result_may_have_any_content() -> None:
    """A result of tomorrow's would be refused for a member that means something else there."""
    body = b'{"content":{"type":"text"}}'
    assert jsonrpc.split_result(body, max_bytes=1_000, is_call=False) == jsonrpc.SplitResult(body)
    with pytest.raises(jsonrpc.BodyError):
        jsonrpc.split_result(body, max_bytes=1_000)


def test_a_tasks_keys_are_for_the_other_end() -> None:
    """A result could not be told to be a task's."""
    meta = b'{"io.modelcontextprotocol/related-task":{"taskId":"1"},"io.modelcontextprotocol/serverInfo":{}}'
    assert jsonrpc.without_envelope(meta) == b'{"io.modelcontextprotocol/related-task":{"taskId":"1"}}'


@pytest.mark.parametrize(
    ("params", "without"),
    [
        (b'{"a": 1}', b'{"a": 1}'),
        (b'{"_meta":{"own":1}}', b'{"_meta":{"own":1}}'),
        (b'{"_meta":null}', b'{"_meta":null}'),
        (b'{"text":"io.modelcontextprotocol/"}', b'{"text":"io.modelcontextprotocol/"}'),
        (rb'{"_meta":{"io.modelcontextprotocol\/subscriptionId":1,"own":1}}', b'{"_meta":{"own":1}}'),
        (b'{"a":1.0,"_meta":{"io.modelcontextprotocol/subscriptionId":1}}', b'{"a":1.0}'),
        (b'{"_meta":{"io.modelcontextprotocol/subscriptionId":1,"own":1}}', b'{"_meta":{"own":1}}'),
    ],
)
def test_params_lose_their_envelope_alone(params: bytes, without: bytes) -> None:
    """What belongs to our connection would be shown to a client, or its own words rebuilt."""
    assert jsonrpc.params_without_envelope(params) == without


def test_params_that_are_no_object_are_an_error() -> None:
    """They would end the worker."""
    for params in (b'["io.modelcontextprotocol/"]', b'{"_meta":"io.modelcontextprotocol/"}'):
        with pytest.raises(jsonrpc.BodyError):
            jsonrpc.params_without_envelope(params)
