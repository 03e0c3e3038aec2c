"""What each provider takes: a schema for every rule, and real tools before and after `portable_schema`."""

from collections import Counter
from typing import Any, Final

import pytest
from support.schemas.providers.report import Verdict, broken, verdicts
from support.servers.real_tools import read_servers

from quarterdeck_protocol.schema.providers.outside import Provider, Rule, outside

OPEN: Final = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
STRICT: Final = {**OPEN, "additionalProperties": False}
FINE: Final = {provider: OPEN if provider is Provider.GEMINI else STRICT for provider in Provider}
"""A schema that each provider documents as an example of its own."""

OPENAI, OPENAI_STRICT, GEMINI, GEMINI_JSON, ANTHROPIC, ANTHROPIC_STRICT = Provider
STRICT_MODES: Final = (OPENAI_STRICT, ANTHROPIC_STRICT)
EVERY: Final = tuple(Provider)


def beside_strictness(schema: dict[str, Any], provider: Provider) -> set[Rule]:
    return {one.rule for one in {*outside(schema, provider)} - {*outside(STRICT, provider)}}


def holding(schema: Any, **words: Any) -> dict[str, Any]:
    return {**STRICT, "properties": {"a": schema}, **words}


def typed(kind: Any, **words: Any) -> dict[str, Any]:
    return holding({"type": kind, **words})


def named(name: str) -> dict[str, Any]:
    return {**STRICT, "properties": {name: {"type": "string"}}, "required": [name]}


