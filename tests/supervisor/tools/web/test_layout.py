"""Laying out text as lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.web.layout import MAX_DEPTH, FullError, Lines


def test_white_space_flows() -> None:
    """Text would come with the page's own line breaks and indentation."""
    lines = Lines(1000)
    for text in ("  one\n two", "three ", "\t", " four", "", "\xa0five"):
        lines.words(text)
    assert lines.text() == "one twothree four five"


def test_lines_and_blocks_stand_apart() -> None:
    """Headings, paragraphs and rows would run together."""
    lines = Lines(1000)
    lines.end_block()
    lines.words("one")
    lines.end_line()
    lines.end_line()
    lines.words("two")
    lines.end_block()
    lines.end_block()
    lines.words("three")
    lines.end_block()
    assert lines.text() == "one\ntwo\n\nthree"


def test_parts_indent_and_mark_their_first_line() -> None:
    """Lists would lose their shape."""
    lines = Lines(1000)
    lines.words("a list:")
    lines.indent("  ", "- ")
    lines.words("one")
    lines.indent("   ", "1. ")
    lines.words("deep")
    lines.end_line()
    lines.words("more")
    lines.dedent()
    lines.dedent()
    lines.indent("> ", "> ")
    lines.words("said")
    lines.end_block()
    lines.words("on")
    lines.end_block()
    lines.dedent()
    lines.words("after")
    assert lines.text() == "a list:\n- one\n  1. deep\n     more\n> said\n>\n> on\n\nafter"


def test_an_item_without_text_is_no_line() -> None:
    """Lists of icons would be lists of dashes."""
    lines = Lines(1000)
    lines.indent("  ", "- ")
    lines.dedent()
    lines.indent("  ", "- ")
    lines.indent("  ", "- ")
    lines.words("x")
    lines.dedent()
    lines.dedent()
    assert lines.text() == "- - x"


def test_what_was_appended_can_be_taken_back() -> None:
    """Links and cells could not be wrapped."""
    lines = Lines(1000)
    lines.words("see ")
    position = lines.position()
    lines.words(" here ")
    taken = lines.take_since(position)
    assert taken is not None
    assert taken.strip() == "here"
    lines.mark("[here]")
    lines.words(" now")
    assert lines.text() == "see [here] now"


def test_what_lines_have_ended_in_cannot_be_taken_back() -> None:
    """A link around blocks would swallow a part of them."""
    lines = Lines(1000)
    position = lines.position()
    lines.words("one")
    lines.end_line()
    lines.words("two")
    assert lines.take_since(position) is None
    assert lines.text() == "one\ntwo"


def test_verbatim_lines_keep_their_inner_spaces() -> None:
    """Code would lose its indentation."""
    lines = Lines(1000)
    lines.indent("> ", "> ")
    lines.verbatim("if x:\n    y\n\nz")
    lines.dedent()
    assert lines.text() == "> if x:\n>     y\n>\n> z"


def test_a_text_ends_where_it_may() -> None:
    """Links that become absolute could fill the memory."""
    lines = Lines(10)
    with pytest.raises(FullError):
        for _ in range(10):
            lines.words("word ")
    assert lines.text() == "word word"


@given(st.lists(st.sampled_from(["in", "out", "word", "line", "block"]), max_size=200))
def test_any_nesting_is_laid_out(steps: list[str]) -> None:
    """A page's nesting could crash the reader, or make each line longer than the last."""
    lines, depth = Lines(100_000), 0
    for step in steps:
        match step:
            case "in":
                lines.indent("  ", "- ")
                depth += 1
            case "out" if depth:
                lines.dedent()
                depth -= 1
            case "word":
                lines.words("w ")
            case "line":
                lines.end_line()
            case "block":
                lines.end_block()
    text = lines.text()
    assert "\n\n\n" not in text
    assert text.count("w") == steps.count("word")
    assert all(len(line) <= 2 * MAX_DEPTH + 2 * len(steps) for line in text.split("\n"))
