"""Judge values by a stranger's schema, and the schema itself, without taking its word for what that costs.  Pure.

A schema is put into its portable form first, which is bounded, without references and admits all that the schema
admits; patterns are left out, as one may take for ever.  So what is refused here is refused by the schema, too.
"""

from collections.abc import Iterator
from typing import Any, Final, cast

from quarterdeck.common.words import clipped, flat
from quarterdeck_protocol.schema.canonical import JsonValue, Schema, canonical_json
from quarterdeck_protocol.schema.portable import portable_schema

MAX_SHOWN_CHARS: Final = 160

MAX_NODES: Final = 5_000

MAX_DEPTH: Final = 200
"""Depth of nested schemas; the validator recurses."""

MAX_SCHEMA_BYTES: Final = 512 * 1024
"""A larger schema is not judged, and of no use to a model."""

_PATTERNS: Final = frozenset({"pattern", "patternProperties"})
_DATA: Final = frozenset({"enum", "const", "default", "examples", "required", "type"})
"""Keywords whose values hold no schema."""

_NAMED: Final = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose values hold schemas by names."""

_CLOSING: Final = frozenset({"additionalProperties", "unevaluatedProperties", "propertyNames"})
"""Refuse what a pattern that was left out would have let pass."""


def simple_schema(schema: object) -> Schema:
    """Return the portable form of an input schema, without patterns."""
    plain = _without_patterns(portable_schema(schema))
    return plain if isinstance(plain, dict) else {}


def wrapped(schema: Schema) -> Schema:
    """Return the schema of an object whose one property `value` has this schema, of whatever type."""
    return {"type": "object", "properties": {"value": schema}, "required": ["value"], **shared_parts(schema)}


def shared_parts(schema: Schema) -> Schema:
    """Return the targets of references within a schema, to copy with a part of it."""
    shared: Schema = {}
    for key in ("$defs", "definitions"):
        if key in schema:
            shared[key] = schema[key]
    return shared


def problem_of(simple: Schema, value: object) -> str:
    """Return why this simple schema refuses a value; empty if it accepts it, or cannot be used."""
    try:
        complaint = next(iter(_validator(simple).iter_errors(cast("Any", value))), None)
    except Exception:
        return ""  # of a schema that is none the library raises whatever comes of it
    if complaint is None:
        return ""
    place = "/".join(map(str, complaint.absolute_path))
    return shown(f"{place}: {complaint.message}" if place else complaint.message)


def schema_problem(schema: object) -> str:
    """Return why this is no valid JSON Schema of its draft, by default 2020-12; empty if it is one."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    if not isinstance(schema, dict):
        return "it is no object"
    try:
        if len(canonical_json(schema)) > MAX_SCHEMA_BYTES:
            return f"it is larger than {MAX_SCHEMA_BYTES // 1024} KiB"
        draft = validator_for(schema, default=Draft202012Validator)
        complaint = next(iter(draft(draft.META_SCHEMA).iter_errors(cast("Any", schema))), None)
    except RecursionError:
        return "it is nested too deeply"
    except Exception as error:
        return shown(f"it cannot be read: {error}")  # see above
    if complaint is None:
        return ""
    place = "/".join(map(str, complaint.absolute_path))
    return shown(f"{place or 'its root'}: {complaint.message}")


def references(schema: object) -> Iterator[tuple[str, bool]]:
    """Yield each `$ref` of a schema, and whether it leads to a place within it."""
    pending: list[object] = [schema]
    anchors: set[str] = set()
    found: list[str] = []
    for index in range(MAX_NODES):
        if index == len(pending):
            break
        node = pending[index]
        if isinstance(node, dict):
            if isinstance(ref := node.get("$ref"), str):
                found.append(ref)
            for key in ("$anchor", "$id", "$dynamicAnchor"):
                if isinstance(name := node.get(key), str):
                    anchors.add(name if key == "$id" else f"#{name}")
            pending += [child for key, child in node.items() if key not in ("enum", "const", "default", "examples")]
        elif isinstance(node, list):
            pending += node
    for ref in dict.fromkeys(found):
        yield ref, ref == "#" or ref in anchors or _leads_somewhere(schema, ref)


def shown(text: str) -> str:
    """Return an untrusted text on one line, cut."""
    return clipped(flat(text), MAX_SHOWN_CHARS)


def _leads_somewhere(schema: object, ref: str) -> bool:
    if not ref.startswith("#/"):
        return False
    from urllib.parse import unquote

    node = schema
    for part in unquote(ref[2:]).split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and name in node:
            node = node[name]
        elif isinstance(node, list) and name.isdigit() and len(name) < 6 and int(name) < len(node):
            node = node[int(name)]
        else:
            return False
    return True


def _without_patterns(node: JsonValue, depth: int = 0) -> JsonValue:
    if isinstance(node, list):
        return [_without_patterns(each, depth + 1) for each in node] if depth < MAX_DEPTH else []
    if not isinstance(node, dict):
        return node
    if depth >= MAX_DEPTH:
        return {}
    dropped = _PATTERNS | _CLOSING if "patternProperties" in node else _PATTERNS
    kept: Schema = {}
    for key, value in node.items():
        if key in _DATA:
            kept[key] = value
        elif key in _NAMED and isinstance(value, dict):
            kept[key] = {name: _without_patterns(child, depth + 1) for name, child in value.items()}
        elif key not in dropped:
            kept[key] = _without_patterns(value, depth + 1)
    return kept


def _validator(simple: Schema) -> Any:
    from jsonschema import Draft202012Validator
    from referencing import Registry

    return Draft202012Validator(simple, registry=Registry())  # which fetches nothing
