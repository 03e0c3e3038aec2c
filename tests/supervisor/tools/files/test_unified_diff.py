"""What replacements change in a text, as hunks of a unified diff."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.files import unified_diff
from quarterdeck.tools.files.file_content import UnifiedText
from quarterdeck.tools.files.unified_diff import MAX_DIFF_BYTES, Replacement, diff_of, replace_parts

from .unified_diffs import apply_hunks

texts = st.lists(st.sampled_from(["\n", "a", "b\n", "ab", "c\n", "\n\n\n\n\n\n\n\n"]), min_size=1).map("".join)
parts = st.lists(st.sampled_from(["", "\n", "a", "x", "b\n", "y\nz", "z\n\n"]), max_size=4).map("".join)


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, list[Replacement]]:
    """A text and replacements in it, ascending and apart."""
    text = draw(texts)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    spans = [(start, end) for start, end in list(pairwise(cuts))[::2] if start < end]
    return text, [Replacement(start, end, draw(parts)) for start, end in spans]


@given(changes())
def test_a_diff_says_exactly_what_has_changed(change: tuple[str, list[Replacement]]) -> None:
    """A model would believe in another change than the one that was made."""
    text, replacements = change
    assert apply_hunks(text, diff_of(text, replacements)) == replace_parts(UnifiedText(text), replacements)


@given(changes())
def test_a_diff_shows_no_line_as_changed_at_its_ends_that_is_not(change: tuple[str, list[Replacement]]) -> None:
    """A model would look for a difference where there is none."""
    text, replacements = change
    for each in unified_diff._changes(text, replacements):
        assert each.old or each.new
        assert not (each.old and each.new) or (each.old[0] != each.new[0] and each.old[-1] != each.new[-1])


def test_a_hunk_shows_three_lines_on_both_sides() -> None:
    """A model could not tell where a change is."""
    text = "".join(f"{number}\n" for number in range(1, 21))
    at = text.index("10\n")
    assert diff_of(text, [Replacement(at, at + 2, "ten")]) == (
        "@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n"
    )


def test_near_changes_share_a_hunk_and_far_ones_do_not() -> None:
    """Lines would be shown twice, or the whole file for two changes at its ends."""
    text = "".join(f"{number:02}\n" for number in range(1, 31))

    def replace(*lines: int) -> str:
        return diff_of(text, [Replacement(3 * line - 3, 3 * line, "x\ny\n") for line in lines])

    assert replace(10, 17).count("@@ -") == 1
    assert replace(10, 18).count("@@ -") == 2
    assert "@@ -15,7 +16,8 @@" in replace(10, 18)


def test_a_long_diff_is_cut_and_says_so() -> None:
    """One edit of a whole file would fill the context."""
    text = "word\n" * 20_000
    all_of_it = [Replacement(start, start + 4, "other") for start in range(0, len(text), 5)]
    diff = diff_of(text, all_of_it)
    assert len(diff) < MAX_DIFF_BYTES + 100
    assert diff.endswith("\n[the diff is cut here; 20,000 places were changed]\n")
    apart = "\n".join(["word"] + ["."] * 8) * 4_000
    far = [Replacement(at, at + 4, "w") for at in range(0, len(apart), len(apart) // 4_000)]
    assert diff_of(apart, far).endswith("\n[the diff is cut here; 4,000 places were changed]\n")


def test_a_diff_that_shows_little_of_many_changes_says_that_there_are_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model would take the part for the whole."""
    monkeypatch.setattr(unified_diff, "_MAX_SHOWN_CHARS", 6)
    text = "a\nb\na\nb\n"
    diff = diff_of(text, [Replacement(0, 4, "a\nc\n"), Replacement(4, 8, "a\nc\n")])
    assert diff == "@@ -1,4 +1,4 @@\n a\n-b\n+c\n a\n b\n\n[the diff is cut here; 2 places were changed]\n"


@pytest.mark.parametrize(
    ("raw", "replacement", "after"),
    [
        ("a\nb\nc", Replacement(2, 3, "x\ny"), "a\nx\ny\nc"),
        ("a\r\nb\r\nc", Replacement(2, 3, "x\ny"), "a\r\nx\r\ny\r\nc"),
        ("a\rb\rc", Replacement(2, 3, "x\ny"), "a\rx\ry\rc"),
        ("a\nb\r\nc", Replacement(0, 1, "x\ny"), "x\ny\nb\r\nc"),
        ("a\nb\r\nc", Replacement(2, 3, "x\ny"), "a\nx\r\ny\r\nc"),
        ("a\r\nb", Replacement(1, 2, ""), "ab"),
        ("ab", Replacement(1, 1, "x\ny"), "ax\nyb"),
    ],
)
def test_what_is_new_takes_the_line_ends_of_its_place(raw: str, replacement: Replacement, after: str) -> None:
    """An edit would leave a file with mixed line ends."""
    assert replace_parts(UnifiedText(raw), [replacement]) == after
