"""Two schemas in one node, exactly or not at all."""

from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from support.json_judge import SAMPLES, admits, judge
from support.json_schemas import VALUES, schemas

from quarterdeck_protocol.schema.flatten import UNEVALUATED, merge

CLOSED = {"properties": {"a": {}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ({}, {"type": "string"}, {"type": "string"}),
        ({"title": "a"}, {"title": "b", "type": "string"}, {"title": "a", "type": "string"}),
        ({"type": "number"}, {"type": "integer"}, {"type": "integer"}),
        ({"type": ["string", "null", "number"]}, {"type": ["integer", "null"]}, {"type": ["integer", "null"]}),
        ({"type": "string"}, {"type": "null"}, None),
        ({"required": ["a", "b"]}, {"required": ["b", "c", 1]}, {"required": ["a", "b", "c"]}),
        ({"enum": [1, True, "a"]}, {"enum": [True, "a", 2]}, {"enum": [True, "a"]}),
        ({"enum": [1]}, {"enum": [True]}, None),
        ({"enum": [[1]]}, {"enum": [[1]]}, None),
        ({"const": "a"}, {"const": "a"}, {"const": "a"}),
        ({"const": True}, {"const": 1}, None),
        ({"minimum": 1, "maximum": 9}, {"minimum": 2, "maximum": 5}, {"minimum": 2, "maximum": 5}),
        ({"uniqueItems": False}, {"uniqueItems": True}, {"uniqueItems": True}),
        ({"pattern": "a"}, {"pattern": "b"}, None),
        ({"anyOf": [{}]}, {"anyOf": [{}]}, None),
        ({"items": {}}, {"prefixItems": [{}]}, None),
        ({"if": {}}, {"then": {}}, None),
        (CLOSED, {"properties": {"b": {}}}, None),
        ({"properties": {"b": {}}}, CLOSED, None),
        (CLOSED, {"required": ["a"]}, {**CLOSED, "required": ["a"]}),
        (
            {"properties": {"a": {"minLength": 1}}},
            {"properties": {"a": {"maxLength": 2}, "b": {}}},
            {"properties": {"a": {"allOf": [{"minLength": 1}, {"maxLength": 2}]}, "b": {}}},
        ),
        ({"properties": 1}, {"properties": {}}, None),
    ],
)
def test_keywords_join_by_the_table(first: dict[str, Any], second: dict[str, Any], both: dict[str, Any] | None) -> None:
    """Breaks: a base schema's parameters would not reach the model, or would reach it wrong."""
    assert merge(first, second) == both


def _is_part(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.keys().isdisjoint({"allOf", *UNEVALUATED})


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(*[schemas(depth=2, refs=False).filter(_is_part)] * 2, st.lists(VALUES, max_size=6))
def test_a_merged_node_admits_what_both_admit_and_nothing_else(first: Any, second: Any, values: list[Any]) -> None:
    """Breaks: the published schema would promise more, or less, than the server's."""
    both = merge(first, second)
    event("merged" if both is not None else "apart")
    if both is None:
        return
    merged, *parts = map(judge, (both, first, second))
    for value in [*SAMPLES, *values]:
        assert admits(merged, value) == (admits(parts[0], value) and admits(parts[1], value)), value
