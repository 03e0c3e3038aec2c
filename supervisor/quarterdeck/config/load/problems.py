"""Everything that is wrong with a row: places in the file, and one line about each in the words of JSON.

No text of the file is shown, since it may be a secret; numbers and booleans are, outside `env` and `headers`.  Pure.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar, get_args

import msgspec
from pydantic import ValidationError

from quarterdeck_protocol.names import did_you_mean, nearest_key
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.policy import FrozenModel

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
    "string_type": "a string",
    "tuple_type": "an array",
}

_SECRETIVE: Final = frozenset({"arguments", "auth", "env", "headers"})
"""Fields of which not even a number is shown."""

_BOOLEANS: Final = frozenset({"allow_remote", "internet_only", "legacy_only", "required", "seal"})

_OF_ANY_KIND: Final = frozenset({"arguments"})
"""Fields whose values are for a server to judge."""

_MAX_CHARS: Final = 500
"""The length of one message; a hostile file could make it as long as itself."""

M = TypeVar("M", bound=FrozenModel)
T = TypeVar("T")
V = TypeVar("V")


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong at a place in the file, and what to do.

    `code` is `config_invalid` or `unset_variable`; `nearest` is the known key that an unknown one resembles.
    """

    location: str
    reason: str
    code: str = "config_invalid"
    nearest: str | None = None

    def __str__(self) -> str:
        return f"{self.location}: {self.reason}"[:_MAX_CHARS]


class RowError(Exception):
    """A row cannot be used; `problem` is the first thing that is wrong with it."""

    def __init__(self, location: str, message: str, code: str = "config_invalid", nearest: str | None = None) -> None:
        self.problem = Problem(location, message, code, nearest)
        super().__init__(str(self.problem))


class Problems(list[Problem]):
    """All that is wrong with a row, in the order in which it was found."""

    def try_to(self, read: Callable[[V], T], value: V) -> T | None:
        """Return what `read` makes of `value`; None, keeping its `RowError`, if it raises one."""
        with self.kept():
            return read(value)
        return None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep a `RowError` of the block, and go on after it."""
        try:
            yield
        except RowError as error:
            self.append(error.problem)


def at(location: str, *steps: str | int) -> str:
    """Return the place below `location`: `mcpServers.fs` and `args`, 1 give `mcpServers.fs.args[1]`."""
    for step in steps:
        if isinstance(step, int):
            location += f"[{step}]"
        elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", step):
            location += f".{step}"
        else:
            location += f"[{step[:64]!r}]"
    return location


def unknown_key(location: str, key: str, known: Collection[str]) -> Problem:
    """Describe a key that means nothing there, with the nearest known one, or else all known ones."""
    hint = did_you_mean(key, known, "known keys", nearest_key)
    return Problem(location, f"unknown key {key!r}{hint}", nearest=nearest_key(key, known))


def complaints(error: ValidationError, location: str) -> tuple[Problem, ...]:
    """Return a model's complaints, in the words of JSON."""
    found = []
    for each in error.errors(include_url=False):
        # pydantic says so that it means a key, and not its value.
        place = at(location, *(step for step in each["loc"] if step != "[key]"))
        kind = each["type"]
        if kind in _EXPECTED:
            got = describe(each["input"], secret=not _SECRETIVE.isdisjoint(each["loc"]))
            found.append(Problem(place, f"expected {_EXPECTED[kind]}, got {got}"))
        elif kind == "missing":
            found.append(Problem(place, "is required"))
        elif kind == "string_too_short":
            found.append(Problem(place, "must not be empty"))
        else:
            found.append(Problem(place, plain_words(each["msg"])))
    return tuple(found)


def describe(value: object, *, secret: bool = False) -> str:
    """Return the kind of a JSON value; small ones themselves unless they are `secret`."""
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


def judge(model: type[M], fields: Mapping[str, object], location: str) -> tuple[M | None, tuple[Problem, ...]]:
    """Return the values as the model has them, None unless they are right; and what is wrong, unknown keys last.

    A number that is written as true or false is wrong here: to the model it is 1 or 0.
    """
    # The model stops at an unknown key, and does not say which key is near.
    rest, unknown = _without_unknown_keys(model, fields, location)
    value, found = None, unknown
    try:
        value = model.model_validate(rest)
    except ValidationError as error:
        found = complaints(error, location) + unknown
    places = {problem.location for problem in found}
    found += tuple(each for each in _booleans(rest, location) if each.location not in places)
    return (None if found else value), found


def require(model: type[M], fields: Mapping[str, object], location: str) -> M:
    """Return the values as the model has them.  Raises `RowError` with the first thing that is wrong."""
    value, found = judge(model, fields, location)
    if value is None:
        raise RowError(found[0].location, found[0].reason, found[0].code, found[0].nearest)
    return value


def _without_unknown_keys(
    model: type[FrozenModel], fields: Mapping[str, object], location: str
) -> tuple[dict[str, object], tuple[Problem, ...]]:
    known: dict[str, object] = {}
    unknown: list[Problem] = []
    for key, value in fields.items():
        if key not in model.model_fields:
            unknown.append(unknown_key(location, key, model.model_fields))
            continue
        inner = model_in(model.model_fields[key].annotation)
        if inner is not None and isinstance(value, Mapping):
            known[key], found = _without_unknown_keys(inner, value, at(location, key))
            unknown += found
        else:
            known[key] = value
    return known, tuple(unknown)


def model_in(annotation: object) -> type[FrozenModel] | None:
    """Return the model that a field of this type holds, if any."""
    for each in (annotation, *get_args(annotation)):
        if isinstance(each, type) and issubclass(each, FrozenModel):
            return each
    return None


def _booleans(fields: Mapping[str, object], location: str) -> Iterator[Problem]:
    for key, value in fields.items():
        if key in _OF_ANY_KIND:
            continue
        if isinstance(value, Mapping):
            yield from _booleans(value, at(location, key))
        elif isinstance(value, bool) and key not in _BOOLEANS:
            yield Problem(at(location, key), f"expected a number, got {describe(value)}")
