"""Rows as each client writes them, there and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.config.clients.known_clients import CLIENTS
from quarterdeck.config.clients.row_shapes import COMMON, RowShape, common_row, dialled_row, started_row

WORDS = st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=8)


@given(
    st.sampled_from([client.shape for client in CLIENTS]),
    st.lists(WORDS, min_size=1, max_size=3),
    st.dictionaries(WORDS, WORDS, max_size=2),
)
def test_what_a_client_is_given_is_read_back(shape: RowShape, command: list[str], env: dict[str, str]) -> None:
    """An entry of ours would not be recognised, and be started by ourselves."""
    row = common_row(shape, started_row(shape, "deck", command, env))
    assert (row["command"], row["args"], row.get("env", {})) == (command[0], command[1:], env)
    if shape.url is not None:
        row = common_row(shape, dialled_row(shape, "deck", "http://h/mcp", "t"))
        assert (row["url"], row["headers"]) == ("http://h/mcp", {"Authorization": "Bearer t"})


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"type": "local"}, {"type": "stdio"}),
        ({"type": "odd"}, {"type": "odd"}),
        ({"bearer_token_env_var": "T"}, {"headers": {"Authorization": "Bearer ${T}"}}),
        ({"env_http_headers": {"X": "T"}, "headers": {"Y": "z"}}, {"headers": {"Y": "z", "X": "${T}"}}),
        ({"env_vars": ["A", {"name": "B"}], "env": {"C": "d"}}, {"inherit_env": ["A"], "env": {"C": "d"}}),
        ({"env_keys": ["A"]}, {"env": {"A": "${input:A}"}}),
        ({"env_keys": 1, "env": 2}, {"env": 2}),
        ({"enabled_tools": ["a"], "disabled_tools": ["b"]}, {"includeTools": ["a"], "excludeTools": ["b"]}),
    ],
)
def test_other_ways_to_say_a_thing_are_ours(row: dict[str, object], expected: dict[str, object]) -> None:
    """A server would be started without its key, or with tools that were switched off."""
    assert common_row(COMMON, row) == expected
