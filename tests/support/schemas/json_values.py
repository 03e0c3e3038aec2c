"""JSON values of any kind as a Hypothesis strategy."""

from typing import Any, Final

import hypothesis.strategies as st

ATOMS: Final = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8)

NAMES: Final = st.text(max_size=4)


def json_values(
    atoms: st.SearchStrategy[Any] = ATOMS, names: st.SearchStrategy[Any] = NAMES, max_leaves: int = 12
) -> st.SearchStrategy[Any]:
    """Lists and objects, of up to four members each, of these and of each other."""
    return st.recursive(
        atoms,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
        max_leaves=max_leaves,
    )
