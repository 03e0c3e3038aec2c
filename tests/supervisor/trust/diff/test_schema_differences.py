"""What a changed schema does to a client: old calls that may fail are never called additive."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from quarterdeck.trust.diff.schema_differences import Side, is_same_choice, schema_differences, string_set, widens
from quarterdeck.trust.diff.values import ABSENT, Difference, Severity

TEXT, ADDITIVE, BREAKING = Severity.TEXT, Severity.ADDITIVE, Severity.BREAKING


def differences(old: object, new: object, side: Side = Side.INPUT) -> list[Difference]:
    return list(schema_differences(old, new, side, ("inputSchema" if side is Side.INPUT else "outputSchema",)))


def told(old: object, new: object, side: Side = Side.INPUT) -> list[tuple[str, Severity]]:
    return [(each.place.split("/", 2)[-1], each.severity) for each in differences(old, new, side)]


def an_object(**properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


STRING: dict[str, Any] = {"type": "string"}


@pytest.mark.parametrize(
    ("old", "new", "place", "as_input", "as_output"),
    [
        ({}, {"type": "string"}, "type", BREAKING, ADDITIVE),
        ({"type": "string"}, {"type": ["string", "null"]}, "type", ADDITIVE, BREAKING),
        ({"type": "integer"}, {"type": "number"}, "type", ADDITIVE, BREAKING),
        ({"type": "number"}, {"type": "integer"}, "type", BREAKING, ADDITIVE),
        ({"type": "string"}, {"type": "number"}, "type", BREAKING, BREAKING),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, "enum", ADDITIVE, BREAKING),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, "enum", BREAKING, ADDITIVE),
        ({"enum": ["a", "b"]}, {"enum": ["a", "c"]}, "enum", BREAKING, BREAKING),
        ({"enum": ["number"]}, {"enum": ["number", "integer"]}, "enum", ADDITIVE, BREAKING),
        ({"minimum": 1}, {"minimum": 0}, "minimum", ADDITIVE, BREAKING),
        ({"minimum": 1}, {"minimum": 2}, "minimum", BREAKING, ADDITIVE),
        ({"maxLength": 5}, {"maxLength": 9}, "maxLength", ADDITIVE, BREAKING),
        ({"maxLength": 5}, {}, "maxLength", ADDITIVE, BREAKING),
        ({}, {"maxItems": 5}, "maxItems", BREAKING, ADDITIVE),
        ({"exclusiveMinimum": True}, {}, "exclusiveMinimum", BREAKING, BREAKING),
        ({}, {"pattern": "^a"}, "pattern", BREAKING, ADDITIVE),
        ({"pattern": "^a"}, {}, "pattern", ADDITIVE, BREAKING),
        ({"pattern": "^a"}, {"pattern": "^b"}, "pattern", BREAKING, BREAKING),
        ({"uniqueItems": True}, {"uniqueItems": False}, "uniqueItems", ADDITIVE, BREAKING),
        ({}, {"additionalProperties": False}, "additionalProperties", BREAKING, BREAKING),
        ({"additionalProperties": False}, {}, "additionalProperties", ADDITIVE, ADDITIVE),
        ({"additionalProperties": True}, {"additionalProperties": STRING}, "additionalProperties", BREAKING, BREAKING),
        ({}, {"items": STRING}, "items", BREAKING, ADDITIVE),
        ({"items": {}}, {"items": STRING}, "items/type", BREAKING, ADDITIVE),
        ({"default": 1}, {"default": 2}, "default", BREAKING, TEXT),
        ({"anyOf": [STRING]}, {"anyOf": [{"type": "null"}, STRING]}, "anyOf/0", ADDITIVE, BREAKING),
        ({"anyOf": [{"type": "null"}, STRING]}, {"anyOf": [STRING]}, "anyOf/0", BREAKING, ADDITIVE),
        ({"allOf": [STRING]}, {"allOf": [STRING, {"minLength": 2}]}, "allOf/1", BREAKING, ADDITIVE),
        ({"oneOf": [STRING]}, {"oneOf": [STRING, {}]}, "oneOf/1", BREAKING, BREAKING),
        ({"not": {"minimum": 1}}, {"not": {"minimum": 0}}, "not/minimum", BREAKING, BREAKING),
        ({"if": {}}, {"if": {"minimum": 0}}, "if/minimum", BREAKING, BREAKING),
        ({"$ref": "#/a"}, {"$ref": "#/b"}, "$ref", BREAKING, BREAKING),
        ({}, {"x-odd": 1}, "x-odd", BREAKING, BREAKING),
        ({"required": "a"}, {"required": ["a"]}, "required", BREAKING, BREAKING),
        (True, False, "", BREAKING, ADDITIVE),
        ({"description": "a"}, {"description": "b"}, "description", TEXT, TEXT),
        ({"examples": [1]}, {"examples": [2]}, "examples", TEXT, TEXT),
    ],
)
def test_each_keyword_tells_callers_and_readers_apart(
    old: object, new: object, place: str, as_input: Severity, as_output: Severity
) -> None:
    """Who sends fears a narrower schema, who reads a wider one."""
    assert told(an_object(x=old), an_object(x=new)) == [(f"properties/x/{place}".rstrip("/"), as_input)]
    assert told(an_object(x=old), an_object(x=new), Side.OUTPUT) == [(f"properties/x/{place}".rstrip("/"), as_output)]


def test_a_new_optional_argument_is_additive_and_a_required_one_breaking() -> None:
    """The first may be left away by old callers, the second may not."""
    assert told(an_object(), an_object(x=STRING)) == [("properties/x", ADDITIVE)]
    (change,) = differences(an_object(), an_object(x=STRING) | {"required": ["x"]})
    assert (change.severity, change.noun, change.verb) == (BREAKING, 'argument "x"', "is new, and required")


def test_an_argument_that_becomes_required_is_breaking_and_one_that_need_not_be_sent_additive() -> None:
    """Each name is told by itself, whatever the order of the array."""
    free, must = an_object(x=STRING), an_object(x=STRING) | {"required": ["x"]}
    assert [(each.severity, each.verb) for each in differences(free, must)] == [(BREAKING, "is required now")]
    assert [(each.severity, each.verb) for each in differences(must, free)] == [(ADDITIVE, "is no longer required")]
    assert told(must, free, Side.OUTPUT) == [("required", BREAKING)]


def test_a_keyword_is_told_in_words_and_a_name_of_the_servers_own_is_quoted() -> None:
    """A person would have to know JSON Schema, or take a server's own words for ours."""
    old, new = an_object(x={"maxLength": 5}), an_object(x={"maxLength": 9, "nothing of importance": 1})
    assert [each.noun for each in differences(old, new)] == [
        'the maximum length of argument "x"',
        '"nothing of importance" of argument "x"',
    ]
    assert [each.noun for each in differences({}, [])] == ["the schema of its input"]


