"""Judge a tool's input by its published schema, in words that a model can act on. Pure.

A server judges the input of its own tools.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from quarterdeck.common.words import clipped
from quarterdeck_protocol.names import did_you_mean
from quarterdeck_protocol.plain_words import plain_words

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

MAX_PROBLEMS: Final = 5  # enough to fix a call in one go, few enough to read
MAX_SHOWN_CHARS: Final = 80  # of a wrong value; the caller has it whole
MAX_DEPTH: Final = 64  # nesting of an input; a validator recurses
MAX_NUMBER: Final = 2**63  # no tool counts further; larger integers overflow a float or an int64
_PLAIN: Final = (str, int, float, dict, list)  # the types of JSON values, without null

_KINDS: Final = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


class InputCheck:
    """The check of one tool's input; made once, used for every call."""

    def __init__(self, tool: str, parameters: Mapping[str, object]) -> None:
        self._tool = tool
        self._parameters = parameters
        self._validator: Validator | None = None

    def problem(self, value: object) -> str | None:
        """Describe the mistakes in `value`, for a model to read; None when the schema accepts it."""
        found = _unfit(value) or self._found(value)
        if not found:
            return None
        more = f"\n- and {len(found) - MAX_PROBLEMS} more" if len(found) > MAX_PROBLEMS else ""
        lines = "".join(f"\n- {line}" for line in found[:MAX_PROBLEMS])
        return f"{self._tool} was not run because its input is wrong:{lines}{more}\n{self._usage()}"

    def _found(self, value: object) -> list[str]:
        if self._validator is None:
            from jsonschema import Draft202012Validator  # a tenth of a second, for the first call only

            self._validator = Draft202012Validator(self._parameters)
        errors = sorted(
            self._validator.iter_errors(cast("dict[str, Any]", value)),
            key=lambda error: [str(step) for step in error.path],
        )
        return [line for error in errors for line in _explain(error)]

    def _usage(self) -> str:
        properties = self._parameters.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            return "It takes no parameters: {}."
        required = self._parameters.get("required")
        needed = required if isinstance(required, list) else []
        shown = (f"{name} ({_usage_of(each, name in needed)})" for name, each in properties.items())
        return f"It takes: {', '.join(shown)}."


def _usage_of(schema: object, is_required: bool) -> str:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    choices = schema.get("enum") if isinstance(schema, Mapping) else None
    what = " | ".join(map(str, choices)) if isinstance(choices, list) else str(kind or "any value")
    return f"{what}, required" if is_required else what


def _explain(error: "ValidationError") -> Iterator[str]:
    place = _place(error.absolute_path)
    expected, value = error.validator_value, error.instance
    match error.validator:
        case "required" if isinstance(expected, list) and isinstance(value, Mapping):
            # One error for each missing name, each with the whole list: the name is the message's.
            name = next((each for each in expected if error.message.startswith(repr(each))), "a parameter")
            yield f"{_join(place, str(name))} is missing"
        case "additionalProperties" if isinstance(value, Mapping):
            known = error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
            for name in value:
                if name not in known:
                    yield f"there is no parameter {_shown(_join(place, str(name)))}{did_you_mean(str(name), known)}"
        case "type":
            names = expected if isinstance(expected, list) else [expected]
            kinds = " or ".join(_KINDS.get(str(name), str(name)) for name in names)
            yield f"{place or 'the input'}: expected {kinds}, got {_shown(value)}"
        case "enum" if isinstance(expected, list):
            yield f"{place}: expected one of {', '.join(map(_shown, expected))}, got {_shown(value)}"
        case "minimum":
            yield f"{place}: expected {expected} or more, got {_shown(value)}"
        case "maximum":
            yield f"{place}: expected {expected} or less, got {_shown(value)}"
        case "exclusiveMinimum":
            yield f"{place}: expected more than {expected}, got {_shown(value)}"
        case "minLength" if expected == 1:
            yield f"{place}: it must not be empty"
        case _:
            yield f"{place}: {clipped(plain_words(error.message), MAX_SHOWN_CHARS)}"


def _place(path: Iterable[str | int]) -> str:
    place = ""
    for step in path:
        place = f"{place}[{step}]" if isinstance(step, int) else _join(place, step)
    return place


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _shown(value: object) -> str:
    try:
        return clipped(json.dumps(value, ensure_ascii=False, default=str), MAX_SHOWN_CHARS)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"


def is_plain(value: object) -> bool:
    """Return whether `value` is JSON without nulls, and holds nothing that `InputCheck` refuses whatever the schema
    says.

    Of such a value msgspec's strict conversion accepts nothing that JSON Schema refuses. It would also accept a tuple
    or a set, which an embedding program may pass, as a list.
    """
    return not _unfit(value) and all(isinstance(item, _PLAIN) for level in _levels(value) for item in level)


def _unfit(value: object) -> list[str]:
    """Find mistakes that no schema describes: numbers out of range, and nesting that a validator cannot follow."""
    for depth, level in enumerate(_levels(value)):
        if depth == MAX_DEPTH:
            return [f"it is nested deeper than {MAX_DEPTH} levels"]
        if any(isinstance(item, int | float) and not abs(item) < MAX_NUMBER for item in level):
            return ["numbers must be finite, and smaller than 2**63"]
    return []


def _levels(value: object) -> Iterator[list[object]]:
    """Yield the value, its members, their members, and so on."""
    level = [value]
    while level:
        yield level
        level = [member for item in level for member in _members(item)]


def _members(item: object) -> Iterable[object]:
    if isinstance(item, Mapping):
        return item.values()
    return item if isinstance(item, list) else ()
