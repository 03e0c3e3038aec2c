"""What may be spliced into somebody's stream: exactly one sound object, nested within limits."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_protocol.mcp.jsonrpc import MAX_DEPTH, BodyError, check_depth, check_object

from .json_text import JSON, OBJECTS, dumped

MIB = 1 << 20


# Objects


@pytest.mark.parametrize(
    ("body", "members"),
    [
        (b"{}", {}),
        (b' {"a" : [ ] } ', {"a": b"[ ]"}),
        (b'{"\\u0061":1}', {"a": b"1"}),
        (b'{"a":1,"a":2}', {"a": b"2"}),
        (b'{"a":"\xc3\xa9\x7f"}', {"a": b'"\xc3\xa9\x7f"'}),
        (b'{"a":"\\n\\u2028"}', {"a": b'"\\n\\u2028"'}),
        (b'{"a":1e999}', {"a": b"1e999"}),
        (b'{"":{"b":{}}}', {"": b'{"b":{}}'}),
    ],
)
def test_an_object_gives_its_members_raw(body: bytes, members: dict[str, bytes]) -> None:
    """What is spliced elsewhere is the server's own spelling."""
    assert {key: bytes(value) for key, value in check_object(body, max_bytes=MIB).items()} == members


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"null", b"{} {}", b'{"a":1}\x00', b'{"a":1}\n{"jsonrpc":"2.0","method":"evil"}'),
        *(b'{"a":1}{"method":"evil"}', b'{"a":\n1}', b'{"a":1}\r', b'{"a":"\n"}', b'{"a":"\x01"}', b'{"a":"\\x"}'),
        *(b'{"a":"\\u00g0"}', b'{"a":"\xff"}', b'{"a":{"b":["\xc3"]}}', b'{"\xff":1}', b'{"a":{"\xff":1}}'),
        *(b'{"a":"\xed\xa0\x80"}', b'{"a":"\\ud800"}', b'{"a":01}', b'{"a":1.}', b'{"a":.5}', b'{"a":+1}'),
        *(b'{"a":1e}', b'{"a":NaN}', b'{"a":-Infinity}', b'{"a":nul}', b'{"a":truex}', b'{"a":[1,]}', b'{"a":[1 2]}'),
        *(b'{"a":1,}', b'{"a" 1}', b"{a:1}", b"{'a':1}", b'{"a":[}', b'{"a":{"b":]}}', b'{"a":/*x*/1}'),
        *(b"\xef\xbb\xbf{}", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    ],
    ids=lambda body: repr(body[:40]),
)
def test_what_is_not_exactly_one_sound_object_is_refused(body: bytes) -> None:
    """Spliced into a client's stream it would be a second message, or break the client."""
    with pytest.raises(BodyError):
        check_object(body, max_bytes=MIB)


def test_an_object_may_be_as_long_as_its_limit_and_no_longer() -> None:
    """The limit is counted in bytes, before anything is looked at."""
    body = b'{"a":"%s"}' % (b"x" * 20)
    assert check_object(body, max_bytes=len(body))
    with pytest.raises(BodyError, match="exceed the limit"):
        check_object(body, max_bytes=len(body) - 1)


@given(written=dumped(OBJECTS), cut=st.integers(0, 40), junk=st.binary(max_size=3))
def test_whatever_passes_the_check_is_json_to_everyone(written: tuple[Any, bytes], cut: int, junk: bytes) -> None:
    """A damaged object must not pass as a whole one: clients use stricter and looser parsers than ours."""
    _, text = written
    at = cut % (len(text) + 1)
    for body in (text, text[:at] + junk + text[at:], text[:at] + junk + text[at + 1 :], text[:at]):
        try:
            members = check_object(body, max_bytes=MIB)
        except BodyError:
            assert body is not text
            continue
        value = json.loads(body.decode(), parse_constant=_no_constant)
        assert isinstance(value, dict)
        assert b"\n" not in body
        assert {key: json.loads(bytes(raw)) for key, raw in members.items()} == value


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


# Depth


def _depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0


@given(written=dumped(JSON), most=st.integers(0, 6))
def test_depth_is_that_of_the_value_whatever_its_strings_hold(written: tuple[Any, bytes], most: int) -> None:
    """Brackets, quotes and backslashes inside strings nest nothing."""
    value, body = written
    if _depth(value) <= most:
        check_depth(body, most)
    else:
        with pytest.raises(BodyError, match="nested deeper"):
            check_depth(body, most)


@pytest.mark.parametrize(
    ("body", "depth"),
    [
        *((b'["["]', 1), (b'["]","[[["]', 1), (rb'["\"[["]', 1), (rb'["\\",["x"]]', 2), (rb'["\\\"[",[]]', 2)),
        *((rb'["\\\\",[[]]]', 3), (rb'{"a\"{":{"b":[]}}', 3), (b'["",[],"",[[]],""]', 3), (b'["[","]",[]]', 2)),
        *((b"[{},[],{}]", 2), (b'"[[["', 0), (b"1", 0)),
    ],
)
def test_strings_cannot_hide_or_fake_nesting(body: bytes, depth: int) -> None:
    """The cases that a quick scan gets wrong."""
    assert _depth(json.loads(body)) == depth
    check_depth(body, depth)
    if depth:
        with pytest.raises(BodyError):
            check_depth(body, depth - 1)


@pytest.mark.parametrize("brackets", [b"[]", b"{}"])
def test_the_limit_itself_is_allowed(brackets: bytes) -> None:
    """256 levels pass, 257 do not."""
    opening, closing = (b"[", b"]") if brackets == b"[]" else (b'{"a":', b"}")
    check_depth(opening * MAX_DEPTH + b"1" + closing * MAX_DEPTH)
    with pytest.raises(BodyError):
        check_depth(opening * (MAX_DEPTH + 1) + b"1" + closing * (MAX_DEPTH + 1))


@pytest.mark.parametrize(
    "body",
    [
        b'["' + rb"\"" * 1_000_000 + b'"' + b",[]" * 300 + b"]",
        b'["' + rb"\\" * 1_000_000 + b'"' + b",[]" * 300 + b"]",
        b'["' + b"[" * 2_000_000 + b'"]',
        b"[" + b'"",' * 600_000 + b"[]" + b",[]" * 300 + b"]",
        b"[" + b"[]," * 600_000 + b"1]",
        b"[" + b"[" * 200 + b"]" * 200 + (b"," + b"[" * 200 + b"]" * 200) * 4_000 + b"]",
    ],
    ids=["escaped quotes", "escaped backslashes", "brackets in a string", "empty strings", "pairs", "combs"],
)
def test_looking_for_depth_costs_memory_like_the_body_at_most(body: bytes) -> None:
    """A hostile string of escapes once made a scanner keep sixty times its size to backtrack."""
    tracemalloc.start()
    try:
        check_depth(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(body)
