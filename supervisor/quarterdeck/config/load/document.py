"""JSON text to values, with errors that a person can find in the file.

Beside the standard parser: keys given twice are kept for the caller to report, nesting is bounded, and a number
that no other program would read the same way becomes a non-finite float.  Pure.
"""

import json
from collections.abc import Iterable
from typing import Final

MAX_DEPTH: Final = 64
"""Levels of nesting; a configuration has six, and our own walks recurse."""

_MAX_DIGITS: Final = 300
"""An integer of more digits does not fit a float, nor anything that we configure."""


class DocumentError(ValueError):
    """The text is no usable JSON; the message says where, and what to do."""


class JsonObject(dict[str, object]):
    """A JSON object: the first value of each key, and in `repeated` what later ones had."""

    repeated: tuple[tuple[str, object], ...] = ()


def parse_document(text: str) -> object:
    """The value of `text`; every object in it is a `JsonObject`.

    Raises:
        DocumentError: no JSON, or deeper than `MAX_DEPTH`.
    """
    if not text.strip():
        raise DocumentError("the file is empty")
    try:
        value: object = json.loads(text, object_pairs_hook=_to_object, parse_int=_to_number)
    except json.JSONDecodeError as error:
        raise DocumentError(f"line {error.lineno}, column {error.colno}: {_explain(error)}") from error
    except RecursionError:
        raise DocumentError(f"nested deeper than {MAX_DEPTH} levels") from None
    _check_depth(value)
    return value


def _to_object(pairs: Iterable[tuple[str, object]]) -> JsonObject:
    value, repeated = JsonObject(), []
    for key, member in pairs:
        if key in value:
            repeated.append((key, member))
        else:
            value[key] = member
    value.repeated = tuple(repeated)
    return value


def _to_number(digits: str) -> float:
    return int(digits) if len(digits) <= _MAX_DIGITS else float("-inf" if digits.startswith("-") else "inf")


def _check_depth(value: object) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [member for item in level for member in _members(item)]
    if any(isinstance(item, JsonObject | list) for item in level):
        raise DocumentError(f"nested deeper than {MAX_DEPTH} levels")


def _members(item: object) -> Iterable[object]:
    if isinstance(item, JsonObject):
        return (*item.values(), *(member for _, member in item.repeated))
    return item if isinstance(item, list) else ()


def _explain(error: json.JSONDecodeError) -> str:
    rest = error.doc[error.pos :].lstrip()
    if not rest:
        return "the text ends before the JSON does"
    if rest.startswith("#"):
        return "a comment does not begin with #"
    if rest.startswith("/*") and "*/" not in rest:
        return "the comment is not closed"
    if rest.startswith(("//", "/*")):
        return "comments are not JSON: remove them"
    if rest.startswith("'"):
        return "JSON strings take double quotes"
    if rest[0] in "}]" and error.doc[: error.pos].rstrip().endswith(","):
        return "a comma before a closing bracket is not JSON: remove it"
    return f"{error.msg[0].lower()}{error.msg[1:]}"
