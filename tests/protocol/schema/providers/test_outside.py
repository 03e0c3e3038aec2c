"""The walk that finds where a schema is outside a provider's subset."""

from typing import Any

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
