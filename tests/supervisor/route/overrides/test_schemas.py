"""Input schemas without arguments that the user gives: the same to everything else, or not edited at all."""

import json
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from quarterdeck.config.overrides import GivenArgument
from quarterdeck.route.overrides.schemas import ArgumentError, with_arguments, without_arguments

FIXED: Final = GivenArgument(fixed="me")
DEFAULT: Final = GivenArgument(default="me")
OWNER: Final = {"owner": {"type": "string"}}


def edited(schema: object, **arguments: GivenArgument) -> Any:
    return json.loads(without_arguments(json.dumps(schema).encode(), arguments))


def test_a_fixed_argument_is_neither_seen_nor_required() -> None:
    """The model would be told to send what it may not."""
    schema = {"type": "object", "properties": {**OWNER, "title": {"$ref": "#/$defs/t"}}, "required": ["owner", "title"]}
    schema |= {"additionalProperties": False, "$defs": {"t": {"type": "string"}}, "x-own": 1.50}
    wanted = {**schema, "properties": {"title": {"$ref": "#/$defs/t"}}, "required": ["title"]}
    assert edited(schema, owner=FIXED) == wanted


def test_an_argument_with_a_default_is_seen_and_not_required() -> None:
    """The model could not choose another value; or a client would refuse to leave it out."""
    schema = {"type": "object", "properties": OWNER, "required": ["owner"]}
    assert edited(schema, owner=DEFAULT) == {"type": "object", "properties": OWNER}


def test_what_is_not_edited_stays_byte_for_byte() -> None:
    """Numbers and members that we do not know would come out as something else."""
    schema = b'{"properties":{"n":{"const":1e2,"x":[1.0, 2]},"owner":{}},"type":"object"}'
    left = b'{"properties":{"n":{"const":1e2,"x":[1.0, 2]}},"type":"object"}'
    assert without_arguments(schema, {"owner": FIXED}) == left


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ({"properties": {}}, "no plain property"),
        ({"properties": {}, "additionalProperties": True}, "no plain property"),
        ({"oneOf": [{"required": ["owner"]}, {"required": ["org"]}]}, "may depend on it"),
        ({"if": {"properties": {"owner": {"const": "x"}}}, "then": {"required": ["org"]}}, "may depend on it"),
        ({"allOf": [{"additionalProperties": False}]}, "may depend on it"),
        ({"anyOf": [{"not": {"required": ["owner"]}}]}, "may depend on it"),
        ({"dependentRequired": {"org": ["owner"]}}, "may depend on it"),
        ({"dependentSchemas": {"owner": {}}}, "may depend on it"),
        ({"$ref": "#/$defs/x"}, r"described by '\$ref'"),
        ({"enum": [{"owner": "me"}]}, "described by 'enum'"),
        ({"properties": {**OWNER, "org": {"$ref": "#/properties/owner"}}}, "refers to it"),
        ({"properties": {**OWNER, "org": {"items": {"$ref": "#"}}}}, "refers to it"),
        ({"properties": {**OWNER, "org": {"$ref": "#/properties"}}}, "refers to it"),
        ({"properties": {**OWNER, "org": {"$ref": "#/%70roperties/owner/items"}}}, "refers to it"),
        ({"properties": {**OWNER, "org": {"$dynamicRef": "#owner"}}}, "refers to it"),
        ({"maxProperties": 0}, "fewer than 1"),
    ],
)
def test_where_more_depends_on_an_argument_the_schema_is_not_edited(extra: dict[str, object], why: str) -> None:
    """A model would be shown a tool that takes other calls than it says, or none."""
    with pytest.raises(ArgumentError, match=why):
        edited({"type": "object", "properties": OWNER, **extra}, owner=FIXED)


