"""JSON Schemas and JSON values as Hypothesis strategies, small enough to meet each other often."""

from collections.abc import Iterator
from typing import Any, Final

import hypothesis.strategies as st

from support.schemas.json_values import ATOMS, json_values

Json = Any

DRAFT_7: Final = "http://json-schema.org/draft-07/schema#"
TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")
NAMES: Final = st.sampled_from(["a", "b", "c"])
SCALARS: Final = st.sampled_from([None, True, False, 0, 1, 2, 1.0, 1.5, "", "a", "aa", "b"])
VALUES: Final = json_values(SCALARS, NAMES, 6)
JUNK: Final = json_values(
    ATOMS | st.floats(),
    st.sampled_from(["type", "properties", "items", "required", "allOf", "anyOf", "$ref", "enum"]),
)
"""Anything that a hostile server can put in the place of a schema."""

_SCALAR_KEYWORDS: Final = {
    "title": st.just("T"),
    "description": st.just("what it is"),
    "default": SCALARS,
    "enum": st.lists(VALUES, min_size=1, max_size=4),
    "const": VALUES,
    "minLength": st.integers(0, 2),
    "maxLength": st.integers(0, 2),
    "pattern": st.sampled_from(["^a", "b$"]),
    "format": st.just("date"),
    "minimum": st.integers(0, 2),
    "maximum": st.integers(0, 2),
    "exclusiveMinimum": st.integers(0, 2),
    "multipleOf": st.just(1),
    "minItems": st.integers(0, 2),
    "maxItems": st.integers(0, 2),
    "uniqueItems": st.booleans(),
    "minProperties": st.integers(0, 2),
    "maxProperties": st.integers(0, 2),
    "required": st.lists(NAMES, max_size=2, unique=True),
    "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True),
    "x-unknown": VALUES,
}
_NEW_KEYWORDS: Final = {
    "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), max_size=2),
    "minContains": st.integers(0, 2),
    "maxContains": st.integers(0, 2),
}
_HOLD_ONE: Final = ("additionalProperties", "items", "contains", "propertyNames", "not", "if", "then", "else")
_HOLD_LIST: Final = ("anyOf", "oneOf", "allOf")
_REFERENCES: Final = (
    "#/$defs/A",
    "#/$defs/B",
    "#/$defs/A/properties/a",
    "#",
    "#/nowhere",
    "#anchor",
    "https://example.com/s",
)


@st.composite
def schemas(draw: st.DrawFn, *, depth: int = 3, draft_7: bool = False, refs: bool = True) -> Json:
    if depth == 0 or draw(st.integers(0, 9)) == 0:
        return draw(st.booleans() | st.sampled_from(TYPES).map(lambda kind: {"type": kind}))
    inner = schemas(depth=depth - 1, draft_7=draft_7, refs=refs)
    keywords: dict[str, st.SearchStrategy[Json]] = {
        **_SCALAR_KEYWORDS,
        **dict.fromkeys(_HOLD_ONE, inner),
        **dict.fromkeys(_HOLD_LIST, st.lists(inner, min_size=1, max_size=3)),
        **dict.fromkeys(("properties", "patternProperties"), st.dictionaries(NAMES, inner, max_size=3)),
    }
    if refs:
        keywords["$ref"] = st.sampled_from(_REFERENCES)
    if draft_7:
        keywords["items"] = inner | st.lists(inner, max_size=3)
        keywords["additionalItems"] = inner
    else:
        keywords |= _NEW_KEYWORDS
        keywords["prefixItems"] = st.lists(inner, min_size=1, max_size=3)
        keywords["dependentSchemas"] = st.dictionaries(NAMES, inner, max_size=2)
        keywords |= dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), inner)
    often = ["type", "properties", "items", "anyOf", "allOf", *(["$ref"] * refs)]
    chosen = draw(st.lists(st.sampled_from(often) | st.sampled_from(sorted(keywords)), max_size=4, unique=True))
    return {keyword: draw(keywords[keyword]) for keyword in chosen}


@st.composite
def tools(draw: st.DrawFn) -> Json:
    """The input schema of a tool with one argument `v`, whose schema may refer to definitions."""
    draft_7 = draw(st.booleans())
    inner = schemas(draft_7=draft_7)
    tool = {"type": "object", "properties": {"v": draw(inner)}, "$defs": {"A": draw(inner), "B": draw(inner)}}
    return {"$schema": DRAFT_7, **tool} if draft_7 else tool


@st.composite
def typed_schemas(draw: st.DrawFn, *, depth: int = 3) -> Json:
    """A schema that has one type at every node that `normalize_schema` reaches, and nothing that it would damage."""
    kind = draw(st.sampled_from(TYPES if depth else ("string", "integer", "null")))
    node: Json = {"type": kind}
    aside = schemas(depth=1, refs=False)
    for keyword in draw(
        st.lists(st.sampled_from(["title", "default", "enum", "format", "minimum", "x-unknown"]), max_size=3)
    ):
        node[keyword] = draw(_SCALAR_KEYWORDS[keyword])
    for keyword in draw(st.lists(st.sampled_from(["anyOf", "oneOf"]), max_size=1)):
        node[keyword] = draw(st.lists(aside, min_size=1, max_size=2))
    if kind == "object":
        inner = typed_schemas(depth=depth - 1)
        node["required"] = draw(st.lists(NAMES | SCALARS, max_size=3))
        node |= draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "properties": st.dictionaries(NAMES, inner, max_size=3),
                    "additionalProperties": st.booleans() | inner,
                },
            )
        )
    if kind == "array":
        node |= draw(
            st.fixed_dictionaries({}, optional={"items": typed_schemas(depth=depth - 1) | st.booleans() | st.just([])})
        )
    order = draw(st.permutations(list(node)))
    return {keyword: node[keyword] for keyword in order}


def containers(value: Json) -> Iterator[Json]:
    """Every dict and list in a JSON value, outermost first, without recursion."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict | list):
            yield one
            pending.extend(one.values() if isinstance(one, dict) else one)


def are_apart(*values: Json) -> bool:
    """Whether no container is found twice, in one of the values or in two of them."""
    ids = [id(one) for value in values for one in containers(value)]
    return len(ids) == len(set(ids))
