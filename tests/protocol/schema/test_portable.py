"""What models are shown: typed, free of references, and never narrower than the server's own schema."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.schemas.json_schemas import JUNK, VALUES, are_apart, containers, tools, typed_schemas

from quarterdeck_protocol.schema.canonical import normalize_schema
from quarterdeck_protocol.schema.portable import MAX_VALUES, portable_schema
from quarterdeck_protocol.schema.portable_types import DISJOINT_TYPES

from .json_judge import SAMPLES, admits, judge

DEEP = 1_200  # beyond what recursion reaches
EMPTY_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
NULL = {"type": "null"}
STRING = {"type": "string"}
NUMBER = {"type": "number"}


def published(schema: Any, **rest: Any) -> Any:
    return portable_schema({"type": "object", "properties": {"v": schema}, **rest})["properties"]["v"]


def wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"v": schema}}


def any_but(kind: str) -> list[dict[str, Any]]:
    bare = {"object": EMPTY_OBJECT, "array": {"type": "array", "items": {}}}
    return [bare.get(other, {"type": other}) for other in DISJOINT_TYPES if other != kind]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        # any value
        (True, {}),
        ({}, {}),
        (None, {}),
        ([STRING], {}),
        ({"description": "d", "default": 1}, {"description": "d"}),
        ({"type": "any"}, {}),
        (False, EMPTY_OBJECT),
        # unions
        ({"anyOf": [STRING, NULL], "default": None}, {"anyOf": [STRING, NULL]}),
        ({"title": "t", "oneOf": [STRING, NULL], "x": 1}, {"title": "t", "anyOf": [STRING, NULL], "x": 1}),
        ({"anyOf": [{"anyOf": [STRING, NULL]}, {"anyOf": [NULL, NUMBER]}]}, {"anyOf": [STRING, NULL, NUMBER]}),
        ({"anyOf": [STRING, STRING], "title": "t"}, {"type": "string", "title": "t"}),
        ({"anyOf": [STRING, False]}, STRING),
        ({"anyOf": [STRING, {"title": "all"}], "title": "t"}, {"title": "t"}),
        ({"anyOf": []}, {}),
        # lists of types
        ({"type": ["string"]}, STRING),
        ({"type": ["integer", "number"]}, NUMBER),
        ({"type": ["string", "null"], "minLength": 1}, {"anyOf": [{"type": "string", "minLength": 1}, NULL]}),
        ({"type": ["string", "null"], "enum": ["a", None]}, {"anyOf": [{"type": "string", "enum": ["a"]}, NULL]}),
        ({"type": ["string", "null"], "enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        # inferred types
        ({"enum": ["a", "b"]}, {"enum": ["a", "b"], "type": "string"}),
        ({"enum": [1, 1.5]}, {"enum": [1, 1.5], "type": "number"}),
        (
            {"enum": ["a", 1, None]},
            {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "integer", "enum": [1]}, NULL]},
        ),
        ({"const": True}, {"const": True, "type": "boolean"}),
        ({"const": {"$ref": "#"}}, {"const": {"$ref": "#"}, "type": "object", "properties": {}}),
        ({"properties": {"a": STRING}}, {"anyOf": [{**EMPTY_OBJECT, "properties": {"a": STRING}}, *any_but("object")]}),
        ({"items": STRING}, {"anyOf": [{"type": "array", "items": STRING}, *any_but("array")]}),
        ({"minLength": 1}, {"anyOf": [{"type": "string", "minLength": 1}, *any_but("string")]}),
        # tuples
        ({"type": "array", "items": []}, {"type": "array", "items": {}}),
        ({"type": "array", "items": [STRING, NUMBER]}, {"type": "array", "items": {}}),
        (
            {"type": "array", "items": [STRING, NUMBER], "additionalItems": False},
            {"type": "array", "items": {"anyOf": [STRING, NUMBER]}},
        ),
        (
            {"type": "array", "items": [STRING, NUMBER], "additionalItems": NULL},
            {"type": "array", "items": {"anyOf": [STRING, NUMBER, NULL]}},
        ),
        (
            {"type": "array", "items": [STRING, STRING], "maxItems": 2},
            {"type": "array", "items": STRING, "maxItems": 2},
        ),
        # what `normalize_schema` would close
        ({"type": "object", "additionalProperties": {}}, {**EMPTY_OBJECT, "additionalProperties": {}}),
        ({"type": "array", "items": {"description": "d"}}, {"type": "array", "items": {"description": "d"}}),
        ({"type": "array", "items": None}, {"type": "array"}),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, {"type": "number", "minimum": 0}),
    ],
)
def test_each_form_is_published_as_the_table_says(schema: Any, expected: Any) -> None:
    """Breaks: a model would be refused a value that the server takes, or not be told what it may send."""
    assert published(schema) == expected


NAMED = {"type": "string", "title": "N"}
TO_NAME = {"$ref": "#/$defs/name"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (TO_NAME, NAMED),
        ({**TO_NAME, "title": "mine", "default": "x"}, {"title": "mine", "type": "string"}),
        ({**TO_NAME, "maxLength": 3}, {"maxLength": 3, "type": "string", "title": "N"}),
        ({**TO_NAME, "type": "null"}, {"type": "null", "allOf": [NAMED]}),
        ({"anyOf": [TO_NAME, NULL]}, {"anyOf": [NAMED, NULL]}),
        ({"allOf": [TO_NAME], "description": "d"}, {"description": "d", "type": "string", "title": "N"}),
        ({"type": "array", "prefixItems": [TO_NAME]}, {"type": "array", "prefixItems": [NAMED]}),
        ({"type": "string", "not": TO_NAME}, STRING),
        ({"type": "string", "if": TO_NAME, "then": {"minLength": 1}}, STRING),
        ({"type": "string", "oneOf": [TO_NAME]}, {"type": "string", "anyOf": [NAMED]}),
        ({"type": "string", "x-see": TO_NAME}, STRING),
        ({"type": "string", "anyOf": [TO_NAME], "unevaluatedItems": False}, {"type": "string", "anyOf": [NAMED]}),
        ({"$ref": "#/$defs/loop"}, {}),
        ({"$ref": "#/$defs/none"}, {}),
        ({"$dynamicRef": "#name", "type": "string"}, STRING),
    ],
)
def test_references_are_replaced_by_what_they_name(schema: Any, expected: Any) -> None:
    """Breaks: providers refuse a `$ref` whose target is gone, and with it every tool of the session."""
    definitions = {"name": NAMED, "loop": {"$ref": "#/$defs/loop"}}
    assert published(schema, **{"$defs": definitions}) == expected


def test_up_to_draft_7_a_reference_silences_its_neighbours() -> None:
    """Breaks: an old server would take what its published schema refuses."""
    parameter = {"$ref": "#/definitions/name", "maxLength": 3, "description": "d"}
    rest = {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"name": STRING}}
    assert published(parameter, **rest) == {"description": "d", "type": "string"}


def test_a_cycle_is_unrolled_a_few_times_and_then_admits_anything() -> None:
    """Breaks: a tree-shaped parameter would be endless, or hide the shape of its nodes."""
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    level: Any = published({"$ref": "#/$defs/node"}, **{"$defs": {"node": node}})
    depth = 0
    while level:
        level, depth = level["properties"]["next"], depth + 1
    assert depth == 3


def test_all_of_becomes_one_node_where_that_is_exact() -> None:
    """Breaks: a model would not see the parameters that a base schema declares."""
    parts = [
        {"type": "object", "properties": {"a": STRING, "b": NUMBER}, "required": ["a"]},
        {"properties": {"a": {"minLength": 2}, "c": NULL}, "required": ["c"]},
    ]
    assert published({"allOf": parts}) == {
        "type": "object",
        "properties": {"a": {"type": "string", "minLength": 2}, "b": NUMBER, "c": NULL},
        "required": ["a", "c"],
    }


def test_all_of_stays_where_one_node_cannot_say_it() -> None:
    """Breaks: the published schema would promise more, or less, than the parts say together."""
    conditions = [{"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"if": {}, "then": {"required": ["c"]}}]
    raw = {"type": "object", "properties": {"a": STRING}, "allOf": conditions}
    assert portable_schema(raw) == normalize_schema(raw)
    closed = {"type": "object", "properties": {"a": STRING}, "additionalProperties": False}
    assert published(
        {"allOf": [closed, {"$ref": "#/$defs/b"}]},
        **{"$defs": {"b": {"minProperties": 1, "properties": {"b": NULL}, "type": "object"}}},
    ) == {**closed, "allOf": [{"minProperties": 1, "properties": {"b": NULL}, "type": "object"}]}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        *((raw, EMPTY_OBJECT) for raw in (None, True, [], {}, {"type": "string"})),
        ({"type": ["object", "null"], "properties": {"a": STRING}}, {"type": "object", "properties": {"a": STRING}}),
        (
            {"properties": {"a": STRING}, "required": ["a", "b"]},
            {"properties": {"a": STRING}, "required": ["a"], "type": "object"},
        ),
        (
            {"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "title": "t"}}},
            {"type": "object", "title": "t", "properties": {}},
        ),
        ({"anyOf": [{"required": ["a"]}]}, {"anyOf": [{"required": ["a"]}], **EMPTY_OBJECT}),
        ({"$ref": "#"}, EMPTY_OBJECT),
    ],
)
def test_the_top_is_always_an_object_with_properties(raw: Any, expected: Any) -> None:
    """Breaks: providers refuse a tool whose parameters are anything else."""
    assert portable_schema(raw) == expected


@given(typed_schemas())
def test_a_schema_that_normalising_does_not_damage_is_published_normalised(raw: Any) -> None:
    """Breaks: parity with the other editions, down to the order of keys."""
    tool = wrapped(raw)
    assert json.dumps(portable_schema(tool)) == json.dumps(normalize_schema(tool))


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(tools(), st.lists(VALUES, max_size=6))
def test_what_the_server_admits_the_published_schema_admits(tool: Any, values: list[Any]) -> None:
    """Breaks: the rule of soundness: clients would refuse calls that the server takes."""
    server, model = judge(tool), judge(portable_schema(tool))
    for value in [*SAMPLES, *values]:
        if admits(server, {"v": value}):
            assert admits(model, {"v": value}), value


@given(JUNK | tools())
def test_publishing_never_raises_and_neither_changes_nor_shares_its_input(raw: Any) -> None:
    """Breaks: a hostile schema would take its server's other tools down, or change what was approved."""
    before = repr(raw)
    result = portable_schema(raw)
    assert repr(raw) == before
    assert result["type"] == "object"
    assert isinstance(result["properties"], dict)
    assert are_apart(raw, result)


