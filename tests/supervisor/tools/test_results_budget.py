"""What is kept of a long text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.results import STANDARD_BUDGET, UNLIMITED_BUDGET, BudgetKind, OutputBudget, clamp


def gap(omitted_bytes: int) -> str:
    return f"<{omitted_bytes}>"


@pytest.mark.parametrize(
    ("kind", "max_bytes", "text", "kept"),
    [
        (BudgetKind.HEAD, 3, "abcdef", "abc<3>"),
        (BudgetKind.TAIL, 3, "abcdef", "<3>def"),
        (BudgetKind.MIDDLE, 3, "abcdef", "a<3>ef"),
        (BudgetKind.MIDDLE, 4, "abcdef", "ab<2>ef"),
        (BudgetKind.HEAD, 0, "abc", "<3>"),
        (BudgetKind.TAIL, 0, "abc", "<3>"),
        (BudgetKind.MIDDLE, 0, "abc", "<3>"),
        (BudgetKind.HEAD, 3, "aéé", "aé<2>"),
        (BudgetKind.HEAD, 2, "aéé", "a<4>"),
        (BudgetKind.TAIL, 3, "ééa", "<2>éa"),
        (BudgetKind.TAIL, 2, "ééa", "<4>a"),
        (BudgetKind.HEAD, 3, "€€", "€<3>"),
        (BudgetKind.HEAD, 6, "abcdef", "abcdef"),
        (BudgetKind.HEAD, 2, "\ud800\ud800", "<6>"),
    ],
)
def test_a_text_is_cut_to_its_budget_between_characters(kind: BudgetKind, max_bytes: int, text: str, kept: str) -> None:
    """A model would get half a character, or not be told that something is missing."""
    assert clamp(text, OutputBudget(kind, max_bytes, gap)) == kept


@given(st.text(), st.sampled_from(BudgetKind), st.integers(0, 40))
def test_what_is_kept_and_what_is_named_add_up(text: str, kind: BudgetKind, max_bytes: int) -> None:
    """The notice would lie about how much is missing."""
    named: list[int] = []
    result = clamp(text, OutputBudget(kind, max_bytes, lambda omitted: named.append(omitted) or ""))
    size = len(text.encode())
    assert len(result.encode()) + sum(named) == size
    assert len(result.encode()) <= max(max_bytes, 0)
    assert bool(named) == (size > max_bytes)


def test_the_default_notice_names_the_bytes_left_out() -> None:
    """A model would take the rest for the whole."""
    assert "1,234 bytes" in clamp("x" * (64 * 1024 + 1234), STANDARD_BUDGET)


def test_the_unlimited_budget_cuts_nothing() -> None:
    """Results of tools that run elsewhere would be damaged."""
    text = "x" * 100_000
    assert clamp(text, UNLIMITED_BUDGET) is text


def test_a_negative_budget_is_refused() -> None:
    """A slip in a configuration would cut at odd places."""
    with pytest.raises(ValueError, match="-1"):
        OutputBudget(BudgetKind.HEAD, -1)
