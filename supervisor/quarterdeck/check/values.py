"""Arguments for a stranger's tool, made from its input schema: few, small, always the same.  Pure.

Texts are chosen by format, else by the property's name, so that a path lies in the folder that the server may change,
and a URL is one that nobody owns.  What cannot be met (a pattern, a condition) is left to the caller to notice.
"""

import re
from collections.abc import Iterator
from typing import Final

from quarterdeck_protocol.schema.canonical import JsonValue, Schema

from .schemas import problem_of

Arguments = dict[str, JsonValue]

MAX_DEPTH: Final = 8
"""Below this depth an object or a list is empty."""

MAX_PROPERTIES: Final = 40

MAX_ITEMS: Final = 4
"""Items of one list, unless more are demanded; then up to `MOST_ITEMS`."""

MOST_ITEMS: Final = 64

MAX_TEXT_CHARS: Final = 4096
"""Length of one text, whatever is demanded."""

FILE_NAME: Final = "sample.txt"
"""The file that lies in the server's folder."""

_BY_FORMAT: Final = {
    "date-time": "2026-01-02T03:04:05Z",
    "date": "2026-01-02",
    "time": "03:04:05Z",
    "duration": "PT1S",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uri-reference": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
"""Hosts and addresses are those that RFC 2606 and RFC 5737 keep for examples."""

_FILE: Final = re.compile(r"(?:^|_)(?:file|filename|path|filepath|source|destination|input|output)(?:_|$|name|path)")
_FOLDER: Final = re.compile(r"(?:^|_)(?:dir|directory|folder|root|cwd|repo|repository|workspace|project)(?:_|$|path)")
_LINK: Final = re.compile(r"(?:^|_)(?:url|uri|link|href|endpoint|website)s?(?:_|$)")
_ZONE: Final = re.compile(r"time_?zone|(?:^|_)tz(?:_|$)")
_CLOCK: Final = re.compile(r"(?:^|_)time$")
_QUERY: Final = re.compile(r"(?:^|_)(?:sql|query)(?:_|$)")

_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-\s.]+")


def argument_sets(simple: Schema, folder: str) -> list[Arguments]:
    """Return up to three objects that a simple schema accepts: required properties, all, edge values.

    Paths in them lie in `folder`.
    """
    sets: list[Arguments] = []
    for mode in ("required", "all", "edge"):
        made = _Maker(folder, mode).make(simple, "", 0)
        if isinstance(made, dict) and made not in sets and not problem_of(simple, made):
            sets.append(made)
    return sets


def refused_sets(simple: Schema, folder: str) -> Iterator[tuple[str, Arguments]]:
    """Yield objects that the schema refuses, and why: a missing property, a wrong type."""
    base = _Maker(folder, "required").make(simple, "", 0)
    required, properties = simple.get("required"), simple.get("properties")
    if not isinstance(base, dict) or not isinstance(required, list) or not isinstance(properties, dict):
        return
    named = [name for name in required if isinstance(name, str) and name in base]
    if not named:
        return
    lacking = {key: value for key, value in base.items() if key != named[0]}
    if problem_of(simple, lacking):
        yield f"without {named[0]!r}, which is required", lacking
    for name in named:
        wrong: Arguments = {**base, name: {"no": ["such", "thing"]}}
        node = properties.get(name)
        if isinstance(node, dict) and node.get("type") and problem_of(simple, wrong):
            yield f"with an object as {name!r}", wrong
            return