def test_an_argument_called_description_is_no_text() -> None:
    """A member's name is not a keyword."""
    assert told(an_object(description=STRING), an_object(description={"type": "number"})) == [
        ("properties/description/type", BREAKING)
    ]


@pytest.mark.parametrize(
    "union", [{"anyOf": [STRING, {"type": "null"}]}, {"anyOf": [{"type": "null"}, STRING], "default": None}]
)
def test_an_argument_that_becomes_nullable_is_additive(union: dict[str, Any]) -> None:
    """The way in which typed languages write `Optional` is no other type."""
    found = [each for each in differences(an_object(x=STRING), an_object(x=union)) if "/anyOf" in each.place]
    assert [each.severity for each in found] == [ADDITIVE]
    back = [each for each in differences(an_object(x=union), an_object(x=STRING)) if "/anyOf" in each.place]
    assert [each.severity for each in back] == [BREAKING]


def test_definitions_are_followed() -> None:
    """Half of all schemas of typed servers stand there."""
    old = {"$defs": {"P": an_object(a=STRING)}, **an_object(p={"$ref": "#/$defs/P"})}
    new = {"$defs": {"P": an_object(a=STRING, b=STRING)}, **an_object(p={"$ref": "#/$defs/P"})}
    assert told(old, new) == [("$defs/P/properties/b", ADDITIVE)]


def test_a_definition_that_a_negation_uses_is_in_doubt() -> None:
    """What widens it narrows the schema that says `not`."""
    old = {"$defs": {"P": {"enum": ["a"]}}, **an_object(p={"not": {"$ref": "#/$defs/P"}})}
    new = {"$defs": {"P": {"enum": ["a", "b"]}}, **an_object(p={"not": {"$ref": "#/$defs/P"}})}
    assert told(old, new) == [("$defs/P/enum", BREAKING)]


def test_alternatives_in_another_order_are_the_same() -> None:
    """Generators sort them as they like."""
    one, other = {"anyOf": [STRING, {"type": "null"}]}, {"anyOf": [{"type": "null"}, STRING]}
    assert told(one, other) == []