CASES: Final = {
    "no type at the root": ({"properties": {}}, Rule.ROOT_TYPE, EVERY),
    "another type at the root": ({"type": "string"}, Rule.ROOT_TYPE, EVERY),
    "a union at the root": (
        {**STRICT, "anyOf": [{"type": "object"}]},
        Rule.ROOT_WORD,
        (*STRICT_MODES, OPENAI, ANTHROPIC),
    ),
    "a negation at the root": ({**STRICT, "not": {"type": "object"}}, Rule.ROOT_WORD, (OPENAI,)),
    "no properties at the root": (
        {"type": "object", "additionalProperties": False},
        Rule.ROOT_PROPERTIES,
        (OPENAI, OPENAI_STRICT),
    ),
    "a list for items": (typed("array", items=[{"type": "string"}]), Rule.SHAPE, EVERY),
    "an exclusive bound of draft 4": (typed("number", exclusiveMinimum=True), Rule.SHAPE, EVERY),
    "oneOf": (holding({"oneOf": [{"type": "string"}]}), Rule.KEYWORD, (*STRICT_MODES, GEMINI)),
    "allOf": (typed("string", allOf=[{"type": "string"}]), Rule.KEYWORD, (OPENAI_STRICT, GEMINI, GEMINI_JSON)),
    "const": (typed("string", const="x"), Rule.KEYWORD, (GEMINI, GEMINI_JSON)),
    "a default": (typed("string", default="x"), Rule.KEYWORD, (OPENAI_STRICT, GEMINI_JSON)),
    "a bound on a number": (typed("number", minimum=1), Rule.KEYWORD, (ANTHROPIC_STRICT,)),
    "an open bound on a number": (
        typed("number", exclusiveMinimum=1),
        Rule.KEYWORD,
        (ANTHROPIC_STRICT, GEMINI, GEMINI_JSON),
    ),
    "a bound on a string": (typed("string", maxLength=9), Rule.KEYWORD, (ANTHROPIC_STRICT, GEMINI_JSON)),
    "a draft's name": ({**STRICT, "$schema": "s"}, Rule.KEYWORD, (GEMINI, GEMINI_JSON)),
    "a closed object": (holding(STRICT), Rule.KEYWORD, (GEMINI,)),
    "no type": (holding({}), Rule.UNTYPED, (*STRICT_MODES, GEMINI)),
    "an enum without type": (holding({"enum": ["x"]}), Rule.UNTYPED, (GEMINI,)),
    "true for a schema": (holding(schema=True), Rule.BOOLEAN, (*STRICT_MODES, GEMINI)),
    "a list of types": (typed(["string", "null"]), Rule.TYPE_LIST, (GEMINI,)),
    "an array without items": (typed("array"), Rule.ITEMS, (OPENAI, OPENAI_STRICT, GEMINI)),
    "an object without properties": (
        typed("object", properties={}, additionalProperties=False),
        Rule.EMPTY_OBJECT,
        (GEMINI,),
    ),
    "an open object": (typed("object", properties={}), Rule.OPEN_OBJECT, STRICT_MODES),
    "an optional parameter": ({**STRICT, "required": []}, Rule.OPTIONAL, (OPENAI_STRICT,)),
    "a required parameter that is not declared": ({**STRICT, "required": ["a", "b"]}, Rule.UNDECLARED, (GEMINI,)),
    "a description beside a union": (
        holding({"anyOf": [{"type": "string"}, {"type": "null"}], "description": "d"}),
        Rule.UNION,
        (GEMINI,),
    ),
    "a description beside a reference": (
        holding({"$ref": "#/$defs/d", "description": "d"}, **{"$defs": {"d": {"type": "string"}}}),
        Rule.REFERENCE,
        (GEMINI_JSON,),
    ),
    "a reference that leads away": (
        holding({"$ref": "https://example.com/a"}),
        Rule.REFERENCE,
        (*STRICT_MODES, GEMINI_JSON),
    ),
    "a schema that holds itself": (
        holding({"$ref": "#/$defs/d"}, **{"$defs": {"d": {"type": "array", "items": {"$ref": "#/$defs/d"}}}}),
        Rule.RECURSION,
        (ANTHROPIC_STRICT,),
    ),
    "a URI": (typed("string", format="uri"), Rule.FORMAT, (OPENAI_STRICT, GEMINI)),
    "a day": (typed("string", format="date"), Rule.FORMAT, (GEMINI,)),
    "a format of one of two types": (typed(["string", "null"], format="ipv4"), Rule.FORMAT, (GEMINI,)),
    "a number's format": (typed("integer", format="int64"), Rule.FORMAT, STRICT_MODES),
    "a listed number": (typed("integer", enum=[1]), Rule.CHOICE, (GEMINI,)),
    "a listed truth": (typed("boolean", enum=[True]), Rule.CHOICE, (GEMINI, GEMINI_JSON)),
    "a listed object": (typed("object", enum=[{}]), Rule.CHOICE, (GEMINI, GEMINI_JSON, ANTHROPIC_STRICT)),
    "a listed empty string": (typed("string", enum=["", "a"]), Rule.CHOICE, (GEMINI,)),
    "a parameter with a bracket": (named("a[b]"), Rule.NAME, (ANTHROPIC, ANTHROPIC_STRICT, GEMINI)),
    "a parameter with a dash": (named("a-b"), Rule.NAME, (GEMINI,)),
    "a parameter with a long name": (named("a" * 65), Rule.NAME, (ANTHROPIC, ANTHROPIC_STRICT, GEMINI)),
    "at least two items": (typed("array", items={"type": "string"}, minItems=2), Rule.BOUND, (ANTHROPIC_STRICT,)),
    "a pattern that looks ahead": (typed("string", pattern="^(?=a)"), Rule.PATTERN, (ANTHROPIC_STRICT,)),
    "a pattern with a word's end": (typed("string", pattern=r"a\b"), Rule.PATTERN, (ANTHROPIC_STRICT,)),
}
"""A schema for every rule, and who has it."""

CEASES: Final = {
    Rule.ROOT_TYPE: {Rule.OPEN_OBJECT, Rule.EMPTY_OBJECT},
    Rule.UNTYPED: {Rule.OPEN_OBJECT, Rule.EMPTY_OBJECT, Rule.UNION, Rule.FORMAT},
    Rule.TYPE_LIST: {Rule.UNION},
    Rule.KEYWORD: {Rule.CHOICE},
}
"""What may be wrong with a node that was refused before: once it has the type that it lacked, or once it stands in an
`anyOf` in place of a word beneath which nothing was looked at."""


