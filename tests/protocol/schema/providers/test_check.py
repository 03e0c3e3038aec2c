"""The walk that finds where a schema is outside a provider's subset: it ends, and it points at the right place."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.schemas.json_schemas import JUNK
from support.schemas.providers import check
from support.schemas.providers.check import MAX_DEPTH, MAX_FOUND, Provider, Rule, outside


@given(JUNK, st.sampled_from(Provider))
def test_whatever_a_server_sends_is_judged(schema: Any, provider: Provider) -> None:
    """Breaks: one server's junk ends the command that lists everybody's tools."""
    before = repr(schema)
    for found in outside(schema, provider):
        assert found.sentence.endswith(".")
        assert found.pointer == "" or found.pointer.startswith("/")
    assert repr(schema) == before


@pytest.mark.parametrize("provider", Provider)
def test_nesting_without_end_is_looked_at_as_far_as_we_say(provider: Provider) -> None:
    """Breaks: a schema nested deeper than Python's stack crashes us."""
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {}}}
    node = schema["properties"]["a"]
    for _ in range(10_000):
        node["type"], node["items"] = "array", {}
        node = node["items"]
    last = outside(schema, provider)[-1]
    assert last.rule is Rule.LIMIT
    assert last.pointer.count("/") >= MAX_DEPTH


def test_a_schema_wider_than_we_look_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks: "nothing found" is said of a schema that was not looked through."""
    monkeypatch.setattr(check, "MAX_SCHEMAS", 50)
    schema = {"type": "object", "properties": {f"p{n}": {} for n in range(55)}}
    assert [found.rule for found in outside(schema, Provider.ANTHROPIC)] == [Rule.LIMIT]


def test_findings_are_bounded_in_number_and_size() -> None:
    """Breaks: a server's schema of one megabyte makes us print a gigabyte."""
    schema = {"type": "object", "properties": {f"{'long' * 1000}{n}": {"x" * 10_000: 1} for n in range(MAX_FOUND * 2)}}
    found = outside(schema, Provider.GEMINI)
    assert len(found) == MAX_FOUND
    assert max(len(one.pointer) + len(one.sentence) for one in found) < 1000


def test_a_pointer_leads_to_the_place_and_names_in_it_are_escaped() -> None:
    """Breaks: the user is sent to another parameter than the one to change."""
    schema = {"type": "object", "properties": {"a/b~c": {"anyOf": [{"type": "string"}, {"type": "array"}]}}}
    (found,) = (one for one in outside(schema, Provider.OPENAI) if one.rule is Rule.ITEMS)
    assert found.pointer == "/properties/a~1b~0c/anyOf/1"


def test_a_servers_own_words_reach_a_terminal_escaped() -> None:
    """Breaks: a tool's schema moves the cursor of the user who checks it."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "\x1b[2J": 1, "format": "\u202e"}}}
    assert all(one.sentence.isprintable() and "\u202e" not in one.sentence for one in outside(schema, Provider.GEMINI))


def test_what_stands_beneath_a_refused_word_is_not_told_of_as_well() -> None:
    """Breaks: one word that a provider does not know is reported a hundred times."""
    schema = {"type": "object", "properties": {"a": {"type": "object", "patternProperties": {"x": {"const": {}}}}}}
    assert [one.pointer for one in outside(schema, Provider.GEMINI_JSON)] == ["/properties/a/patternProperties"]


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