class _Maker:
    """Makes values of schemas; `mode` is `required`, `all` or `edge`."""

    def __init__(self, folder: str, mode: str) -> None:
        self._folder = folder
        self._mode = mode

    def make(self, node: JsonValue, name: str, depth: int) -> JsonValue:
        """Return a value of this schema for the property `name`."""
        schema = _merged(node)
        at_edge = self._mode == "edge"
        if "const" in schema:
            return schema["const"]
        if isinstance(values := schema.get("enum"), list) and values:
            return values[-1 if at_edge else 0]
        if not at_edge and depth:
            if schema.get("default") is not None:
                return schema["default"]
            if isinstance(examples := schema.get("examples"), list) and examples:
                return examples[0]
        for union in ("anyOf", "oneOf"):
            branches = schema.get(union)
            if isinstance(branches, list) and branches and "type" not in schema:
                told = [each for each in branches if isinstance(each, dict) and each.get("type") != "null"] or branches
                return self.make(told[-1 if at_edge else 0], name, depth + 1)
        match kind_of(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, name, depth)
            case "integer" | "number" as kind:
                return self._number(schema, is_whole=kind == "integer")
            case "boolean":
                return self._mode == "all"
            case "null":
                return None
        return self._text(schema, name)

    def _object(self, schema: Schema, depth: int) -> JsonValue:
        properties = schema.get("properties")
        if not isinstance(properties, dict) or depth > MAX_DEPTH:
            return {}
        required = schema.get("required")
        needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
        # Of an optional property of which nothing is said, as where a recursion was cut, nothing can be made.
        names = [name for name in properties if name in needed or (self._mode == "all" and properties[name])]
        names = [*(name for name in names if name in needed), *(name for name in names if name not in needed)]
        return {name: self.make(properties[name], name, depth + 1) for name in names[:MAX_PROPERTIES]}

    def _array(self, schema: Schema, name: str, depth: int) -> JsonValue:
        least = _whole(schema.get("minItems"), 0)
        count = min(least if self._mode == "edge" or least else 1, MOST_ITEMS)
        if depth > MAX_DEPTH:
            return []
        first = schema.get("prefixItems")
        made = [self.make(each, name, depth + 1) for each in first[:MAX_ITEMS]] if isinstance(first, list) else []
        rest = schema.get("items", {})
        singular = name.removesuffix("s")
        while len(made) < count:
            made.append(self.make(rest if isinstance(rest, dict) else {}, singular, depth + 1))
        if schema.get("uniqueItems") is True and len(made) > 1 and all(isinstance(each, str) for each in made):
            return [f"{each}{at or ''}" for at, each in enumerate(made)]
        return made

    def _number(self, schema: Schema, *, is_whole: bool) -> JsonValue:
        low, high = _bound(schema, "minimum", "exclusiveMinimum", 1), _bound(schema, "maximum", "exclusiveMaximum", -1)
        wanted: float = 0 if self._mode == "edge" else 1
        if self._mode == "edge" and low is not None:
            wanted = low
        if low is not None:
            wanted = max(wanted, low)
        if high is not None:
            wanted = min(wanted, high)
        step = schema.get("multipleOf")
        if isinstance(step, int | float) and not isinstance(step, bool) and 0 < step < 1e9:
            wanted = step * -(-wanted // step)
        return int(wanted) if is_whole or float(wanted).is_integer() else wanted

    def _text(self, schema: Schema, name: str) -> JsonValue:
        least, most = _whole(schema.get("minLength"), 0), _whole(schema.get("maxLength"), MAX_TEXT_CHARS)
        format_ = schema.get("format")
        text = _BY_FORMAT.get(format_, "") if isinstance(format_, str) else ""
        if not text:
            text = "" if self._mode == "edge" and not self._is_place(name) else self._by_name(name)
        if len(text) < least:
            text += "a" * (min(least, MAX_TEXT_CHARS) - len(text))
        return text[:most]

    def _is_place(self, name: str) -> bool:
        plain = _plain(name)
        return bool(_FILE.search(plain) or _FOLDER.search(plain) or _LINK.search(plain) or _ZONE.search(plain))

    def _by_name(self, name: str) -> str:
        plain = _plain(name)
        if _LINK.search(plain):
            return "https://example.com/"
        if _ZONE.search(plain):
            return "UTC"
        if _FOLDER.search(plain):
            return self._folder
        if _FILE.search(plain):
            return f"{self._folder}/{FILE_NAME}"
        if _CLOCK.search(plain):
            return "03:04"
        if _QUERY.search(plain):
            return "SELECT 1"
        return "sample"


def kind_of(schema: Schema) -> str:
    """Return the type of a schema as far as it names one, else `string`."""
    said = schema.get("type")
    if isinstance(said, list):
        said = next((each for each in said if each != "null"), "null")
    if isinstance(said, str):
        return said
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def _merged(node: JsonValue) -> Schema:
    schema = node if isinstance(node, dict) else {}
    parts = schema.get("allOf")
    if not isinstance(parts, list):
        return schema
    merged: Schema = {key: value for key, value in schema.items() if key != "allOf"}
    for part in parts[:MAX_PROPERTIES]:
        for key, value in (part if isinstance(part, dict) else {}).items():
            before = merged.get(key)
            if key == "properties" and isinstance(before, dict) and isinstance(value, dict):
                merged[key] = {**before, **value}
            elif key == "required" and isinstance(before, list) and isinstance(value, list):
                merged[key] = [*before, *value]
            elif key not in merged or key == "type":
                merged[key] = value
    return merged


def _plain(name: str) -> str:
    return _WORD.sub("_", name).lower()[:200]


def _whole(value: JsonValue, otherwise: int) -> int:
    return (
        int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9 else otherwise
    )


def _bound(schema: Schema, inclusive: str, exclusive: str, inward: int) -> float | None:
    for word, step in ((inclusive, 0), (exclusive, inward)):
        value = schema.get(word)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15:
            return value + step
    return None
