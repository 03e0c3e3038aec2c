"""What a schema admits by the word of an independent validator, and values worth asking it about."""

from collections.abc import Iterator
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

Json = Any

SAMPLES: Final = (
    *(None, True, False, 0, 1, 2, 1.5, -1, 1000, "", "a", "aa", "2026-01-01", "no such choice"),
    *([], [1], ["a"], [1, "a", None], {}, {"a": 1}, {"a": "a", "b": {}}),
)
"""Values of every kind, tried against every schema."""

PLAIN: Final[dict[str, list[Json]]] = {
    "string": ["text", "", "2026-01-01T00:00:00Z"],
    "integer": [1, 0, 50],
    "number": [1, 0.5],
    "boolean": [True],
    "null": [None],
}


def judge(schema: Json) -> Validator:
    """What checks values by a schema, in the draft that it names or the current one; it never fetches anything."""
    return validator_for(schema, default=Draft202012Validator)(schema, registry=Registry())


def admits(validator: Validator, value: Json) -> bool | None:
    """Whether a value passes; None where a reference leads nowhere or never ends."""
    try:
        return bool(validator.is_valid(value))
    except (RecursionError, TypeError, Unresolvable):  # TypeError: a pointer through a boolean
        return None
    except BaseException as error:
        # What its map in Rust makes of a recursion that ends just there; no module exports the type.
        if type(error).__name__ != "PanicException":
            raise
        return None


def examples(schema: Json, document: Json, depth: int = 6) -> Iterator[Json]:
    """Values that a caller would write for a schema of a document; most of them are admitted by it."""
    if not isinstance(schema, dict) or not depth:
        return
    yield from schema.get("enum", [])
    if "const" in schema:
        yield schema["const"]
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#/"):
        yield from examples(_look_up(document, reference), document, depth - 1)
    for keyword in ("anyOf", "oneOf", "allOf"):
        for branch in schema.get(keyword, []):
            yield from examples(branch, document, depth - 1)
    declared = schema.get("type")
    kinds = declared if isinstance(declared, list) else [declared]
    for kind in kinds:
        yield from PLAIN.get(kind, [])
    if "object" in kinds or "properties" in schema:
        children = {
            name: list(examples(child, document, depth - 1)) for name, child in schema.get("properties", {}).items()
        }
        yield {name: values[0] for name, values in children.items() if values}
        yield {name: values[-1] for name, values in children.items() if values and name in schema.get("required", [])}
    if "array" in kinds or "items" in schema:
        members = schema.get("prefixItems", schema.get("items", {}))
        each = [list(examples(m, document, depth - 1)) for m in (members if isinstance(members, list) else [members])]
        yield [values[0] for values in each if values]


def _look_up(document: Json, reference: str) -> Json:
    for token in reference.split("/")[1:]:
        document = document[int(token)] if isinstance(document, list) else document.get(token)
        if not isinstance(document, dict | list):
            return None
    return document
