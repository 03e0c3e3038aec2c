"""Carry the indentation of a text over to the place where it goes."""

import pytest

from quarterdeck.tools.editing import edit_text as module
from quarterdeck.tools.editing.edit_text import Translation, indentation_of


def test_lines_get_the_indentation_that_their_like_have() -> None:
    """A change of a file with tabs would bring blanks into it."""
    translation = Translation(["if x:", "    y()"], ["\tif x:", "\t\ty()"])
    assert translation.carry_over("if x:\n    z()\n\n    w()") == "\tif x:\n\t\tz()\n\n\t\tw()"


def test_deeper_lines_keep_what_they_have_more() -> None:
    """What is new and deeper would lose its depth."""
    assert Translation(["  a"], ["\ta"]).carry_over("  a:\n    b") == "\ta:\n\t  b"


def test_less_indented_lines_stay() -> None:
    """There is nothing to learn about them."""
    assert Translation(["    a"], ["\ta"]).carry_over("b\n    a") == "b\n\ta"


def test_the_first_like_decides_and_blank_lines_say_nothing() -> None:
    """A blank line of the file would take all indentation away."""
    translation = Translation(["", "a", "a"], ["    ", "  a", "    a"])
    assert translation.carry_over("b\n   ") == "  b\n   "


def test_the_same_indentation_changes_nothing() -> None:
    """A new part would be touched for no reason."""
    text = "  a\n\tb"
    assert Translation(["  a"], ["  a"]).carry_over(text) is text
    assert Translation([], []).carry_over(text) is text


def test_only_so_many_indentations_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part with thousands of them would take forever."""
    monkeypatch.setattr(module, "MAX_INDENTATIONS", 1)
    assert Translation(["a", " b"], ["\ta", "\t\tb"]).carry_over("a\n b") == "\ta\n\t b"


def test_indentation_is_all_blanks_at_the_beginning() -> None:
    """A tab or a hard blank would count as text."""
    assert indentation_of(" \t\u00a0x ") == " \t\u00a0"
