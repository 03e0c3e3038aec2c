"""Which part of a text is most like one that is not in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.editing import text_match
from quarterdeck.tools.editing.text_match import MAX_LINE_CHARS, nearest_lines

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