@pytest.mark.parametrize(
    "extra",
    [
        {"oneOf": [{"required": ["a"]}, {"required": ["b"], "properties": {"b": {"$ref": "#/$defs/t"}}}]},
        {"dependentRequired": {"a": ["b"]}},
        {"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}, "else": True},
        {"patternProperties": {"^x-": {"type": "string"}}, "unevaluatedProperties": False},
        {"properties": {**OWNER, "a": {"$ref": "#/properties/b"}, "b": {"type": "object", "properties": OWNER}}},
    ],
)
def test_what_does_not_speak_of_an_argument_stays(extra: dict[str, object]) -> None:
    """No tool with alternatives could have an argument fixed."""
    schema = {"type": "object", "properties": OWNER, **extra}
    left = edited(schema, owner=FIXED)
    assert "owner" not in left["properties"]
    assert {key: value for key, value in left.items() if key != "properties"} == {
        key: value for key, value in schema.items() if key != "properties"
    }


def test_a_schema_that_cannot_be_read_is_not_edited() -> None:
    """A hostile server's list would take the others down, or the bound be dropped."""
    for hostile in (b"[]", b'"x"', b'{"properties":[]}', b'{"a":' * 5000 + b"1" + b"}" * 5000):
        with pytest.raises(ArgumentError):
            without_arguments(hostile, {"owner": FIXED})


PLAIN = st.sampled_from([{}, {"type": "string"}, {"type": "integer"}, {"enum": ["me", 1]}, {"$ref": "#/$defs/t"}, True])
NAMES = st.sampled_from(["owner", "a", "b", "c"])
BRANCH = st.fixed_dictionaries(
    {},
    optional={
        "required": st.lists(NAMES, max_size=2, unique=True),
        "properties": st.dictionaries(NAMES, PLAIN, max_size=2),
        "type": st.just("object"),
    },
)
SCHEMAS = st.fixed_dictionaries(
    {
        "properties": st.dictionaries(NAMES, PLAIN, max_size=3).map(lambda found: {**found, **OWNER}),
        "$defs": st.just({"t": {"type": ["string", "null"]}}),
    },
    optional={
        "type": st.just("object"),
        "required": st.lists(NAMES, unique=True),
        "additionalProperties": st.sampled_from([True, False, {"type": "integer"}]),
        "minProperties": st.integers(0, 4),
        "maxProperties": st.integers(0, 4),
        "oneOf": st.lists(BRANCH, min_size=1, max_size=2),
        "anyOf": st.lists(BRANCH, min_size=1, max_size=2),
        "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), max_size=2),
        "if": BRANCH,
        "then": BRANCH,
        "patternProperties": st.just({"^c": {"type": ["integer", "string"]}}),
        "unevaluatedProperties": st.booleans(),
    },
)
SENT = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.sampled_from(["me", 1, None]), max_size=4)


@given(schema=SCHEMAS, sent=SENT, is_fixed=st.booleans(), own=st.sampled_from([None, "mine", 1]))
def test_an_edited_schema_accepts_exactly_what_the_servers_own_does_with_the_value_in_it(
    schema: dict[str, object], sent: dict[str, object], is_fixed: bool, own: object
) -> None:
    """A client would hold back a right call, or let a wrong one pass."""
    argument = FIXED if is_fixed else DEFAULT
    try:
        shown = edited(schema, owner=argument)
    except ArgumentError as error:
        note(str(error))
        return
    before, after = Draft202012Validator(schema), Draft202012Validator(shown)
    merged = json.loads(with_arguments(msgspec.json.encode(sent), {"owner": argument}))
    assert after.is_valid(sent) == before.is_valid(merged)
    if not is_fixed:
        assert after.is_valid({**sent, "owner": own}) == before.is_valid({**sent, "owner": own})


def test_what_the_user_gives_is_added_to_what_is_sent() -> None:
    """The server would be called without it, or with another's."""
    given_arguments = {"owner": FIXED, "labels": GivenArgument(default=["x"])}
    assert json.loads(with_arguments(b'{"n":1}', given_arguments)) == {"n": 1, "owner": "me", "labels": ["x"]}
    assert json.loads(with_arguments(b"", given_arguments)) == {"owner": "me", "labels": ["x"]}
    assert with_arguments(b'{"labels":1e2,"z":[1.0]}', given_arguments) == b'{"labels":1e2,"z":[1.0],"owner":"me"}'


@pytest.mark.parametrize("sent", [b'{"owner":"you"}', b'{"owner":"me"}', b'{"\\u006fwner":1}', b"[]", b"{"])
def test_a_fixed_argument_that_is_sent_all_the_same_is_refused(sent: bytes) -> None:
    """A model could choose what the user fixed."""
    with pytest.raises(ArgumentError):
        with_arguments(sent, {"owner": FIXED})
