"""Rows as each client writes them, there and back."""

import pytest

from quarterdeck.config.clients.row_shapes import COMMON, common_row


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
