"""A text whose lines all end in one way, and the way back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.editing.encoded_text import UnifiedText

texts = st.text(st.sampled_from("ab\r\n"), max_size=40)


@given(texts, st.data())
def test_every_offset_leads_to_the_same_character(raw: str, data: st.DataObject) -> None:
    """An edit would hit a place beside the one that was found."""
    unified = UnifiedText(raw)
    offset = data.draw(st.integers(0, len(unified.text)))
    head, tail = raw[: unified.raw_offset(offset)], raw[unified.raw_offset(offset) :]
    assert unified.unify(head) + unified.unify(tail) == unified.text
    assert len(unified.unify(head)) == offset


@given(texts)
def test_each_line_is_known_by_what_it_ends_in(raw: str) -> None:
    """A new line would get another end than its neighbours."""
    unified = UnifiedText(raw)
    ends = [unified.line_end_at(offset) for offset, character in enumerate(unified.text) if character == "\n"]
    lines = unified.text.split("\n")
    rebuilt = "".join(line + str(end) for line, end in zip(lines, ends, strict=False)) + lines[-1]
    assert rebuilt == raw


@pytest.mark.parametrize(
    ("raw", "offset", "end"),
    [
        ("one", 0, None),
        ("one\ntwo", 0, "\n"),
        ("one\r\ntwo", 5, "\r\n"),
        ("one\rtwo", 5, "\r"),
        ("one\ntwo\r\nthree", 4, "\r\n"),
        ("one\ntwo\r\nthree", 2, "\n"),
        ("one\ntwo\r\nthree", 9, "\r\n"),
        ("one\r\ntwo\nthree", 9, "\n"),
        ("a\rb\nc", 0, "\n"),
    ],
)
def test_a_line_without_an_end_goes_by_the_one_before(raw: str, offset: int, end: str | None) -> None:
    """What is added at the end of a file would mix its line ends."""
    assert UnifiedText(raw).line_end_at(offset) == end


def test_a_part_is_unified_as_the_text_is() -> None:
    """What a model quotes with its own line ends would not be found."""
    assert UnifiedText("a\r\nb").unify("a\nb\r\n\r") == "a\nb\n\r"
    assert UnifiedText("a\rb").unify("a\r\nb\rc\n") == "a\nb\nc\n"
