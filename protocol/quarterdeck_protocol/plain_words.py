"""What a library says of a wrong value, in the words that all our messages use.  Pure.

Every message of pydantic, msgspec, `json`, jsonschema, click or the operating system that a person may read passes
through here, so that nobody meets the name of a library's type, or `Value error,`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

_NAMES: Final = {
    "an array": ("array", "list", "tuple"),
    "an object": ("dict", "dictionary", "mapping", "object"),
    "a whole number": ("int", "integer", "integer range"),
    "a number": ("float", "float range", "number"),
    "a string": ("str", "string"),
    "true or false": ("bool", "boolean"),
    "null": ("null",),
}
_KINDS: Final[Mapping[str, str]] = {name: said for said, names in _NAMES.items() for name in names}


def plain_words(error: object) -> str:
    """Return an error, or its text, in one line; for a validation, its first complaint."""
    complaints = getattr(error, "errors", None)
    if callable(complaints) and hasattr(error, "error_count"):  # pydantic's, which is not imported for this
        first = complaints(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        said = plain_words(first["msg"])
        return f"{place}: {said}" if place else said
    if isinstance(error, OSError) and error.strerror:
        what = error.strerror[:1].lower() + error.strerror[1:]
        return f"{error.filename}: {what}" if isinstance(error.filename, str) else what
    text = str(error)
    for pattern, replace in _RULES:
        text = pattern.sub(replace, text)
    return text.partition("\n")[0]


def _kind(found: re.Match[str]) -> str:
    return _KINDS.get(found[1].lower(), found[1])


_RULES: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = tuple(
    (re.compile(pattern), replace)
    for pattern, replace in (
        # pydantic
        (r"(?:Value error|Assertion failed), ", ""),
        (
            r"Input should be a valid ([a-z]+)(?:, .*| or instance of .*)?$",
            lambda found: f"must be {_KINDS.get(found[1].lower(), f'a valid {found[1]}')}",
        ),
        (r"Input should be", "must be"),
        (r"String should have", "must have"),
        (r"String should match pattern .*", "does not have the required form"),
        (r"Field required", "is required"),
        (r"Extra inputs are not permitted", "is not a known key"),
        # msgspec
        (r"Object missing required field `([^`]*)`", r"the field '\1' is missing"),
        (r"Object contains unknown field `([^`]*)`", r"there is no field '\1'"),
        (r" - at `\$\.?([^`]+)`", r" at '\1'"),
        (r" - at `\$`", ""),
        (r"Expected `([a-z]+)( \| null)?`", lambda found: f"expected {_kind(found)}{' or null' if found[2] else ''}"),
        (r"\bgot `([a-z]+)`", lambda found: f"got {_kind(found)}"),
        (r"Input data was truncated", "the JSON ends too early"),
        (r"JSON is malformed: (.*) \(byte (\d+)\)", r"wrong JSON at byte \2: \1"),
        # json
        (r"Expecting (.*): line (\d+) column (\d+) \(char \d+\)", r"wrong JSON at line \2, column \3: expected \1"),
        (r"^([A-Z].*): line (\d+) column (\d+) \(char \d+\)", r"wrong JSON at line \2, column \3: \1"),
        # jsonschema
        (r"is not of type '([a-z]+)'", lambda found: f"is not {_kind(found)}"),
        # click
        (r"^Invalid value for '?([^':]+)'?(?: / '[^']+')?: ", r"\1: "),
        (r"^Missing (?:argument|option|parameter) '([^']*)'\.?(?: Choose from:)?", r"\1 is missing"),
        (r"^Option '([^']*)' requires an argument", r"\1 needs a value"),
        (r"^Option '([^']*)' does not take a value", r"\1 takes no value"),
        (r"^No such option:? '?(-[^'. ]*)'?", r"there is no option \1"),
        (r"\(Possible options: ([^)]*)\)", r": did you mean \1?"),
        (r"^No such command '([^']*)'", r"there is no command '\1'"),
        (r"^Got unexpected extra arguments? \((.*)\)", r"too many arguments: \1"),
        (r"\.? \(?Did you mean ([^?]*)\?\)?", r": did you mean \1?"),
        (r"is not a valid ([a-z]+(?: range)?)", lambda found: f"is not {_kind(found)}"),
        (r"is not in the range x>=(\S+?)(?:\.0)?$", r"is less than \1"),
    )
)
