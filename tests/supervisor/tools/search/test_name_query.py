"""Names that are looked for."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.search.name_query import MAX_QUERY_CHARS, NameQuery


@pytest.mark.parametrize(
    ("query", "name", "is_match"),
    [
        ("read", "README.md", True),
        ("read", "thread.py", True),
        ("read", "rea.d", False),
        ("[id]", "[id].tsx", True),
        (".", "plain", False),
        ("*.py", "a.PY", True),
        ("*.py", "a.pyc", False),
        ("*.py", ".py", True),
        ("test_*", "test_a.py", True),
        ("test_*", "a_test_b.py", False),
        ("*a*b*", "xaybz", True),
        ("*a*b*", "xbya", False),
        ("ab*ba", "aba", False),
        ("ab*ba", "abba", True),
        ("?", "a", True),
        ("?", "ab", False),
        ("?", "", False),
        ("file??.txt", "file07.txt", True),
        ("*", "", True),
        ("**", "anything\n", True),
        ("[ab]*", "a", False),
        ("{a,b}*", "a", False),
        ("caf\u00e9*", "cafe\u0301.txt", True),
        ("STRASSE", "stra\u00dfe", True),
        ("?ink", "\udcffink", True),
    ],
)
def test_a_name_is_looked_for_by_a_part_or_by_a_pattern_for_the_whole(query: str, name: str, is_match: bool) -> None:
    """A model would not find the file that it describes."""
    assert NameQuery(query).matches(name) is is_match


@given(st.text(alphabet="ab*?.", min_size=1, max_size=8), st.text(alphabet="ab.", max_size=8))
def test_patterns_mean_what_they_say(query: str, name: str) -> None:
    """Some combination of stars would miss files, or find wrong ones."""
    known = {"*": ".*", "?": "."}
    expected = "".join(known.get(char, re.escape(char)) for char in query)
    if not {"*", "?"} & set(query):
        expected = f".*{expected}.*"
    assert NameQuery(query).matches(name) == bool(re.fullmatch(expected, name, re.DOTALL))


def test_no_pattern_is_slow() -> None:
    """A model could hold up every session with one pattern."""
    query = NameQuery("*a" * (MAX_QUERY_CHARS // 4) + "*" + "?a" * (MAX_QUERY_CHARS // 4) + "*b")
    assert not any(query.matches("a" * 255 + end) for end in ("c",) * 1000)
