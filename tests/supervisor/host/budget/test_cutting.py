"""What stays of a result that is above a budget, and what its client can read of the rest."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.common.tokens import estimated_tokens
from quarterdeck.host.budget import cutting
from quarterdeck.host.budget.cutting import chars_within, overlong
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_object
from quarterdeck_protocol.tools import WireResult

URI = "quarterdeck://results/one"
IMAGE = {"type": "image", "data": "A" * 4000, "mimeType": "image/png"}


def wire(*blocks: object, **members: object) -> WireResult:
    return WireResult(json.dumps({"content": blocks, **members}).encode(), "2025-11-25", bool(members.get("isError")))


def text(said: str, **members: object) -> dict[str, object]:
    return {"type": "text", "text": said, **members}


def resource(said: str, **members: object) -> dict[str, object]:
    return {"type": "resource", "resource": {"uri": "file:///a", "text": said, **members}}


def cut(result: WireResult, max_tokens: int = 10, *, has_schema: bool = False) -> dict[str, Any] | None:
    found = overlong(result, max_tokens, lambda: has_schema)
    if found is None:
        return None
    shorter = found.cut("W")
    assert (shorter.era, shorter.is_error, shorter.result_type) == (result.era, result.is_error, result.result_type)
    value: dict[str, Any] = json.loads(shorter.body)
    return value


def whole(result: WireResult, max_tokens: int = 10) -> list[dict[str, str]]:
    found = overlong(result, max_tokens, lambda: False)
    assert found is not None
    contents: list[dict[str, str]] = json.loads(found.whole(URI))["contents"]
    return contents


LONG = "a" * 22 + "m" * 56 + "z" * 22


def test_both_ends_of_a_long_text_stay_and_a_notice_says_how_much_went_and_where() -> None:
    """A model would be given all of it, or take a part for the whole."""
    found = cut(wire(text(LONG, annotations={"priority": 1}), isError=True, _meta={"own": 1}))
    kept = "a" * 22 + "\n[56 bytes left out: W]\n" + "z" * 22
    assert found == {"content": [text(kept, annotations={"priority": 1})], "isError": True, "_meta": {"own": 1}}
    assert whole(wire(text(LONG))) == [{"uri": URI, "mimeType": "text/plain", "text": LONG}]


def gap(left_out: int) -> str:
    return f"\n[{left_out} bytes left out: W]\n"


@pytest.mark.parametrize(
    "result",
    [
        wire(text("a" * 44), IMAGE),
        wire(text("é" * 44)),
        wire(text("a" * 40), structuredContent={}),
        WireResult(b'{"task":{"taskId":"%b"}}' % (b"t" * 50), "2025-11-25"),
    ],
)
def test_what_is_within_the_budget_or_has_no_text_stays_as_it_is(result: WireResult) -> None:
    """A picture would be lost, or a short answer be changed."""
    assert cut(result) is None


@pytest.mark.parametrize(
    ("blocks", "kept"),
    [
        (
            (text("a" * 22), text("b" * 9), IMAGE, text("d" * 31)),
            (text("a" * 22), text(gap(18)), IMAGE, text("d" * 22)),
        ),
        ((text("a" * 30), text("c" * 9), text("d" * 30)), (text("a" * 22 + gap(25)), text("d" * 22))),
        (
            (text("a" * 22), text(""), text("c" * 9), text("d" * 22)),
            (text("a" * 22), text(""), text(gap(9)), text("d" * 22)),
        ),
        ((text("a" * 60), text("d")), (text("a" * 22 + gap(17) + "a" * 21), text("d"))),
        ((resource("a" * 99, mimeType="b/c"),), (resource("a" * 22 + gap(55) + "a" * 22, mimeType="b/c"),)),
        (
            ({}, text("a" * 99), {"type": "text"}, {"type": 7}),
            ({}, text("a" * 22 + gap(55) + "a" * 22), {"type": "text"}, {"type": 7}),
        ),
    ],
)
def test_texts_are_cut_as_one_and_what_is_none_stays(blocks: tuple[object, ...], kept: tuple[object, ...]) -> None:
    """A picture would be lost, or a client be sent many notices in place of one text."""
    assert cut(wire(*blocks)) == {"content": list(kept)}


def test_structured_content_goes_first_where_no_schema_describes_it() -> None:
    """A client that checks it would refuse the result; or one that gives it to its model would fill that."""
    structure = {"a": "s" * 60}
    result = wire(text("short"), structuredContent=structure)
    said = json.dumps(structure)
    notice = f"[structured content of {len(said)} bytes left out: W]"
    assert cut(result) == {"content": [text("short"), text(notice)]}
    assert whole(result)[1] == {"uri": URI, "mimeType": "application/json", "text": said}
    assert cut(result, has_schema=True) is None
    both = wire(text(LONG), structuredContent=structure)
    assert cut(both) == {
        "content": [text("a" * 22 + "\n[56 bytes and the structured content left out: W]\n" + "z" * 22)]
    }
    kept = cut(both, has_schema=True)
    assert kept["structuredContent"] == structure


@pytest.mark.parametrize(
    "body",
    [
        b'{"content":{"text":"%b"}}',
        b'{"content":[7,{"type":"text","text":"%b"}]}',
        b'{"content":[{"type":"text","text":"\\ud800%b"}]}',
        b'{"content":[{"type":"text","text":["%b"]}]}',
        b'{"content":[{"type":"resource","resource":{"text":1}}],"x":"%b"}',
        b'["%b"]',
    ],
)
def test_text_that_cannot_be_read_is_said_and_not_passed(body: bytes) -> None:
    """A server would get past the budget by what only some clients read."""
    with pytest.raises(BodyError):
        overlong(WireResult(body % (b"x" * 100), "2025-11-25"), 10, lambda: False)


blocks = st.lists(
    st.one_of(
        st.builds(text, st.text(st.characters(exclude_categories=["Cs"]), max_size=80)),
        st.builds(resource, st.text("abé漢", max_size=80)),
        st.just({"type": "image", "data": "A", "mimeType": "image/png"}),
    ),
    max_size=8,
)


@given(
    blocks=blocks, structure=st.none() | st.dictionaries(st.text("ab"), st.text("xyz")), max_tokens=st.integers(1, 40)
)
def test_a_cut_result_is_within_its_budget_and_its_whole_has_everything(
    blocks: list[dict[str, Any]], structure: dict[str, str] | None, max_tokens: int
) -> None:
    """A long result would get through by its shape, or a part of it be nowhere."""
    members = {} if structure is None else {"structuredContent": structure}
    result = wire(*blocks, **members)
    said = [
        block["text"] if block["type"] == "text" else block["resource"]["text"] for block in blocks if has_text(block)
    ]
    size = sum(map(len, said)) + (0 if structure is None else len(json.dumps(structure)))
    found = overlong(result, max_tokens, lambda: False)
    assert (found is None) == (size <= chars_within(max_tokens))
    if found is None:
        return
    more = [] if structure is None else [json.dumps(structure)]
    assert [each["text"] for each in json.loads(found.whole(URI))["contents"]] == said + more
    shorter = found.cut("")
    check_object(shorter.body, max_bytes=len(shorter.body))
    content = json.loads(shorter.body)["content"]
    notice = "\n[1,000 bytes and the structured content left out: ]\n"
    assert sum(map(len, texts_of(content))) <= chars_within(max_tokens) + len(notice)
    assert [each for each in content if not has_text(each)] == [each for each in blocks if not has_text(each)]


def texts_of(blocks: list[dict[str, Any]]) -> list[str]:
    return [block["resource"]["text"] if "resource" in block else block["text"] for block in blocks if has_text(block)]


def has_text(block: dict[str, Any]) -> bool:
    return block["type"] != "image"


def test_a_block_is_what_its_type_means_however_that_is_written() -> None:
    """A server would get past the budget by an escape that every client reads."""
    body = b'{"content":[{"t\\u0079pe":"te\\u0078t","text":"%b"}]}' % LONG.encode()
    found = overlong(WireResult(body, "2025-11-25"), 10, lambda: False)
    assert "56 bytes left out" in found.cut("W").body.decode()


def test_a_result_of_more_blocks_than_are_looked_at_is_refused() -> None:
    """A result of two million blocks would hold every client's calls up for half a minute."""
    most = [text("ab")] * cutting.MAX_BLOCKS
    assert cut(wire(*most)) is not None
    with pytest.raises(BodyError, match=f"at most length {cutting.MAX_BLOCKS}"):
        cut(wire(*most, text("ab")))


