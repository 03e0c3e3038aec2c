"""Find a text in another where only blanks differ."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from quarterdeck.tools.editing.edit_text import places
from quarterdeck.tools.editing.text_match import FoldedText, Span, fold

words = st.text(st.sampled_from("ab \t\n\u00a0"), max_size=30)


def find(text: str, part: str) -> list[Span]:
    folded, wanted = FoldedText(text), fold(part)
    return folded.spans(places(folded.text, wanted), len(wanted))


@given(words, words, words)
def test_what_is_found_differs_in_blanks_only(before: str, part: str, after: str) -> None:
    """An edit would replace something else than what was quoted."""
    assume(part.strip())
    text = before + part + after
    for span in find(text, part):
        assert fold(text[span.start : span.end]) == fold(part)
        assert span.line_start == text.rfind("\n", 0, span.start) + 1
        assert text[span.line_start :].startswith(span.lines[0])
        assert span.starts_line == (not text[span.line_start : span.start].strip())


@pytest.mark.parametrize(
    ("text", "part", "found"),
    [
        ("\tif x:\n\t\ty()\n", "if x:\n    y()", "if x:\n\t\ty()"),
        ("a  =\t1 \n", " a = 1", "a  =\t1"),
        ("x = f( a,  b )", "f( a, b )", "f( a,  b )"),
        ("a\n\n  b\n", "a\n\nb\n", "a\n\n  b\n"),
        ("a \n   \n b", "a\n\nb", "a \n   \n b"),
        ("a\u00a0b", "a b", "a\u00a0b"),
        ("  a\n  b\n", "\n b", "\n  b"),
    ],
)
def test_blanks_between_words_and_around_lines_compare_equal(text: str, part: str, found: str) -> None:
    """A model that miscounts blanks could not edit."""
    [span] = find(text, part)
    assert text[span.start : span.end] == found


@pytest.mark.parametrize(("text", "part"), [("ab", "a b"), ("a b", "ab"), ("a b", "a\nb"), ("a\n\nb", "a\nb")])
def test_words_and_lines_are_told_apart(text: str, part: str) -> None:
    """An edit would hit what is not the same at all."""
    assert find(text, part) == []


def test_every_place_on_a_long_line_is_found() -> None:
    """A file on one line would be edited at the wrong columns."""
    text = "  a   b ;" * 1_000
    spans = find(text, "a b")
    assert {text[span.start : span.end] for span in spans} == {"a   b"}
    assert len({span.start for span in spans}) == 1_000
    assert [span.starts_line for span in spans[:2]] == [True, False]
