"""Whether a keyword of a JSON Schema that changed lets more values pass than before.  Pure."""

from typing import Final

from .differences import ABSENT, spelling

_FLOORS: Final = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_CEILINGS: Final = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})

_FILTERS: Final = frozenset(
    {"enum", "type", "pattern", "format", "multipleOf", "const", "anyOf", "allOf", "oneOf", "not"}
)
"""Without them more is accepted; `$ref` is none of them, since old drafts ignore what stands beside it."""


def widens(key: str, old: object, new: object) -> bool | None:
    """Whether more passes `new` than passed `old`, values of `key` that differ; None when nobody can tell."""
    if key in _FLOORS | _CEILINGS:
        if not (_is_bound(old) and _is_bound(new)):
            return None
        if isinstance(old, int | float) and isinstance(new, int | float):
            return new <= old if key in _FLOORS else new >= old
        return new is ABSENT
    if key == "uniqueItems":
        return new is ABSENT or new is False
    if key in {"items", "additionalProperties"}:
        return opens(old, new)
    if key in _FILTERS and (old is ABSENT or new is ABSENT):
        return new is ABSENT
    before, after = _choices(key, old), _choices(key, new)
    if before is None or after is None or not (before <= after or after <= before):
        return None
    return before <= after


def is_same_choice(key: str, old: object, new: object) -> bool:
    """Whether `old` and `new`, values of `key`, name the same choices in another order."""
    before = _choices(key, old)
    return before is not None and before == _choices(key, new)


def opens(old: object, new: object) -> bool | None:
    """Whether a schema that is a boolean, or missing, or becomes so, lets more pass; None when it is neither."""
    ranks = [2 if each in (ABSENT, True) or each == {} else 0 if each is False else 1 for each in (old, new)]
    return None if ranks == [1, 1] else ranks[1] >= ranks[0]


def string_set(value: object) -> frozenset[str] | None:
    """The strings of an array; none of a missing one; None of what is no array of strings."""
    if value is ABSENT:
        return frozenset()
    if not isinstance(value, list):
        return None
    texts = frozenset(each for each in value if isinstance(each, str))
    return texts if all(isinstance(each, str) for each in value) else None


def _choices(key: str, value: object) -> frozenset[str] | frozenset[bytes] | None:
    """The values that `enum` or `type` admits, None of other keywords and of what is malformed."""
    if value is ABSENT:
        return None
    if key == "enum":
        return frozenset(map(spelling, value)) if isinstance(value, list) else None
    if key != "type":
        return None
    types = string_set([value] if isinstance(value, str) else value)
    return types | {"integer"} if types and "number" in types else types


def _is_bound(value: object) -> bool:
    return value is ABSENT or (isinstance(value, int | float) and not isinstance(value, bool))
