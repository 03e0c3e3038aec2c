"""A schema as a document: where its references lead, what stands alone, and one node without references or `allOf`."""

from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from support.schemas.json_schemas import VALUES, schemas

from quarterdeck_protocol.schema.flatten import (
    MAX_NESTED_REFERENCES,
    UNEVALUATED,
    Flattener,
    SchemaDocument,
    Trail,
    ValueBudget,
    merge,
)

from .json_judge import SAMPLES, admits, judge

DOCUMENT: dict[str, Any] = {
    "$defs": {
        "a": {"$ref": "#/$defs/b", "title": "a"},
        "b": {"type": "string", "title": "b"},
        "loop": {"allOf": [{"$ref": "#/$defs/loop"}, {"minLength": 1}]},
    }
}


def flatten(schema: Any, trail: Trail = (), values: int = 100) -> tuple[Any, Trail]:
    return Flattener(SchemaDocument(DOCUMENT), 1, ValueBudget(values)).flatten(schema, trail)


@pytest.mark.parametrize(
    ("schema", "node", "trail"),
    [
        (True, {}, ()),
        ({"type": "null"}, {"type": "null"}, ()),
        ({"$ref": "#/$defs/a"}, {"title": "a", "type": "string"}, ("#/$defs/a", "#/$defs/b")),
        ({"$ref": "#/$defs/loop"}, {"minLength": 1}, ("#/$defs/loop",)),
        ({"allOf": [{"title": "1", "minLength": 1}, False, 5, {"title": "2"}]}, {"title": "1", "minLength": 1}, ()),
        ({"allOf": 5, "title": "t"}, {"title": "t"}, ()),
        ({"$ref": 5, "title": "t"}, {"title": "t"}, ()),
        ({"allOf": [{"not": {}}, {"not": {}}]}, {"not": {}, "allOf": [{"not": {}}]}, ()),
        ({"allOf": [{"title": "t"}], "unevaluatedProperties": False}, {"title": "t"}, ()),
    ],
)
def test_parts_become_one_node_and_leave_a_trail(schema: Any, node: Any, trail: Trail) -> None:
    """Breaks: references would stay behind, or cycles would not be noticed."""
    assert flatten(schema) == (node, trail)


def test_references_nest_so_deep_and_no_deeper() -> None:
    """Breaks: a chain of ten thousand definitions would be followed at every node."""
    trail = tuple(str(number) for number in range(MAX_NESTED_REFERENCES))
    assert flatten({"$ref": "#/$defs/b"}, trail)[0] == {}
    assert flatten({"$ref": "#/$defs/b"}, trail[1:])[0] == {"type": "string", "title": "b"}


def test_a_budget_that_said_no_never_says_yes_again() -> None:
    """Breaks: what is left out would depend on the order of small and large parts."""
    budget = ValueBudget(5)
    assert budget.affords(5)
    assert not budget.is_exceeded
    assert not budget.affords(1)
    assert budget.is_exceeded
    assert not budget.affords(0)


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


SURVEYED: dict[str, Any] = {
    "$id": "https://example.com/tool",
    "properties": {"a": {"anyOf": [{"type": "null"}, False]}, "": {"title": "empty"}},
    "$defs": {"x/y": {"title": "slash"}, "m~n": {"title": "tilde"}, "p q%": {"title": "percent"}, "text": "no schema"},
}


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("#", SURVEYED),
        ("#/properties/a/anyOf/0", {"type": "null"}),
        ("#/properties/a/anyOf/1", False),
        *((reference, None) for reference in ("#/properties/a/anyOf/2", "#/properties/a/anyOf/-1")),
        *((reference, None) for reference in ("#/properties/a/anyOf/²", "#/properties/a/anyOf/" + "9" * 5000)),
        ("#/properties/", {"title": "empty"}),
        ("#/$defs/x~1y", {"title": "slash"}),
        ("#/$defs/m~0n", {"title": "tilde"}),
        ("#/$defs/p%20q%25", {"title": "percent"}),
        *((reference, None) for reference in ("#/$defs/text", "#/$defs/text/0", "#/$defs/missing")),
        *((reference, None) for reference in ("#/%ed%a0%80\ud800", "#anchor", "")),
        *((reference, None) for reference in ("https://example.com/tool#/properties/a", "other.json")),
    ],
)
def test_a_pointer_leads_to_its_schema_or_nowhere(reference: str, target: Any) -> None:
    """Breaks: a parameter would get the schema of another, or a hostile pointer would raise."""
    assert SchemaDocument(SURVEYED).target(reference) == target


def test_a_document_that_embeds_another_resolves_nothing() -> None:
    """Breaks: a pointer that is meant for the inner document would be read in the outer one."""
    inner = {"$id": "https://example.com/inner", "$ref": "#/$defs/a"}
    assert SchemaDocument({"$defs": {"a": {"type": "null"}, "b": inner}}).target("#/$defs/a") is None


@pytest.mark.parametrize(
    ("schema", "is_alone"),
    [
        ({"type": "string", "enum": [1, [2]]}, True),
        ({"anyOf": [{"items": {"type": "null"}}]}, True),
        ({"properties": {"$ref": {"type": "string"}}}, True),
        ({"anyOf": [{"not": {"$ref": "#"}}]}, False),
        ({"$dynamicRef": "#a"}, False),
        ({"anyOf": [{"items": []}]}, False),
        ({"minimum": 0, "exclusiveMinimum": True}, False),
    ],
)
def test_a_part_stands_alone_unless_it_refers_or_is_of_an_older_draft(schema: Any, is_alone: bool) -> None:
    """Breaks: a published schema would hold a reference to what was left behind."""
    document = SchemaDocument({"part": schema})
    assert document.stands_alone(schema) is is_alone
    assert not document.stands_alone([schema])


@pytest.mark.parametrize(
    ("dialect", "rules"),
    [
        ("http://json-schema.org/draft-07/schema#", True),
        ("http://json-schema.org/draft-04/schema", True),
        ("https://json-schema.org/draft/2019-09/schema", False),
        ("https://json-schema.org/draft/2020-12/schema", False),
        (None, False),
        (7, False),
    ],
)
def test_the_dialect_says_whether_a_reference_rules(dialect: Any, rules: bool) -> None:
    """Breaks: keywords beside a `$ref` would be enforced that the server ignores."""
    assert SchemaDocument({"$schema": dialect}).lets_references_rule is rules
