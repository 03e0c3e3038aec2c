"""JSON values at random, and the ways to write them on one line."""

import json
from typing import Any

from hypothesis import strategies as st
from support.schemas.json_values import json_values

TRICKY_TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('[]{}"\\\n\t,:'), max_size=12)
"""Strings full of what stands for structure outside of them."""

FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON = json_values(st.none() | st.booleans() | st.integers() | FINITE | TRICKY_TEXT, TRICKY_TEXT)
OBJECTS = st.dictionaries(TRICKY_TEXT, JSON, max_size=4)


@st.composite
def dumped(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> tuple[Any, bytes]:
    """A value, and one of the ways to write it on one line."""
    value = draw(values)
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " :  ")]))
    text = json.dumps(value, ensure_ascii=draw(st.booleans()), separators=separators)
    return value, text.encode()
