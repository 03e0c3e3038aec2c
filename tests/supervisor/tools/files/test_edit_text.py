"""Change a text by what it says, also where only blanks differ."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from quarterdeck.tools.files import edit_text as module
from quarterdeck.tools.files.edit_text import MAX_LINE_CHARS, Edited, Refused, Translation, edit_text, nearest_lines
from quarterdeck.tools.files.file_content import UnifiedText

from .unified_diffs import apply_hunks

letters = st.text(st.sampled_from("ab c\n"), max_size=40)
METHOD = "class A:\n    def f(self):\n        pass\n"

short = st.text(st.sampled_from("ab c\n"), min_size=1, max_size=4)
occurring = st.tuples(letters, short, letters).map(lambda parts: ("".join(parts), parts[1]))
"""A text, and a part that is in it."""


def made(raw: str, old: str, new: str, *, all_places: bool = False) -> Edited:
    edited = edit_text(raw, old, new, all_places=all_places)
    assert isinstance(edited, Edited), edited
    return edited


def refused(raw: str, old: str, new: str, *, all_places: bool = False) -> str:
    answer = edit_text(raw, old, new, all_places=all_places)
    assert isinstance(answer, Refused), answer
    return answer.reason


@given(occurring, short)
def test_what_is_there_is_replaced_as_a_program_would(found: tuple[str, str], new: str) -> None:
    """A model would get another text than it asked for."""
    text, old = found
    assume(old != new)
    edited = made(text, old, new, all_places=True)
    assert (edited.text, edited.count, edited.folded_blanks) == (text.replace(old, new), text.count(old), False)
    assert apply_hunks(text, edited.diff) == edited.text


@given(occurring, short)
def test_one_place_is_changed_only_when_there_is_one(found: tuple[str, str], new: str) -> None:
    """An edit would hit a place that nobody meant."""
    text, old = found
    assume(old != new)
    answer = edit_text(text, old, new)
    starts = [at for at in range(len(text)) if text.startswith(old, at)]
    if len(starts) == 1:
        assert isinstance(answer, Edited)
        assert (answer.text, answer.count) == (text.replace(old, new), 1)
    else:
        assert isinstance(answer, Refused)
        assert answer.reason.startswith("oldText was found ")


@given(occurring, short, st.sampled_from(["\r\n", "\r"]), st.booleans())
def test_a_file_keeps_its_line_ends(found: tuple[str, str], new: str, end: str, models_own: bool) -> None:
    """A file of another system would come back with mixed line ends."""
    text, old = found
    text += "\n"
    assume(old != new)
    old_said, new_said = (part.replace("\n", "\r\n") if models_own else part for part in (old, new))
    edited = made(text.replace("\n", end), old_said, new_said, all_places=True)
    assert edited.text == text.replace(old, new).replace("\n", end)


@given(letters, letters, short, st.booleans())
def test_every_answer_is_a_change_that_its_diff_describes_or_a_reason(
    text: str, old: str, new: str, all_places: bool
) -> None:
    """An edit would raise, or claim what it did not do."""
    answer = edit_text(text, old, new, all_places=all_places)
    if isinstance(answer, Edited):
        assert answer.text != text
        assert apply_hunks(text, answer.diff) == answer.text
    else:
        assert answer.reason[-1] in ".:"


def test_other_blanks_are_accepted_when_the_text_is_nowhere_as_given() -> None:
    """A model that miscounts blanks could not edit."""
    edited = made("def f( a,  b ):\n\treturn a\n", "def f( a, b ):\n    return a", "def f(b):\n    return b")
    assert edited == Edited(
        "def f(b):\n\treturn b\n",
        1,
        "@@ -1,2 +1,2 @@\n-def f( a,  b ):\n-\treturn a\n+def f(b):\n+\treturn b\n",
        folded_blanks=True,
    )


@pytest.mark.parametrize(
    ("raw", "old", "new", "after"),
    [
        (
            METHOD,
            "def f(self):\n    pass",
            "def f(self):\n    x()\n    y()",
            METHOD.replace("pass", "x()\n        y()"),
        ),
        ("\t\ta\n", "    a", "    b", "\t\tb\n"),
        ("\t\ta\n", "    a", "b", "b\n"),
        ("x  = 1 # note\n", " x = 1", " x = 2", "x = 2 # note\n"),
        ("a   +  b  + c\n", " + b ", " - b ", "a   - b  + c\n"),
        ("  a \n  b  c\n  d\n", "a\nb c\n", "", "    d\n"),
        ("  a \n  b  c\n  d\n", "  a\n  b c\n", "", "  d\n"),
        ("\ta  1\r\n\tb\r\n", "a 1\nb", "a 2\n\nb", "\ta 2\r\n\r\n\tb\r\n"),
        ("a\n\n  b  2\n", "\n b 2", "\n b 3", "a\n\n  b 3\n"),
        ("  a  1\n  b\n", "a 1\n    ", "a 2\n    ", "  a 2\n  b\n"),
    ],
)
def test_what_was_found_with_other_blanks_is_replaced_in_the_files_style(
    raw: str, old: str, new: str, after: str
) -> None:
    """The change would not be indented like its neighbours, or blanks would double."""
    edited = made(raw, old, new)
    assert edited.folded_blanks
    assert edited.text == after
    assert apply_hunks(UnifiedText(raw).text, edited.diff) == UnifiedText(after).text


def test_all_places_with_other_blanks_are_replaced_each_in_its_own_style() -> None:
    """`replaceAll` would indent all places like the first."""
    raw = "a  = 1\n\ta =  1\n"
    assert made(raw, "  a = 1", "  a = 2", all_places=True).text == "a = 2\n\ta = 2\n"


@pytest.mark.parametrize(
    ("raw", "old", "new", "reason"),
    [
        ("a", "", "b", "oldText is empty."),
        ("a", "a", "a", "oldText and newText are the same."),
        ("a\r\n", "a\r\n", "a\n", "oldText and newText are the same but for their line ends"),
        ("a\nb\na\n", "a", "b", "oldText was found 2 times, on lines 1, 3. Give more of the text around the one"),
        ("aaa", "aa", "b", "oldText was found 2 times, on line 1."),
        ("x\n" * 9, "x", "b", "oldText was found 9 times, on lines 1, 2, 3, 4, 5 and others."),
        ("a  b\na   b", "a b", "c", "oldText was found with other blanks 2 times, on lines 1, 2. Give more"),
        ("a", " \n\t", "b", "oldText was not found, and consists of blanks only."),
        ("a  b", "a b", "a  b", "oldText was found only with other blanks, and newText is what is there already."),
        ("load(a)", "load(b)", "x", "oldText was not found, not even with other blanks. The nearest lines are:"),
        ("load(a)", "zebra", "x", "oldText was not found, not even with other blanks. No line is"),
        ("", "a", "b", "oldText was not found"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_to_do(raw: str, old: str, new: str, reason: str) -> None:
    """A model would try the same again."""
    assert refused(raw, old, new).startswith(reason)


def test_the_refusal_of_an_unknown_text_shows_what_is_there() -> None:
    """A model would have to read the whole file again."""
    assert "\n     2  def load(a):\n" in refused("import os\ndef load(a):\n", "def load(b):", "x")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_are_bounded_before_and_after(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """Eight million empty lines held up every client for two seconds."""
    monkeypatch.setattr(module, "MAX_LINES", 10)
    assert refused(f"a{end}" * 11, "b", "c").startswith("it has more than 10 lines")
    assert refused(f"a{end}" * 4, "a", "\n\n", all_places=True) == "the file would then have more than 10 lines."
    assert refused(f"a{end}" * 10, "b", "c").startswith("oldText was not found")


def test_sizes_are_bounded_on_every_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call could take all memory."""
    monkeypatch.setattr(module, "MAX_TEXT_CHARS", 100)
    monkeypatch.setattr(module, "MAX_PART_CHARS", 50)
    monkeypatch.setattr(module, "MAX_PLACES", 10)
    assert "may have 50 characters each" in refused("a", "a" * 51, "b")
    assert "may have 50 characters each" in refused("a", "a", "b" * 51)
    assert refused("a" * 101, "a", "b").startswith("it has more than 100 characters")
    assert refused("a a a ", "a", "b" * 40, all_places=True) == "the file would then have more than 100 characters."
    assert refused("a" * 20, "a", "b", all_places=True).startswith("oldText was found more than 10 times")


