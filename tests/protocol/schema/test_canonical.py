"""The parity function, the canonical form and the hash."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from support.schemas.json_schemas import JUNK, are_apart, typed_schemas

from quarterdeck_protocol.schema.canonical import STRIPPED, TYPES, canonical_json, copy_json, digest, normalize_schema

DEEP = 1_200  # beyond what recursion reaches
NULL = {"type": "null"}
EMPTY_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


def test_the_documents_example_comes_out_as_documented() -> None:
    """Breaks: the one example that users have read would give them something else."""
    raw = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "path": {"type": "string", "default": "/tmp"},
            "tags": {"type": "array", "items": [{"type": "string"}, {"type": "number"}]},
        },
        "required": ["path", "missing"],
    }
    assert normalize_schema(raw) == {
        "type": "object",
        "properties": {"path": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["path"],
    }


@pytest.mark.parametrize("junk", [None, True, False, 3, 1.5, "object", [], [{"type": "string"}], {}])
def test_what_is_no_schema_becomes_an_object_without_properties(junk: object) -> None:
    """Breaks: one malformed tool would take its server's other tools down at mount."""
    assert normalize_schema(junk) == EMPTY_OBJECT


@pytest.mark.parametrize("kind", ["String", "any", ["string"], ["object", "null"], [], 1, None, {"type": "string"}])
def test_any_other_type_is_the_object_rule_with_its_siblings_kept(kind: object) -> None:
    """Breaks: an untyped tool would lose the parameters that it declares."""
    raw = {"title": "t", "type": kind, "properties": {"a": NULL}, "enum": [1]}
    assert normalize_schema(raw) == {"title": "t", "type": "object", "properties": {"a": NULL}, "enum": [1]}


@pytest.mark.parametrize("keyword", sorted(STRIPPED))
def test_a_stripped_keyword_goes_at_every_level_but_stays_as_a_property_name(keyword: str) -> None:
    """Breaks: providers would see plumbing that they refuse, or a parameter called `default` would vanish."""
    node = {
        keyword: "x",
        "type": "array",
        "items": {keyword: 1, "type": "object", "properties": {keyword: {keyword: {}}}},
    }
    assert normalize_schema(node) == {
        "type": "array",
        "items": {"type": "object", "properties": {keyword: EMPTY_OBJECT}},
    }


@pytest.mark.parametrize(
    ("raw", "normal"),
    [
        ({"properties": 5}, EMPTY_OBJECT),
        (
            {"properties": {"a": True, "b": None, "c": []}},
            {"type": "object", "properties": dict.fromkeys("abc", EMPTY_OBJECT)},
        ),
        ({"required": ["a"]}, EMPTY_OBJECT),
        ({"required": "a", "properties": {"a": NULL}}, {"type": "object", "properties": {"a": NULL}}),
        (
            {"properties": {"a": NULL, "b": NULL}, "required": ["b", 1, None, ["a"], "b", "a", "z"]},
            {"type": "object", "properties": {"a": NULL, "b": NULL}, "required": ["b", "b", "a"]},
        ),
        ({"additionalProperties": False}, {**EMPTY_OBJECT, "additionalProperties": False}),
        ({"additionalProperties": None}, {**EMPTY_OBJECT, "additionalProperties": None}),
        ({"additionalProperties": {}}, {**EMPTY_OBJECT, "additionalProperties": EMPTY_OBJECT}),
        ({"items": {"$ref": "#"}}, {**EMPTY_OBJECT, "items": {"$ref": "#"}}),
        ({"anyOf": [{"default": 1}]}, {**EMPTY_OBJECT, "anyOf": [{"default": 1}]}),
        ({"$anchor": "a", "x-y": 1, "nullable": True}, {**EMPTY_OBJECT, "$anchor": "a", "x-y": 1, "nullable": True}),
        ({"type": "array"}, {"type": "array"}),
        ({"type": "array", "items": []}, {"type": "array", "items": {}}),
        ({"type": "array", "items": [5]}, {"type": "array", "items": EMPTY_OBJECT}),
        ({"type": "array", "items": {}}, {"type": "array", "items": EMPTY_OBJECT}),
        ({"type": "array", "items": False}, {"type": "array", "items": False}),
        ({"type": "array", "items": None}, {"type": "array", "items": None}),
        ({"type": "array", "required": ["z"], "properties": 5}, {"type": "array", "required": ["z"], "properties": 5}),
        ({"type": "string", "required": True, "items": [1]}, {"type": "string", "required": True, "items": [1]}),
        ({"type": "string", "enum": ["a"], "default": "a"}, {"type": "string", "enum": ["a"]}),
    ],
)
def test_each_keyword_is_treated_by_its_row_of_the_table(raw: dict[str, Any], normal: dict[str, Any]) -> None:
    """Breaks: parity with the other editions."""
    assert normalize_schema(raw) == normal


def test_keys_keep_their_order_and_what_was_missing_comes_last() -> None:
    """Breaks: ledger exports and rendered schemas would differ from run to run."""
    raw = {"title": "t", "required": ["b"], "properties": {"b": {"x-last": 1, "type": "null"}, "a": {}}, "$id": "i"}
    assert list(normalize_schema(raw)) == ["title", "required", "properties", "type"]
    assert list(normalize_schema({"title": "t", "default": {}})) == ["title", "type", "properties"]
    assert list(normalize_schema({"type": [], "title": "t"})) == ["type", "title", "properties"]


@given(JUNK | typed_schemas())
def test_normalising_never_raises_and_neither_changes_nor_shares_its_input(raw: Any) -> None:
    """Breaks: a change to the published schema would change the definition that was approved."""
    before = repr(raw)
    normal = normalize_schema(raw)
    assert repr(raw) == before
    assert normal["type"] in TYPES
    assert are_apart(raw, normal)


@pytest.mark.parametrize(
    "nest",
    [
        lambda inner: {"properties": {"a": inner}},
        lambda inner: {"type": "array", "items": [inner]},
        lambda inner: {"not": inner},
    ],
)
def test_nesting_has_no_limit(nest: Any) -> None:
    """Breaks: one hostile schema would raise RecursionError inside the supervisor."""
    raw: dict[str, Any] = {"type": "null", "default": 0}
    for _ in range(DEEP):
        raw = nest(raw)
    assert normalize_schema(raw)["type"] in TYPES
    assert copy_json(raw) is not raw
    assert len(digest(raw)) == 64


@given(JUNK)
def test_the_canonical_form_is_compact_json_with_sorted_keys(value: Any) -> None:
    """Breaks: keys computed by another edition would not match ours."""
    assert canonical_json(value) == json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def test_the_canonical_form_keeps_nulls_the_order_of_arrays_and_every_character() -> None:
    """Breaks: two different schemas would get one key."""
    value = {"schema": None, "name": 'é"\n', "b": [2, 1, {"z": True, "a": 1.0}]}
    assert canonical_json(value) == '{"b":[2,1,{"a":1.0,"z":true}],"name":"é\\"\\n","schema":null}'


@pytest.mark.parametrize("value", [{1, 2}, b"x", {1: "a"}, [object()]])
def test_what_is_no_json_has_no_canonical_form(value: object) -> None:
    """Breaks: a bug would be hashed instead of seen."""
    with pytest.raises(TypeError):
        canonical_json(value)


def test_lone_surrogates_have_a_digest_of_their_own() -> None:
    """Breaks: a tool with a broken emoji in its schema could not be mounted."""
    assert digest({"description": "\ud83d"}) == hashlib.sha256(b'{"description":"\xed\xa0\xbd"}').hexdigest()
    assert digest("\ud83d") != digest("\ud83e")
