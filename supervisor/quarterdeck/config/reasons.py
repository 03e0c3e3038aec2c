"""Why a row cannot be used: the place in the file, and one line about it.

No text of the file is shown, since it may be a secret; numbers and booleans are, outside `env` and `headers`.  Pure.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError

_EXPECTED: Final[Mapping[str, str]] = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "byte_size": 'a size, as in 1048576 or "512 MiB"',
    "byte_size_unit": 'a size, as in 1048576 or "512 MiB"',
    "dict_type": "an object",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller number",
    "int_type": "a whole number",
    "model_type": "an object",
    "string_pattern_mismatch": "an http:// or https:// URL",
    "string_type": "a string",
    "tuple_type": "an array",
}
"""What a validation error asks for, in the words of JSON."""

_SECRETIVE: Final = frozenset({"env", "headers"})
"""Fields of which not even a number is shown."""

_MAX_CHARS: Final = 500
"""One message; a hostile file could make it as long as itself."""


class RowError(Exception):
    """A row cannot be used; `code` is `config_invalid` or `unset_variable`."""

    def __init__(self, location: str, message: str, code: str = "config_invalid") -> None:
        super().__init__(f"{location}: {message}"[:_MAX_CHARS])
        self.code = code


def at(location: str, *steps: str | int) -> str:
    """The place below `location`: `mcpServers.fs` and `args`, 1 give `mcpServers.fs.args[1]`."""
    for step in steps:
        if isinstance(step, int):
            location += f"[{step}]"
        elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", step):
            location += f".{step}"
        else:
            location += f"[{step[:64]!r}]"
    return location


def from_validation(error: ValidationError, location: str) -> RowError:
    """The first of the model's complaints, in the words of JSON."""
    first = error.errors(include_url=False)[0]
    place = at(location, *first["loc"])
    kind = first["type"]
    if kind in _EXPECTED:
        got = describe(first["input"], secret=not _SECRETIVE.isdisjoint(first["loc"]))
        return RowError(place, f"expected {_EXPECTED[kind]}, got {got}")
    if kind == "missing":
        return RowError(place, "is required")
    if kind == "string_too_short":
        return RowError(place, "must not be empty")
    message = first["msg"].removeprefix("Value error, ")
    return RowError(place, message.replace("Input should be", "must be", 1))


def describe(value: object, *, secret: bool = False) -> str:
    """What kind of JSON value `value` is; small ones themselves unless they are `secret`."""
    match value:
        case None:
            return "null"
        case bool() | int() | float():
            return "a number" if secret else json.dumps(value)[:32]
        case str():
            return "a string"
        case dict():
            return "an object"
        case _:
            return "an array"