@pytest.fixture(scope="module")
def found() -> list[Verdict]:
    return list(verdicts(read_servers()))


@pytest.mark.parametrize("provider", Provider)
def test_a_provider_takes_what_it_shows_as_an_example(provider: Provider) -> None:
    """Breaks: users are warned about every tool there is, and read no warning again."""
    assert broken(FINE[provider], provider) == set()


@pytest.mark.parametrize(("schema", "rule", "providers"), CASES.values(), ids=CASES.keys())
def test_a_rule_is_told_of_for_the_providers_that_have_it_only(
    schema: dict[str, Any], rule: Rule, providers: tuple[Provider, ...]
) -> None:
    """Breaks: a tool that a provider refuses is called fine, or one that it takes is called broken."""
    assert {provider for provider in Provider if rule in beside_strictness(schema, provider)} == {*providers}


def test_there_is_a_case_for_every_rule() -> None:
    """Breaks: a rule that never fires, or always, goes unnoticed."""
    assert {rule for _, rule, _ in CASES.values()} == {*Rule} - {Rule.LIMIT}  # test_outside has the limits


@pytest.mark.nightly
def test_the_portable_form_takes_no_real_tool_away_from_a_provider(found: list[Verdict]) -> None:
    """Breaks: a tool that worked with a provider stops working behind us."""
    assert [one for one in found if one.after and not one.before] == []


@pytest.mark.nightly
def test_the_portable_form_breaks_a_new_rule_only_where_it_mended_another(found: list[Verdict]) -> None:
    """Breaks: our own rewriting gives providers reasons of its own to refuse a tool."""
    for one in found:
        explained = set().union(*(CEASES.get(rule, set()) for rule in one.before))
        assert one.after - one.before <= explained, one


LEFT: Final = {
    OPENAI: {Rule.ITEMS: 1},
    OPENAI_STRICT: {
        Rule.KEYWORD: 35,
        Rule.UNTYPED: 46,
        Rule.ITEMS: 1,
        Rule.OPEN_OBJECT: 578,
        Rule.OPTIONAL: 629,
        Rule.FORMAT: 25,
    },
    GEMINI: {
        Rule.KEYWORD: 501,
        Rule.UNTYPED: 8,
        Rule.TYPE_LIST: 1,
        Rule.ITEMS: 1,
        Rule.EMPTY_OBJECT: 174,
        Rule.UNDECLARED: 1,
        Rule.UNION: 57,
        Rule.FORMAT: 29,
        Rule.CHOICE: 1,
        Rule.NAME: 5,
    },
    GEMINI_JSON: {Rule.KEYWORD: 177},
    ANTHROPIC: {Rule.NAME: 3},
    ANTHROPIC_STRICT: {
        Rule.KEYWORD: 200,
        Rule.UNTYPED: 46,
        Rule.OPEN_OBJECT: 578,
        Rule.FORMAT: 5,
        Rule.NAME: 3,
        Rule.BOUND: 2,
        Rule.LIMIT: 18,
    },
}
"""How many of the real tools still break which rule in their portable form.  For tools that are collected anew, the
numbers are those that `python tests/collect_tools.py --report` ends with."""


@pytest.mark.nightly
def test_real_tools_break_no_more_rules_in_their_portable_form_than_is_known(found: list[Verdict]) -> None:
    """Breaks: a change of the portable form loses tools with a provider, and nobody notices."""
    left = Counter((one.provider, rule) for one in found for rule in one.after)
    assert {key: count for key, count in left.items() if count > LEFT[key[0]].get(key[1], 0)} == {}


@pytest.mark.nightly
@pytest.mark.parametrize("provider", Provider)
def test_more_real_tools_are_inside_in_their_portable_form_than_as_written(
    found: list[Verdict], provider: Provider
) -> None:
    """Breaks: the portable form is of no use to anybody."""
    asked = [one for one in found if one.provider is provider]
    inside, before = sum(not one.after for one in asked), sum(not one.before for one in asked)
    assert inside >= before if provider in STRICT_MODES else inside > before
