"""Two schemas that hold at once, as one flat node.

Below `portable`, for `allOf` and for keywords beside a `$ref`.  Pure; an answer shares parts with what it was made of.
"""

from typing import Final

from quarterdeck_protocol.portable_types import CONSTRAINTS
from quarterdeck_protocol.schema import TYPES, JsonValue, Schema

_NAMED: Final = frozenset({"properties", "patternProperties", "additionalProperties"})

_TOGETHER: Final = (
    frozenset({"items", "prefixItems", "additionalItems"}),
    frozenset({"contains", "minContains", "maxContains"}),
    frozenset({"if", "then", "else"}),
)
"""Keywords that read each other: those of two schemas cannot be mixed in one node."""

_AT_LEAST: Final = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_AT_MOST: Final = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})


def merge(first: Schema, second: Schema) -> Schema | None:
    """The node that admits exactly what both admit, or None where one flat node cannot say it.

    Keys and remarks of `first` come first and win.  Neither node has references, `allOf` or `unevaluated…` keywords.
    """
    if any(group & first.keys() and group & second.keys() for group in _TOGETHER):
        return None
    if (_closes(first) and _NAMED & second.keys()) or (_closes(second) and _NAMED & first.keys()):
        return None
    both = dict(first)
    for key, value in second.items():
        if key not in both:
            both[key] = value
        elif key in CONSTRAINTS:
            joint = _joint(key, both[key], value)
            if joint is None:
                return None
            both[key] = joint
    return both


def _closes(node: Schema) -> bool:
    """Whether the properties that a node names decide which others it admits."""
    return node.get("additionalProperties", True) is not True


def _joint(key: str, first: JsonValue, second: JsonValue) -> JsonValue:
    """The value of one keyword that says what both values say; None where there is none."""
    match first, second:
        case dict(), dict() if key == "properties":
            shared: Schema = {name: {"allOf": [first[name], second[name]]} for name in first if name in second}
            return {**first, **second, **shared}
        case list(), list() if key == "required":
            return list(dict.fromkeys(name for name in [*first, *second] if isinstance(name, str)))
        case list(), list() if key == "enum":
            return _common_choices(first, second)
        case ((str() | list()), (str() | list())) if key == "type":
            return _common_types(first, second)
        case bool(), bool() if key == "uniqueItems":
            return first or second
        case ((int() | float()), (int() | float())) if key in _AT_LEAST:
            return max(first, second)
        case ((int() | float()), (int() | float())) if key in _AT_MOST:
            return min(first, second)
        case ((str() | bool() | int() | float()), _) if type(first) is type(second) and first == second:
            return first
    return None


def _common_choices(first: list[JsonValue], second: list[JsonValue]) -> list[JsonValue] | None:
    """The scalars on both lists; None where there are none, or a choice is a container and so perhaps too deep."""
    if any(isinstance(choice, dict | list) for choice in (*first, *second)):
        return None
    known = {(isinstance(choice, bool), choice) for choice in second}  # JSON's true is not 1
    return [choice for choice in first if (isinstance(choice, bool), choice) in known] or None


def _common_types(first: JsonValue, second: JsonValue) -> JsonValue:
    """The type or types on both sides; None where there are none."""
    common: list[JsonValue] = [kind for kind in TYPES if _admits(first, kind) and _admits(second, kind)]
    if "number" in common:
        common.remove("integer")
    return common[0] if len(common) == 1 else common or None


def _admits(declared: JsonValue, kind: str) -> bool:
    kinds = declared if isinstance(declared, list) else [declared]
    return kind in kinds or (kind == "integer" and "number" in kinds)
