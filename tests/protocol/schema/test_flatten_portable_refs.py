"""Where references point, and what stands without them."""

from typing import Any

import pytest

from quarterdeck_protocol.schema.flatten import SchemaDocument

DOCUMENT: dict[str, Any] = {
    "$id": "https://example.com/tool",
    "properties": {"a": {"anyOf": [{"type": "null"}, False]}, "": {"title": "empty"}},
    "$defs": {"x/y": {"title": "slash"}, "m~n": {"title": "tilde"}, "p q%": {"title": "percent"}, "text": "no schema"},
}


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("#", DOCUMENT),
        ("#/properties/a/anyOf/0", {"type": "null"}),
        ("#/properties/a/anyOf/1", False),
        ("#/properties/a/anyOf/2", None),
        ("#/properties/a/anyOf/-1", None),
        ("#/properties/a/anyOf/²", None),
        ("#/properties/a/anyOf/" + "9" * 5000, None),
        ("#/properties/", {"title": "empty"}),
        ("#/$defs/x~1y", {"title": "slash"}),
        ("#/$defs/m~0n", {"title": "tilde"}),
        ("#/$defs/p%20q%25", {"title": "percent"}),
        ("#/$defs/text", None),
        ("#/$defs/text/0", None),
        ("#/$defs/missing", None),
        ("#/%ed%a0%80\ud800", None),
        ("#anchor", None),
        ("", None),
        ("https://example.com/tool#/properties/a", None),
        ("other.json", None),
    ],
)
def test_a_pointer_leads_to_its_schema_or_nowhere(reference: str, target: Any) -> None:
    """Breaks: a parameter would get the schema of another, or a hostile pointer would raise."""
    assert SchemaDocument(DOCUMENT).target(reference) == target


def test_a_document_that_embeds_another_resolves_nothing() -> None:
    """Breaks: a pointer that is meant for the inner document would be read in the outer one."""
    inner = {"$id": "https://example.com/inner", "$ref": "#/$defs/a"}
    assert SchemaDocument({"$defs": {"a": {"type": "null"}, "b": inner}}).target("#/$defs/a") is None


@pytest.mark.parametrize(
    ("schema", "is_alone"),
    [
        ({"type": "string", "enum": [1, [2]]}, True),
        ({"anyOf": [{"items": {"type": "null"}}]}, True),
        ({"properties": {"$ref": {"type": "string"}}}, True),
        ({"anyOf": [{"not": {"$ref": "#"}}]}, False),
        ({"$dynamicRef": "#a"}, False),
        ({"anyOf": [{"items": []}]}, False),
        ({"minimum": 0, "exclusiveMinimum": True}, False),
    ],
)
def test_a_part_stands_alone_unless_it_refers_or_is_of_an_older_draft(schema: Any, is_alone: bool) -> None:
    """Breaks: a published schema would hold a reference to what was left behind."""
    document = SchemaDocument({"part": schema})
    assert document.stands_alone(schema) is is_alone
    assert not document.stands_alone([schema])


def test_size_counts_every_value() -> None:
    """Breaks: the bound on what one server may make us write would not hold."""
    part = {"a": [1, 2, {"b": None}], "c": {}}
    document = SchemaDocument(part)
    assert document.size(part) == 7
    assert document.size([part, 1]) == 9
    assert document.size("x") == 1


@pytest.mark.parametrize(
    ("dialect", "rules"),
    [
        ("http://json-schema.org/draft-07/schema#", True),
        ("http://json-schema.org/draft-04/schema", True),
        ("https://json-schema.org/draft/2019-09/schema", False),
        ("https://json-schema.org/draft/2020-12/schema", False),
        (None, False),
        (7, False),
    ],
)
def test_the_dialect_says_whether_a_reference_rules(dialect: Any, rules: bool) -> None:
    """Breaks: keywords beside a `$ref` would be enforced that the server ignores."""
    assert SchemaDocument({"$schema": dialect}).lets_references_rule is rules