@pytest.mark.parametrize(
    "nest",
    [
        lambda inner: {"type": "object", "properties": {"a": inner}},
        lambda inner: {"properties": {"a": inner}},
        lambda inner: {"type": "array", "items": [inner]},
        lambda inner: {"anyOf": [inner, NULL]},
        lambda inner: {"allOf": [inner, {"minLength": 1}]},
        lambda inner: {"type": "string", "not": inner},
        lambda inner: {"const": inner},
        lambda inner: {"allOf": [{"enum": [inner]}, {"enum": [[]]}]},
    ],
)
def test_nesting_has_no_limit(nest: Callable[[Any], Any]) -> None:
    """Breaks: one hostile schema would raise RecursionError inside the supervisor."""
    raw: Any = {"$ref": "#/$defs/x"}
    for _ in range(DEEP):
        raw = nest(raw)
    assert portable_schema(wrapped(raw))["type"] == "object"


@pytest.mark.parametrize(
    "links",
    [
        lambda ref: {"type": "object", "properties": {"a": ref, "b": ref}},
        lambda ref: {"anyOf": [{"type": "array", "items": ref}, {"type": "object", "additionalProperties": ref}]},
        lambda ref: {"allOf": [{"properties": {"a": ref}}, {"properties": {"a": ref}}]},
        pytest.param(
            lambda ref: {"type": "array", "prefixItems": [ref, ref], "enum": [[1]] * 1000}, marks=pytest.mark.nightly
        ),
    ],
)
@pytest.mark.parametrize("is_cyclic", [True, False])
def test_references_that_multiply_end_within_the_bound(links: Callable[[Any], Any], is_cyclic: bool) -> None:
    """Breaks: two kilobytes from a hostile server would fill the supervisor's memory."""
    count = 3 if is_cyclic else 60
    definitions = {str(n): links({"$ref": f"#/$defs/{(n + 1) % count}"}) for n in range(count)}
    tool = {**wrapped({"$ref": "#/$defs/0"}), "$defs": definitions}
    result = portable_schema(tool)
    assert sum(len(one) for one in containers(result)) <= MAX_VALUES