ESCAPED = ("\\n", "\\\\", '\\"', "\\u00e9", "\\ud83d\\ude00", "é", "漢", "😀", "e9", "x")


@given(units=st.lists(st.sampled_from(ESCAPED), min_size=1, max_size=5), max_tokens=st.integers(1, 30))
def test_no_more_of_a_long_text_is_decoded_than_may_stay(units: list[str], max_tokens: int) -> None:
    """Every client would wait while a text of 64 MiB is read; or an escape be cut in two."""
    chars, decoded = chars_within(max_tokens), list[int]()
    unit = "".join(units)
    said = unit * (chars * 30 // len(unit) + 30)
    result = WireResult(b'{"content":[{"type":"text","text":"%b"}]}' % said.encode(), "2025-11-25")

    text_of = cutting._text_of

    def spy(text: bytes) -> str:
        found = text_of(text)
        decoded.append(len(text))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "_text_of", spy)
        found = overlong(result, max_tokens, lambda: False)
        [block] = json.loads(found.cut("W").body)["content"]
    whole = json.loads(f'"{said}"')
    head, _, rest = block["text"].partition("\n[")
    tail = rest.partition("W]\n")[2]
    assert (whole.startswith(head), whole.endswith(tail)) == (True, True)
    assert (len(head), len(head) + len(tail)) == (chars // 2, chars)
    assert sum(decoded) <= (chars + 4) * cutting.CHAR_BYTES
    [content] = json.loads(found.whole(URI))["contents"]
    assert content["text"] == whole


@given(said=st.text(st.characters(exclude_categories=["Cs"])), max_tokens=st.integers(1, 50))
def test_a_text_is_cut_exactly_when_the_estimate_is_above_the_budget(said: str, max_tokens: int) -> None:
    """The figures of `quarterdeck tools --tokens` would mean something else than the key."""
    result = WireResult(msgspec.json.encode({"content": [text(said)]}), "2026-07-28")
    assert (overlong(result, max_tokens, lambda: False) is not None) == (estimated_tokens(said) > max_tokens)