@pytest.mark.parametrize(
    ("raw", "old", "all_places"),
    [
        ("a" * 1_000_000, "a" * 50_000 + "b", False),
        ("ab" * 500_000, "ab" * 20_000 + "c", False),
        ("a " * 500_000, "a  " * 20_000 + "c", False),
        ("x " * 20_000, "x", True),
        ("x  y " * 20_000, "x y", True),
        ("x  y\n" * 20_000, "x y\n", True),
        ("\n" * 1_000_000, "\n" * 500_000 + "x", False),
        ("\r\n" * 20_000 + "\n", "\n", True),
    ],
)
def test_repetitive_texts_cost_no_more_than_others(raw: str, old: str, all_places: bool) -> None:
    """A hostile file would hold a thread for hours; the test's own time limit tells."""
    assert edit_text(raw, old, "z\n", all_places=all_places) is not None


def test_only_so_many_indentations_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part with thousands of them would take forever."""
    monkeypatch.setattr(module, "MAX_INDENTATIONS", 1)
    assert Translation(["a", " b"], ["\ta", "\t\tb"]).carry_over("a\n b") == "\ta\n\t b"


def test_long_lines_and_parts_are_shown_in_part() -> None:
    """A hint would fill the context."""
    text = "x" * 1_000 + "\n" + "y\n" * 100
    shown = nearest_lines(text, "x" * 1_000 + "z\n" * 50)
    assert len(shown.split("\n")) == module.MAX_SHOWN_LINES
    assert shown.startswith(f"     1  {'x' * MAX_LINE_CHARS}…\n")


def test_only_the_beginning_of_a_large_file_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed edit of a large file would take seconds."""
    monkeypatch.setattr(module, "MAX_COMPARED_LINES", 3)
    assert nearest_lines("a\n" * 3 + "needle\n", "needles") == ""
    assert nearest_lines("a\n" * 2 + "needle\n", "needles") == "     3  needle"


@given(st.text(), st.text())
def test_any_two_texts_can_be_compared(text: str, part: str) -> None:
    """A failed edit would end in an exception."""
    assert isinstance(nearest_lines(text, part), str)
