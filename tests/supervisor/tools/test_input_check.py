"""Judging a tool's input, in words that a model can act on."""

import json
import math

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.input_check import MAX_PROBLEMS, MAX_SHOWN_CHARS, InputCheck

SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1},
        "offset": {"type": "integer", "minimum": 1, "maximum": 9},
        "timeout": {"type": "number", "exclusiveMinimum": 0},
        "action": {"enum": ["read", "set"]},
        "items": {"type": "array", "items": {"type": "object", "required": ["task"]}},
        "either": {"type": ["string", "null"]},
        "word": {"type": "string", "pattern": "^[a-z]+$"},
    },
    "required": ["path"],
    "additionalProperties": False,
}

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from([*SCHEMA["properties"]]), inner),  # type: ignore[misc]
    max_leaves=20,
)


def problem(**given: object) -> str:
    found = InputCheck("probe", SCHEMA).problem({"path": "x", **given})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"path": 5}, "path: expected a string, got 5"),
        ({"path": ""}, "path: it must not be empty"),
        ({"offset": "2"}, 'offset: expected a whole number, got "2"'),
        ({"offset": 0}, "offset: expected 1 or more, got 0"),
        ({"offset": 10}, "offset: expected 9 or less, got 10"),
        ({"timeout": 0}, "timeout: expected more than 0, got 0"),
        ({"action": "reed"}, 'action: expected one of "read", "set", got "reed"'),
        ({"items": [{}, {"task": 1}]}, "items[0].task is missing"),
        ({"either": 1}, "either: expected a string or null, got 1"),
        ({"word": "A"}, "word: 'A' does not match '^[a-z]+$'"),
        ({"ofset": 1}, "there is no parameter \"ofset\": did you mean 'offset'?"),
        ({"timeout": math.inf}, "numbers must be finite"),
        ({"offset": 10**400}, "smaller than 2**63"),
    ],
)
def test_a_problem_says_where_what_was_expected_and_what_came(given: dict[str, object], line: str) -> None:
    """A model could only guess again."""
    assert line in problem(**given)


def test_what_is_missing_is_named_with_all_that_the_tool_takes() -> None:
    """A model would have to look the tool up again."""
    found = InputCheck("probe", SCHEMA).problem({})
    assert found is not None
    assert found.startswith("probe was not run because its input is wrong:\n- path is missing\n")
    assert "It takes: path (string, required), offset (integer), timeout (number), action (read | set)," in found


def test_a_tool_without_parameters_says_so() -> None:
    """An empty list of parameters reads like a mistake of ours."""
    check = InputCheck("probe", {"type": "object", "properties": {}, "additionalProperties": False})
    assert (check.problem({"a": 1}) or "").endswith("It takes no parameters: {}.")


def test_many_problems_are_told_in_part() -> None:
    """One call of nonsense would fill a model's context."""
    found = problem(**{f"unknown{index}": index for index in range(20)})
    assert found.count("there is no parameter") == MAX_PROBLEMS
    assert "and 15 more" in found


def test_a_long_value_is_shown_in_part() -> None:
    """A wrong call would echo a whole file."""
    assert len(problem(offset="x" * 100_000)) < MAX_SHOWN_CHARS + 500


@pytest.mark.parametrize("depth", [100, 100_000])
def test_deep_nesting_is_refused_before_a_validator_follows_it(depth: int) -> None:
    """A client could end the session by nesting."""
    value: object = 1
    for _ in range(depth):
        value = [value]
    assert "nested deeper" in problem(items=value)


@given(VALUES)
def test_what_the_schema_accepts_passes_and_nothing_else(value: object) -> None:
    """A tool would refuse good input, or run on bad."""
    accepts = jsonschema.Draft202012Validator(SCHEMA).is_valid(value) and _is_json(value)  # type: ignore[arg-type]
    assert (InputCheck("probe", SCHEMA).problem(value) is None) == accepts


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True