LEAVES = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "integer", "number", ["string", "null"], ["integer", "string"]]),
        "enum": st.lists(st.sampled_from(["a", "b", 1, 2, None]), min_size=1, max_size=4),
        "minimum": st.integers(0, 3),
        "maximum": st.integers(1, 4),
        "exclusiveMinimum": st.integers(0, 2),
        "multipleOf": st.sampled_from([1, 2]),
        "minLength": st.integers(0, 2),
        "maxLength": st.integers(1, 3),
        "pattern": st.sampled_from(["^a", "b"]),
        "const": st.sampled_from(["a", 1]),
        "not": st.fixed_dictionaries({}, optional={"const": st.sampled_from(["a", 1]), "minimum": st.integers(0, 3)}),
        "description": st.sampled_from(["one", "two"]),
    },
)
NESTED = st.one_of(
    LEAVES,
    st.builds(lambda of: {"anyOf": of}, st.lists(LEAVES, min_size=1, max_size=3)),
    st.builds(lambda of: {"allOf": of}, st.lists(LEAVES, min_size=1, max_size=2)),
    st.builds(lambda of: {"oneOf": of}, st.lists(LEAVES, min_size=1, max_size=2)),
    st.builds(lambda of: {"type": "array", "items": of}, LEAVES),
    st.builds(lambda of, most: {"items": of, "maxItems": most, "uniqueItems": True}, LEAVES, st.integers(0, 2)),
    st.just({"$ref": "#/$defs/D"}),
    st.booleans(),
)


@st.composite
def roots(draw: st.DrawFn) -> dict[str, Any]:
    root: dict[str, Any] = {
        "$defs": {"D": draw(LEAVES)},
        "properties": draw(st.dictionaries(NAMES, NESTED, max_size=3)),
    }
    root |= draw(
        st.fixed_dictionaries({}, optional={"required": st.lists(NAMES, max_size=2), "additionalProperties": NESTED})
    )
    return root


NAMES = st.sampled_from(["x", "y", "z"])
SCALARS = st.sampled_from(["a", "b", "ab", "abc", "", 0, 1, 2, 3, 4, 1.5, None])
VALUES = st.dictionaries(NAMES, SCALARS | st.lists(SCALARS, max_size=3), max_size=3)


@given(old=roots(), new=roots(), keep=st.sets(NAMES), value=VALUES)
def test_a_call_that_was_accepted_and_is_not_any_more_was_called_breaking(
    old: dict[str, Any], new: dict[str, Any], keep: set[str], value: dict[str, Any]
) -> None:
    """`additive` is a promise to clients: what they send by the old schema still passes."""
    new["properties"] |= {name: schema for name, schema in old["properties"].items() if name in keep}
    value = {name: member for name, member in value.items() if name in old["properties"]}
    if Draft202012Validator(old).is_valid(value) and not Draft202012Validator(new).is_valid(value):
        assert BREAKING in {each.severity for each in differences(old, new)}


KEYWORD_VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 1.5, 2, 3, 4, 6, "", "a", "ab", "abc", "b", [], [1], [1, 1], [1, "a", 2], {}, {"x": 1}),
]

TYPES = ["string", "integer", "number"]
KEYWORDS = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"), st.integers(0, 4)),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), st.integers(0, 3)),
    **dict.fromkeys(("minProperties", "maxProperties"), st.integers(0, 1)),
    **dict.fromkeys(("items", "additionalProperties"), st.sampled_from([True, False, {}, {"type": "string"}])),
    "multipleOf": st.integers(1, 3),
    "uniqueItems": st.booleans(),
    "pattern": st.sampled_from(["a", "^b"]),
    "const": st.sampled_from([1, "a"]),
    "enum": st.lists(st.sampled_from([1, 2, "a", None]), max_size=4),
    "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES)),
}


@given(data=st.data(), key=st.sampled_from(sorted(KEYWORDS)))
def test_what_widens_refuses_nothing_that_passed(data: st.DataObject, key: str) -> None:
    """And what narrows lets nothing pass that was refused."""
    old, new = (data.draw(st.just(ABSENT) | KEYWORDS[key], label=label) for label in ("old", "new"))
    before, after = (
        {
            json
            for json in range(len(KEYWORD_VALUES))
            if value is ABSENT or Draft202012Validator({key: value}).is_valid(KEYWORD_VALUES[json])
        }
        for value in (old, new)
    )
    match widens(key, old, new):
        case True:
            assert before <= after
        case False:
            assert after <= before


@pytest.mark.parametrize(
    ("key", "old", "new", "is_same"),
    [
        ("enum", [1, "a"], ["a", 1], True),
        ("enum", [1], [True], False),
        ("type", "string", ["string"], True),
        ("type", ["integer", "number"], ["number"], True),
        ("type", 1, 1, False),
        ("required", ["a"], ["a"], False),
        ("enum", ABSENT, ABSENT, False),
    ],
)
def test_choices_in_another_order_are_the_same(key: str, old: object, new: object, is_same: bool) -> None:
    """True and 1 are two choices; an integer is a number."""
    assert is_same_choice(key, old, new) is is_same


def test_what_is_no_array_of_strings_is_told_from_an_empty_one() -> None:
    """A malformed `required` is not taken for none."""
    assert string_set(ABSENT) == frozenset()
    assert string_set(["a", "a"]) == {"a"}
    assert string_set(["a", 1]) is None
    assert string_set("a") is None
