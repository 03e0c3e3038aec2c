"""Where a text is found in another."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.editing import edit_text as module
from quarterdeck.tools.editing.edit_text import places

letters = st.text(st.sampled_from("ab"), max_size=30)


@given(letters, st.text(st.sampled_from("ab"), min_size=1, max_size=3))
def test_the_places_are_those_that_a_replacement_would_change(text: str, part: str) -> None:
    """A tool would report another number of changes than it makes."""
    found = places(text, part)
    assert len(found) == text.count(part)
    assert all(text.startswith(part, start) for start in found)
    assert all(later - start >= len(part) for start, later in pairwise(found))


def test_no_more_places_are_collected_than_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A letter in a large file would fill the memory with numbers."""
    monkeypatch.setattr(module, "MAX_PLACES", 3)
    assert places("a" * 100, "a") == [0, 1, 2, 3]
