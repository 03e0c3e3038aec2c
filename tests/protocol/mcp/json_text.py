"""JSON values at random, and the ways to write them on one line."""

import json
from typing import Any

from hypothesis import strategies as st

TRICKY_TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('[]{}"\\\n\t,:'), max_size=12)
"""Strings full of what stands for structure outside of them."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TRICKY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TRICKY_TEXT, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TRICKY_TEXT, JSON, max_size=4)


@st.composite
def dumped(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> tuple[Any, bytes]:
    """A value, and one of the ways to write it on one line."""
    value = draw(values)
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " :  ")]))
    text = json.dumps(value, ensure_ascii=draw(st.booleans()), separators=separators)
    return value, text.encode()
