"""Find a text in another where only blanks differ."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from quarterdeck.tools.editing import text_match
from quarterdeck.tools.editing.edit_text import places
from quarterdeck.tools.editing.text_match import MAX_LINE_CHARS, FoldedText, Span, fold, nearest_lines

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


TEXT = "import os\n\n\ndef load(path: str) -> str:\n    return open(path).read()\n\n\ndef save(path): ...\n"


def test_the_lines_that_are_most_alike_are_shown_with_their_numbers() -> None:
    """A model would have to read the whole file again to see its mistake."""
    part = "def load(path):\n    return open(path, 'r').read()"
    assert nearest_lines(TEXT, part) == "     4  def load(path: str) -> str:\n     5      return open(path).read()"


def test_nothing_is_shown_when_nothing_is_alike() -> None:
    """A model would be led to a place that has nothing to do with it."""
    assert nearest_lines(TEXT, "class Zebra: quux") == ""
    assert nearest_lines("", "x") == ""
    assert nearest_lines(TEXT, "\n\n") == ""


def test_long_lines_and_parts_are_shown_in_part() -> None:
    """A hint would fill the context."""
    text = "x" * 1_000 + "\n" + "y\n" * 100
    shown = nearest_lines(text, "x" * 1_000 + "z\n" * 50)
    assert len(shown.split("\n")) == text_match.MAX_SHOWN_LINES
    assert shown.startswith(f"     1  {'x' * MAX_LINE_CHARS}…\n")


def test_only_the_beginning_of_a_large_file_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed edit of a large file would take seconds."""
    monkeypatch.setattr(text_match, "MAX_LINES", 3)
    assert nearest_lines("a\n" * 3 + "needle\n", "needles") == ""
    assert nearest_lines("a\n" * 2 + "needle\n", "needles") == "     3  needle"


@given(st.text(), st.text())
def test_any_two_texts_can_be_compared(text: str, part: str) -> None:
    """A failed edit would end in an exception."""
    assert isinstance(nearest_lines(text, part), str)
