"""Arguments that are made from a stranger's schema."""

import json
from typing import Any

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator
from support.schemas.json_schemas import JUNK

from quarterdeck.check.schemas import problem_of, references, schema_problem, simple_schema, wrapped
from quarterdeck.check.values import argument_sets, refused_sets

FOLDER = "/work"


def schema(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or []}


@pytest.mark.parametrize(
    "node",
    [
        {"type": "string", "minLength": 3, "maxLength": 5},
        {"type": "string", "format": "uri"},
        {"type": "integer", "minimum": 5, "maximum": 7},
        {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 2},
        {"type": "number", "minimum": 0.5, "multipleOf": 0.5},
        {"type": "integer", "multipleOf": 7, "minimum": 1},
        {"enum": ["b", 3, None]},
        {"const": {"a": [1]}},
        {"type": ["null", "boolean"]},
        {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "integer"}, "minItems": 2}]},
        {"oneOf": [{"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}]},
        {"allOf": [{"type": "object", "properties": {"b": {"type": "string"}}}, {"required": ["b"]}]},
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2},
        {"type": "array", "items": {"type": "string"}, "minItems": 3, "uniqueItems": True},
        {"$ref": "#/$defs/node"},
        {"type": "string", "default": "given"},
        {},
    ],
)
def test_each_set_of_arguments_is_one_that_the_schema_takes(node: Any) -> None:
    """A call would fail for what we sent, and the server be blamed."""
    node_type = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "integer"}}}
    whole = {**schema(["a"], a=node, b={"type": "boolean"}), "$defs": {"node": node_type}}
    sets = argument_sets(simple_schema(whole), FOLDER)
    assert sets
    for arguments in sets:
        Draft202012Validator(whole).validate(arguments)


def test_arguments_are_what_is_required_and_all_there_is() -> None:
    """A tool would be called in one way only, or in another one each time."""
    whole = schema(["path"], path={"type": "string"}, timeZone={"type": "string"}, siteUrl={"type": "string"})
    first, second = argument_sets(simple_schema(whole), FOLDER)
    assert first == {"path": "/work/sample.txt"}
    assert second == {"path": "/work/sample.txt", "timeZone": "UTC", "siteUrl": "https://example.com/"}
    assert argument_sets(simple_schema(whole), FOLDER) == [first, second]


def test_refused_arguments_lack_something_or_are_of_another_type() -> None:
    """A server would be blamed for arguments that its schema takes."""
    whole = simple_schema(schema(["a", "b"], a={}, b={"type": "integer"}))
    told = dict(refused_sets(whole, FOLDER))
    assert [*told] == ["without 'a', which is required", "with an object as 'b'"]
    assert all(problem_of(whole, arguments) for arguments in told.values())
    assert [*refused_sets(simple_schema(schema(a={"type": "integer"})), FOLDER)] == []


@given(JUNK)
def test_whatever_a_server_sends_as_its_schema_is_borne(junk: Any) -> None:
    """A hostile schema would end the check."""
    simple = simple_schema(junk)
    for arguments in argument_sets(simple, FOLDER):
        assert len(json.dumps(arguments)) < 1_000_000
    list(refused_sets(simple, FOLDER))
    schema_problem(junk)
    list(references(junk))


def test_a_pattern_that_takes_for_ever_and_a_deep_schema_are_borne() -> None:
    """One tool would hang the check."""
    evil = simple_schema(schema(["a"], a={"type": "string", "pattern": "(a+)+$"}, pattern={"type": "string"}))
    assert problem_of(evil, {"a": "a" * 40 + "b"}) == ""
    assert "pattern" in json.dumps(evil)
    deep: Any = {"type": "string"}
    for _ in range(3000):
        deep = {"type": "object", "properties": {"a": deep}, "required": ["a"]}
    assert isinstance(argument_sets(simple_schema(deep), FOLDER), list)
    assert "deep" in schema_problem(deep) or "larger" in schema_problem(deep)


@pytest.mark.parametrize(
    ("ref", "leads"),
    [
        ("#", True),
        ("#/$defs/a", True),
        ("#/properties/x~1y", True),
        ("#/anyOf/0", True),
        ("#here", True),
        ("#/$defs/b", False),
        ("#/anyOf/1", False),
        ("https://example.com/schema", False),
        ("other.json", False),
    ],
)
def test_a_reference_leads_somewhere_or_nowhere(ref: str, *, leads: bool) -> None:
    """A sound schema would be blamed, or one that no client can resolve pass."""
    whole = {
        "$defs": {"a": {"$anchor": "here"}},
        "properties": {"x/y": {}, "z": {"$ref": ref}},
        "anyOf": [{}],
        "examples": [{"$ref": "#/no"}],
    }
    assert list(references(whole)) == [(ref, leads)]


def test_an_output_of_any_type_is_judged() -> None:
    """A list that a tool promises could be anything."""
    simple = simple_schema(
        wrapped({"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}})
    )
    assert problem_of(simple, {"value": [1]}) == ""
    assert problem_of(simple, {"value": ["1"]}).startswith("value/0")
