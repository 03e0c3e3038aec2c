"""Values of the wrong kind in a schema, checked against the meta-schema of an independent library."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support.servers.real_tools import read_servers

from quarterdeck_protocol.schema.providers.outside import Provider, Rule, misshapen, outside

META: Any = Draft202012Validator(Draft202012Validator.META_SCHEMA)

KEYWORDS = (
    *(
        *("type", "enum", "required", "dependentRequired", "properties", "patternProperties", "$defs", "items"),
        *("not", "if"),
    ),
    *("additionalProperties", "propertyNames", "contains", "anyOf", "oneOf", "allOf", "prefixItems", "minLength", "if"),
    *("maxItems", "minContains", "minimum", "exclusiveMinimum", "multipleOf", "uniqueItems", "deprecated", "title"),
    *(
        *("description", "format", "$ref", "$comment", "examples", "$anchor", "$id", "default", "const"),
        "dependentSchemas",
    ),
)
VALUES = (
    *(None, True, False, 0, 1, -1, 2.0, 1.5, 0.5, "", "a", "object", "null", "#", "a#b", "1a"),
    *([], ["a"], ["a", "a"], ["string", "null"], ["string", "string"], ["text"], [1], [{}], [True, {}], [[]]),
    *({}, {"a": {}}, {"a": True}, {"a": 1}, {"a": ["b"]}, {"a": ["b", "b"]}, {"type": "string"}),
)


def test_a_value_is_of_the_wrong_kind_exactly_where_the_meta_schema_says_so() -> None:
    """Breaks: a provider refuses a schema that we called well-formed, or we blame one that it takes."""
    for keyword in KEYWORDS:
        refused = [value for value in VALUES if not META.is_valid({keyword: value})]
        assert [value for value in VALUES if [*misshapen({keyword: value})]] == refused, keyword


@given(st.dictionaries(st.sampled_from(KEYWORDS), st.sampled_from(VALUES), max_size=5))
def test_keywords_are_judged_one_by_one(node: dict[str, Any]) -> None:
    """Breaks: of several malformed keywords only the first is ever told of."""
    assert [*misshapen(node)] == [word for word, value in node.items() if [*misshapen({word: value})]]


def test_of_real_tools_those_are_well_formed_that_the_meta_schema_calls_so() -> None:
    """Breaks: users read warnings about tools that work everywhere."""
    for server in read_servers():
        schema = server.tools[0]["inputSchema"]  # the library takes long for each
        is_wrong = any(one.rule is Rule.SHAPE for one in outside(schema, Provider.ANTHROPIC))
        assert is_wrong == (not META.is_valid(schema)), server.name
