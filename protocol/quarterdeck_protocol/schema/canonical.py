"""What a tool's schema is to us: normalised, canonical, hashed.

`normalize_schema` is the parity function of the interop bridge; what models are shown is made by module `portable`.
Above: the bridge and the ledger's keys.  Pure and without recursion: a schema is an untrusted server's word and may be
nested far deeper than Python's stack.  Nothing here judges a value by a schema.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from json.encoder import encode_basestring
from typing import Final, TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
Schema: TypeAlias = dict[str, JsonValue]

TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")
"""The values of `type` that JSON Schema knows."""

STRIPPED: Final = frozenset(
    {
        *("$schema", "$id", "$ref", "$defs", "definitions"),  # plumbing of a draft: no provider resolves it
        *("$comment", "deprecated", "readOnly", "writeOnly"),  # remarks that no validator reads
        *("default", "examples"),  # sample data, no constraint
        *("contentEncoding", "contentMediaType"),  # outside the subset that every provider takes
    }
)
"""Keywords that a normalised schema does not have."""


def normalize_schema(value: object) -> Schema:
    """Reshape a server's input schema into the small subset that every provider takes.

    Total: anything that is not an object counts as `{}`, and nesting has no limit. The input, a JSON value, is neither
    changed nor shared. Keys keep their order; missing `type` and `properties` are appended. Recurses into `properties`,
    `items` and `additionalProperties`; every other keyword passes as it is.
    """
    root = _as_node(copy_json(value)) if isinstance(value, dict) else {}
    pending = [root]
    while pending:
        pending.extend(_reshape(pending.pop()))
    return root


def _reshape(node: Schema) -> Iterator[Schema]:
    """Normalise one node in place; yields the subschemas that have yet to be."""
    for keyword in STRIPPED & node.keys():
        del node[keyword]
    kind = declared if (declared := node.get("type")) in TYPES else "object"
    node["type"] = kind
    if kind == "object":
        properties = node.get("properties")
        children = {name: _as_node(child) for name, child in properties.items()} if isinstance(properties, dict) else {}
        node["properties"] = {**children}
        yield from children.values()
        if isinstance(extra := node.get("additionalProperties"), dict):
            yield extra
        if required := declared_names(node.get("required"), children):
            node["required"] = required
        else:
            node.pop("required", None)
    elif kind == "array":
        items = node.get("items")
        if items == []:
            node["items"] = {}
        elif isinstance(items, dict | list):
            child = _as_node(items if isinstance(items, dict) else items[0])
            node["items"] = child
            yield child


def _as_node(value: JsonValue) -> Schema:
    return value if isinstance(value, dict) else {}


def declared_names(required: JsonValue, properties: Iterable[str]) -> list[JsonValue]:
    """What of `required` names a declared property: in order, repetitions included; empty when it is not a list."""
    if not isinstance(required, list):
        return []
    names = frozenset(properties)
    return [name for name in required if isinstance(name, str) and name in names]


def copy_json(value: JsonValue) -> JsonValue:
    """A copy of a JSON value that shares no container with it, however deep it is nested."""
    pending: list[list[JsonValue] | Schema] = []

    def renew(child: JsonValue) -> JsonValue:
        if not isinstance(child, dict | list):
            return child
        fresh = dict(child) if isinstance(child, dict) else list(child)
        pending.append(fresh)
        return fresh

    root = renew(value)
    while pending:
        target = pending.pop()
        if isinstance(target, dict):
            target.update([(key, renew(child)) for key, child in target.items()])
        else:
            target[:] = [renew(child) for child in target]
    return root


def canonical_json(value: object) -> str:
    """Spell a JSON value in one way: keys sorted, arrays in order, nulls kept, no spaces, no avoidable escapes.

    Lone surrogates stay: encode the text with `surrogatepass`. Raises `TypeError` for what is no JSON value.
    """
    return "".join(json_pieces(value))


def json_pieces(value: object) -> Iterator[str]:
    """Yield the canonical JSON of a value in pieces, made as they are taken; raises `TypeError` for what is none."""
    opened = [_spell(value)]
    while opened:
        piece = next(opened[-1], None)
        if piece is None:
            opened.pop()
        elif isinstance(piece, str):
            yield piece
        else:
            opened.append(piece)


def digest(value: object) -> str:
    """Return the SHA-256 of a value's canonical JSON, 64 hex digits; raises `TypeError` for what is no JSON value."""
    return hashlib.sha256(canonical_json(value).encode("utf-8", "surrogatepass")).hexdigest()


_Spelling: TypeAlias = "Iterator[str | _Spelling]"
"""Pieces of text in order, and in their midst the spellings of inner values, not yet begun."""

_encode_scalar: Final = json.JSONEncoder(ensure_ascii=False).encode


def _spell(value: object) -> _Spelling:
    if isinstance(value, Mapping):
        yield "{"
        for index, key in enumerate(sorted(value)):
            yield f"{',' if index else ''}{encode_basestring(key)}:"
            yield _spell(value[key])
        yield "}"
    elif isinstance(value, list | tuple):
        yield "["
        for index, item in enumerate(value):
            if index:
                yield ","
            yield _spell(item)
        yield "]"
    else:
        yield _encode_scalar(value)
