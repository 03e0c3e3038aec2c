"""Where a schema is outside a provider's subset, and what is too much as a whole: one within each limit, one beyond."""

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.schemas.json_schemas import JUNK

from quarterdeck_protocol.schema.providers.outside import Provider, Rule, outside


@given(JUNK, st.sampled_from(Provider))
def test_whatever_a_server_sends_is_judged(schema: Any, provider: Provider) -> None:
    """Breaks: a portable form of junk is never looked at."""
    before = repr(schema)
    outside(schema, provider)
    assert repr(schema) == before


def test_what_clients_leave_out_is_told_from_what_they_send() -> None:
    """Nearly every server would be called not portable, for `$schema`."""
    schema = {"type": "object", "$schema": "x", "properties": {"a": {"type": "string", "not": {}}}}
    found = outside(schema, Provider.GEMINI)
    assert {each.steps[-1] for each in found if each.is_mended_by_clients} == {"$schema"}
    assert [each.steps for each in found if not each.is_mended_by_clients] == [("properties", "a", "not")]
    (empty,) = outside({"type": "object"}, Provider.GEMINI)
    assert empty.is_mended_by_clients


def test_what_stands_beneath_a_refused_word_is_not_told_of_as_well() -> None:
    """Breaks: one word that a provider does not know is reported a hundred times."""
    schema = {"type": "object", "properties": {"a": {"type": "object", "patternProperties": {"x": {"const": {}}}}}}
    assert [one.steps for one in outside(schema, Provider.GEMINI_JSON)] == [("properties", "a", "patternProperties")]


@pytest.mark.parametrize("provider", Provider)
def test_data_that_looks_like_a_schema_is_not_taken_for_one(provider: Provider) -> None:
    """Breaks: a default value that holds a word such as `type` is reported as a schema's fault."""
    plain = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    data = {**plain, "default": {"type": "array", "$ref": "#", "anyOf": []}}
    new = {one.rule for one in outside(data, provider)} - {one.rule for one in outside(plain, provider)}
    assert new <= {Rule.KEYWORD}


def strict(properties: dict[str, Any], **words: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
        **words,
    }


def nested(levels: int) -> dict[str, Any]:
    schema = strict({"a": {"type": "string"}})
    for _ in range(levels - 1):
        schema = strict({"a": schema})
    return schema


def listed(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth - 2):
        schema = {"type": "array", "items": schema}
    return {"type": "object", "properties": {"a": schema}}


def optional(count: int) -> dict[str, Any]:
    return strict({f"p{n}": {"type": "string"} for n in range(count)}, required=[])


def unions(count: int) -> dict[str, Any]:
    return strict({f"p{n}": {"type": ["string", "null"]} for n in range(count)})


def choices(count: int, chars: int = 1) -> dict[str, Any]:
    return strict({"a": {"type": "string", "enum": ["x" * chars] * count}})


def flat(count: int, name_chars: int = 5) -> dict[str, Any]:
    return strict({f"{n:0{name_chars}}": {"type": "string"} for n in range(count)})


@pytest.mark.parametrize(
    ("within", "beyond", "provider"),
    [
        pytest.param(nested(10), nested(11), Provider.OPENAI_STRICT, id="levels"),
        pytest.param(flat(5000), flat(5001), Provider.OPENAI_STRICT, id="properties"),
        pytest.param(choices(1000), choices(1001), Provider.OPENAI_STRICT, id="choices"),
        pytest.param(choices(251, 59), choices(251, 60), Provider.OPENAI_STRICT, id="text of a long list"),
        pytest.param(flat(100, 1200), flat(100, 1201), Provider.OPENAI_STRICT, id="text"),
        pytest.param(listed(32), listed(33), Provider.GEMINI, id="depth"),
        pytest.param(listed(32), listed(33), Provider.GEMINI_JSON, id="depth of JSON Schema"),
        pytest.param(optional(24), optional(25), Provider.ANTHROPIC_STRICT, id="optional"),
        pytest.param(unions(16), unions(17), Provider.ANTHROPIC_STRICT, id="unions"),
    ],
)
def test_a_limit_is_told_of_from_the_first_that_is_too_many(
    within: dict[str, Any], beyond: dict[str, Any], provider: Provider
) -> None:
    """Breaks: a provider refuses a tool that we called small enough, or we warn of one that it takes."""
    assert [one for one in outside(within, provider) if one.rule is Rule.LIMIT] == []
    assert [one.rule for one in outside(beyond, provider) if one.rule is Rule.LIMIT] == [Rule.LIMIT]


PAIR: Final = {"x": {"anyOf": [{"$ref": "#/$defs/y"}]}, "y": {"$ref": "#/$defs/x"}}
TWICE: Final = {"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/$defs/x"}}


@pytest.mark.parametrize(
    ("schema", "recurses"),
    [
        pytest.param({"properties": {"a": {"$ref": "#"}}}, True, id="the root"),
        pytest.param({"properties": TWICE, "$defs": PAIR}, True, id="two by way of each other"),
        pytest.param({"properties": TWICE, "$defs": {"x": {"type": "string"}}}, False, id="one target of two"),
        pytest.param({"properties": TWICE}, False, id="nowhere"),
    ],
)
def test_a_schema_recurses_where_a_reference_leads_back(schema: dict[str, Any], recurses: bool) -> None:
    """Breaks: strict mode refuses a tool for recursion that we did not see."""
    rules = {one.rule for one in outside({"type": "object", **schema}, Provider.ANTHROPIC_STRICT)}
    assert (Rule.RECURSION in rules) is recurses
