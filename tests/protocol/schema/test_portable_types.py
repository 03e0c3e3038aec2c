"""Which values a node's keywords speak about."""

from typing import Any

import pytest

from quarterdeck_protocol.schema.canonical import JsonValue
from quarterdeck_protocol.schema.portable_types import alternatives, types_within


@pytest.mark.parametrize(
    ("node", "within", "kinds"),
    [
        ({"type": "string"}, None, ("string",)),
        ({"type": ["null", "string", "null"]}, None, ("null", "string")),
        ({"type": ["integer", "number"]}, None, ("number",)),
        ({"type": ["string", "other"]}, None, ()),
        ({"type": []}, None, ()),
        ({"type": {"a": 1}, "enum": [1, "a", 2.5]}, None, ("string", "number")),
        ({"const": None, "enum": ["a"]}, None, ("null",)),
        ({"enum": "ab"}, None, ()),
        ({}, None, ()),
        ({}, "object", ("object",)),
        ({"type": ["null", "object"]}, "object", ("object",)),
        ({"type": ["null", "integer"]}, "number", ("integer",)),
        ({"type": "string"}, "object", ("string",)),
    ],
)
def test_the_types_of_a_node_are_declared_or_listed_or_those_around_it(
    node: dict[str, JsonValue], within: str | None, kinds: tuple[str, ...]
) -> None:
    """Breaks: a parameter would be published under a type that the server does not take."""
    assert set(types_within(node, within)) == set(kinds)


@pytest.mark.parametrize(
    ("node", "kinds", "branches"),
    [
        ({"title": "t"}, (), None),
        ({"not": {}}, (), None),
        ({"oneOf": [{}, False, True]}, (), [{}, True]),
        ({"anyOf": [{}], "minLength": 1, "title": "t"}, (), [{"allOf": [{}, {"minLength": 1}]}]),
        ({"anyOf": [{}], "unevaluatedProperties": False, "type": "any"}, (), [{}]),
        ({"minLength": 1, "minimum": 2, "not": {}}, ("null",), [{"type": "null", "not": {}}]),
        ({"enum": [1, 1.0, 1.5, "a"]}, ("integer", "null"), [{"type": "integer", "enum": [1, 1.0]}]),
        (
            {"enum": [1, True]},
            ("number", "boolean"),
            [{"type": "number", "enum": [1]}, {"type": "boolean", "enum": [True]}],
        ),
    ],
)
def test_a_node_without_one_type_is_dealt_out_to_its_branches(node: Any, kinds: tuple[str, ...], branches: Any) -> None:
    """Breaks: a constraint would be lost, or be asked of values that it does not speak about."""
    assert alternatives(node, kinds) == branches
