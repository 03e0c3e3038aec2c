"""Values written from a schema, as a caller would write them and a little worse.

The maintained generator of this kind, hypothesis-jsonschema, does not run under today's Hypothesis.  This one promises
nothing about a value: ask `json_judge` whether the schema admits it.
"""

import math
import re
from random import Random
from typing import Any, Final

from .json_judge import SAMPLES, Json

MAX_DEPTH: Final = 6
"""Schemas within each other that a value follows; below, anything stands."""

MAX_PARTS: Final = 64
"""Schemas that are laid over one another; a reference may lead to itself."""

_WORDS: Final = (
    *(
        *("a", "A1", "text", "a b", "ä\u2028\U0001f600", "0", "true", "null", "x" * 40, "a_b-c.d", "a.png", "1:2"),
        *("*", "/", "#a"),
    ),
    *("2026-01-01", "2026-01-01T00:00:00Z", "2026-01-01to2026-02-01", "10:00:00Z", "someone@example.com", "127.0.0.1"),
    *("abcDEF012345", "#a1b2c3", "1-0b7c1b6e-5f0a-4c7e-9d5b-2f6a7c8d9e01"),
    *("https://example.com/a?b=c", "example.com", "0b7c1b6e-5f0a-4c7e-9d5b-2f6a7c8d9e01", "::1", "P1D"),
)
"""Strings of many forms: some of them meet whatever format or pattern a tool asks for."""

_KINDS: Final = {
    **dict.fromkeys(("properties", "required", "additionalProperties", "patternProperties"), "object"),
    **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems"), "array"),
    **dict.fromkeys(("minLength", "maxLength", "pattern", "format"), "string"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
}
"""The type that an untyped node most likely means, by its keywords."""


def written(schema: Json, document: Json, random: Random, depth: int = MAX_DEPTH) -> Json:
    """One value, most likely of those that a schema of a document admits."""
    if not isinstance(schema, dict) or not depth or random.random() < 0.02:
        return random.choice(SAMPLES)
    node = dict(_flat(schema, document, random))
    if "const" in node:
        return node["const"]
    if node.get("enum"):
        return random.choice(node["enum"])
    declared = node.get("type") or next((kind for key, kind in _KINDS.items() if key in node), None)
    kind = random.choice(declared) if isinstance(declared, list) else declared
    match kind:
        case "object":
            return _object(node, document, random, depth)
        case "array":
            return _array(node, document, random, depth)
        case "string":
            return _string(node, random)
        case "integer" | "number":
            return _number(node, random, whole=kind == "integer")
        case "boolean":
            return random.choice((True, False))
        case "null":
            return None
        case _:
            return random.choice(SAMPLES)


def _flat(schema: Json, document: Json, random: Random) -> Json:
    flat: dict[str, Any] = {}
    pending = [schema]
    for part in pending:  # grows while we walk it
        if not isinstance(part, dict) or len(pending) > MAX_PARTS:
            continue
        if isinstance(reference := part.get("$ref"), str):
            pending.append(_target(document, reference))
        unions = [branches for key in ("anyOf", "oneOf") if isinstance(branches := part.get(key), list) and branches]
        pending += map(random.choice, unions)
        pending += together if isinstance(together := part.get("allOf"), list) else []
    for part in pending:
        for key, value in part.items() if isinstance(part, dict) else ():
            if key == "properties" and isinstance(value, dict):
                flat[key] = {**flat.get(key, {}), **value}
            elif key == "required" and isinstance(value, list):
                flat[key] = [*flat.get(key, []), *value]
            else:
                flat.setdefault(key, value)
    return flat


def _object(node: Json, document: Json, random: Random, depth: int) -> Json:
    value = {}
    often = random.choice((0.0, 0.3, 0.7, 1.0))
    for name, child in node.get("properties", {}).items():
        if name in node.get("required", ()) or random.random() < often:
            value[name] = written(child, document, random, depth - 1)
    rest = node.get("additionalProperties", True)
    if rest is not False and random.random() < 0.3:
        value[random.choice(_WORDS)] = written(rest, document, random, depth - 1)
    return value


def _array(node: Json, document: Json, random: Random, depth: int) -> Json:
    first = node.get("prefixItems", [])
    rest = node.get("items", True)
    if isinstance(rest, list):
        first, rest = rest, node.get("additionalItems", True)
    least = max(int(node.get("minItems", 0)), 0)
    count = random.randint(least, max(least, min(int(node.get("maxItems", least + 3)), least + 3, 200)))
    members = [*first[:count], *[rest] * (count - len(first))]
    return [written(member, document, random, depth - 1) for member in members]


def _string(node: Json, random: Random) -> str:
    pattern = node.get("pattern")
    words = [word for word in _WORDS if pattern is None or _matches(pattern, word)] or list(_WORDS)
    if "format" not in node and pattern is None:
        least = min(max(int(node.get("minLength", 0)), 0), 1000)
        words += ["", "b" * least, "c" * max(min(int(node.get("maxLength", least + 5)), 1000), 0)]
    return random.choice(words)


def _number(node: Json, random: Random, *, whole: bool) -> int | float:
    low = _bound(node, "minimum", "exclusiveMinimum", -10)
    high = _bound(node, "maximum", "exclusiveMaximum", max(low + 20, 100))
    step = node.get("multipleOf")
    choices: list[float] = [low, high, low + 1, high - 1, 0, 1, (low + high) / 2, step or 7]
    if not whole:
        choices += [low + 0.25, 0.5]
    chosen = random.choice(choices)
    return math.floor(chosen) if whole or chosen == math.floor(chosen) else chosen


def _bound(node: Json, closed: str, opened: str, otherwise: float) -> float:
    for key in (closed, opened):
        if isinstance(bound := node.get(key), int | float) and not isinstance(bound, bool):
            return bound
    return otherwise


def _matches(pattern: str, word: str) -> bool:
    try:
        return re.search(pattern, word) is not None
    except re.error:
        return False


def _target(document: Json, reference: str) -> Json:
    for token in reference.split("/")[1:] if reference.startswith("#") else ["nowhere"]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list) and key.isdecimal() and int(key) < len(document):
            document = document[int(key)]
        elif isinstance(document, dict):
            document = document.get(key)
        else:
            return None
    return document
