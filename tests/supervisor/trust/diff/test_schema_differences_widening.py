"""Whether a keyword lets more pass than before: judged by values, not by its looks."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from quarterdeck.trust.diff.differences import ABSENT
from quarterdeck.trust.diff.schema_differences import is_same_choice, opens, string_set, widens

VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    1.5,
    2,
    3,
    4,
    6,
    "",
    "a",
    "ab",
    "abc",
    "b",
    [],
    [1],
    [1, 1],
    [1, "a", 2],
    {},
    {"x": 1},
]

KEYWORDS = {
    "minimum": st.integers(0, 4),
    "exclusiveMinimum": st.integers(0, 4),
    "maximum": st.integers(0, 4),
    "exclusiveMaximum": st.integers(0, 4),
    "minLength": st.integers(0, 3),
    "maxLength": st.integers(0, 3),
    "minItems": st.integers(0, 3),
    "maxItems": st.integers(0, 3),
    "minProperties": st.integers(0, 1),
    "maxProperties": st.integers(0, 1),
    "multipleOf": st.integers(1, 3),
    "uniqueItems": st.booleans(),
    "pattern": st.sampled_from(["a", "^b"]),
    "const": st.sampled_from([1, "a"]),
    "enum": st.lists(st.sampled_from([1, 2, "a", None]), max_size=4),
    "type": st.sampled_from(["string", "integer", "number"])
    | st.lists(st.sampled_from(["string", "integer", "number"])),
    "items": st.sampled_from([True, False, {}, {"type": "string"}]),
    "additionalProperties": st.sampled_from([True, False, {}, {"type": "string"}]),
}


@given(data=st.data(), key=st.sampled_from(sorted(KEYWORDS)))
def test_what_widens_refuses_nothing_that_passed(data: st.DataObject, key: str) -> None:
    """And what narrows lets nothing pass that was refused."""
    old, new = (data.draw(st.just(ABSENT) | KEYWORDS[key], label=label) for label in ("old", "new"))
    before, after = (
        {
            json
            for json in range(len(VALUES))
            if value is ABSENT or Draft202012Validator({key: value}).is_valid(VALUES[json])
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


def test_of_two_schemas_that_are_objects_nobody_can_tell() -> None:
    """They are compared keyword by keyword instead."""
    anything: object = True
    nothing: object = False
    assert opens({"type": "string"}, {"type": "number"}) is None
    assert opens({"type": "string"}, anything) is True
    assert opens(ABSENT, nothing) is False


def test_what_is_no_array_of_strings_is_told_from_an_empty_one() -> None:
    """A malformed `required` is not taken for none."""
    assert string_set(ABSENT) == frozenset()
    assert string_set(["a", "a"]) == {"a"}
    assert string_set(["a", 1]) is None
    assert string_set("a") is None
