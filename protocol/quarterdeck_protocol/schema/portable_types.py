"""Which keyword of JSON Schema speaks about values of which type.

A keyword that speaks about objects lets every string pass, so a schema without `type` constrains only the values of the
types that its keywords speak about.  Below `portable`, which makes typed unions of that.  Pure; no node is changed.
"""

from typing import Final

from .canonical import TYPES, JsonValue, Schema

DISJOINT_TYPES: Final = tuple(kind for kind in TYPES if kind != "integer")
"""Every JSON value has exactly one of these types; an integer is a number."""

_OBJECT: Final = frozenset({"object"})
_ARRAY: Final = frozenset({"array"})
_STRING: Final = frozenset({"string"})
_NUMBER: Final = frozenset({"number", "integer"})

SPEAKS_ABOUT: Final = {
    **dict.fromkeys(("properties", "required", "additionalProperties", "patternProperties", "propertyNames"), _OBJECT),
    **dict.fromkeys(("minProperties", "maxProperties", "dependencies", "unevaluatedProperties"), _OBJECT),
    **dict.fromkeys(("dependentRequired", "dependentSchemas"), _OBJECT),
    **dict.fromkeys(("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"), _ARRAY),
    **dict.fromkeys(("contains", "minContains", "maxContains", "unevaluatedItems"), _ARRAY),
    **dict.fromkeys(("minLength", "maxLength", "pattern"), _STRING),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _NUMBER),
    "format": _STRING | _NUMBER,
}
"""Keywords that constrain values of some types only."""

GENERIC: Final = frozenset({"enum", "const", "anyOf", "oneOf", "allOf", "not", "if", "then", "else"})
"""Keywords that constrain values of any type."""

CONSTRAINTS: Final = GENERIC | SPEAKS_ABOUT.keys() | {"type"}
"""Every keyword that can refuse a value, references aside; the rest are remarks."""

_DISTRIBUTED: Final = CONSTRAINTS - {"type", "unevaluatedProperties", "unevaluatedItems"}
"""What goes along when a node is dealt out to the branches of its union."""


def remarks(node: Schema) -> Schema:
    """What of a node refuses no value: its title and description, and keywords that nobody knows."""
    return {key: value for key, value in node.items() if key not in CONSTRAINTS}


def types_within(node: Schema, within: str | None) -> tuple[str, ...]:
    """The types to which `type`, else `const` or `enum`, confine values that are `within` one; empty for all types."""
    kinds = _declared_types(node) or tuple(dict.fromkeys(map(type_of, _listed(node))))
    if "number" in kinds:
        kinds = tuple(kind for kind in kinds if kind != "integer")
    if within is None:
        return kinds
    return tuple(kind for kind in kinds if kind == within or {kind, within} == _NUMBER) or kinds[:1] or (within,)


def alternatives(node: Schema, kinds: tuple[str, ...]) -> list[JsonValue] | None:
    """The schemas of which a value has to meet one, where several `kinds` or none are known; None where all pass."""
    if kinds:
        return [branch for kind in kinds if (branch := _narrowed(node, kind)) is not None]
    for union in ("anyOf", "oneOf"):
        if isinstance(branches := node.get(union), list):
            beside = {key: value for key, value in node.items() if key in _DISTRIBUTED - {union}}
            return [{"allOf": [branch, beside]} if beside else branch for branch in branches if branch is not False]
    mentioned = [kind for kind in DISJOINT_TYPES if any(kind in SPEAKS_ABOUT.get(key, ()) for key in node)]
    if not mentioned:
        return None
    others: list[JsonValue] = [_any_of_type(kind) for kind in DISJOINT_TYPES if kind not in mentioned]
    return [*(_narrowed(node, kind) for kind in mentioned), *others]


def _narrowed(node: Schema, kind: str) -> Schema | None:
    """Return what a node asks of values of one type; None if it lists its values and none is of that type."""
    choices = _listed(node)
    fitting = [choice for choice in choices if _is_of(choice, kind)]
    if choices and not fitting:
        return None
    asked: Schema = {"type": kind}
    asked |= {key: value for key, value in node.items() if key in GENERIC or kind in SPEAKS_ABOUT.get(key, ())}
    if kind == "null":
        asked = {key: value for key, value in asked.items() if key not in {"const", "enum"}}
    elif fitting and "const" not in asked:
        asked["enum"] = fitting
    return asked


def _any_of_type(kind: str) -> Schema:
    return {"type": kind, "items": {}} if kind == "array" else {"type": kind}


def _declared_types(node: Schema) -> tuple[str, ...]:
    declared = node.get("type")
    kinds = declared if isinstance(declared, list) else [declared]
    known = tuple(kind for kind in kinds if isinstance(kind, str) and kind in TYPES)
    return tuple(dict.fromkeys(known)) if len(known) == len(kinds) else ()


def _listed(node: Schema) -> list[JsonValue]:
    if "const" in node:
        return [node["const"]]
    choices = node.get("enum")
    return choices if isinstance(choices, list) else []


def _is_of(value: JsonValue, kind: str) -> bool:
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    actual = type_of(value)
    return actual == kind or (actual, kind) == ("integer", "number")


def type_of(value: JsonValue) -> str:
    """The one of `DISJOINT_TYPES` or `integer` that a JSON value has as it stands."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"
