"""Whether the keywords of one schema have values of the kind that draft 2020-12 asks for.

What its meta-schema says of a single node, as a table; `outside` walks the nodes.  Pure, and without recursion where
the meta-schema recurses.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from quarterdeck_protocol.schema.canonical import TYPES, JsonValue, Schema


def misshapen(node: Schema) -> Iterator[str]:
    """The keywords of a schema whose values are of the wrong kind, in the order in which they stand."""
    for keyword, value in node.items():
        is_fine = _SHAPES.get(keyword)
        if is_fine is not None and not is_fine(value):
            yield keyword


def _is_text(value: JsonValue) -> bool:
    return isinstance(value, str)


def _is_flag(value: JsonValue) -> bool:
    return isinstance(value, bool)


def _is_list(value: JsonValue) -> bool:
    return isinstance(value, list)


def _is_schema(value: JsonValue) -> bool:
    return isinstance(value, dict | bool)


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_positive(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _is_count(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and value == value // 1


def _are_schemas(value: JsonValue) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_schema, value))


def _map_to_schemas(value: JsonValue) -> bool:
    return isinstance(value, dict) and all(map(_is_schema, value.values()))


def _are_names(value: JsonValue) -> bool:
    return isinstance(value, list) and all(map(_is_text, value)) and len({*map(str, value)}) == len(value)


def _map_to_names(value: JsonValue) -> bool:
    return isinstance(value, dict) and all(map(_are_names, value.values()))


def _is_type(value: JsonValue) -> bool:
    kinds = value if isinstance(value, list) else [value]
    known = [kind for kind in kinds if isinstance(kind, str) and kind in TYPES]
    return bool(known) and len(known) == len(kinds) == len({*known})


def _is_id(value: JsonValue) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[^#]*#?", value) is not None


def _is_anchor(value: JsonValue) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z_][-A-Za-z0-9._]*", value) is not None


_SHAPES: Final[Mapping[str, Callable[[JsonValue], bool]]] = {
    "type": _is_type,
    "enum": _is_list,
    "required": _are_names,
    "dependentRequired": _map_to_names,
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"), _map_to_schemas),
    **dict.fromkeys(("items", "additionalProperties", "propertyNames", "contains"), _is_schema),
    **dict.fromkeys(("not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties"), _is_schema),
    **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), _are_schemas),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("minContains", "maxContains"), _is_count),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    "multipleOf": _is_positive,
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _is_flag),
    **dict.fromkeys(
        ("title", "description", "format", "pattern", "$ref", "$dynamicRef", "$schema", "$comment"), _is_text
    ),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), _is_text),
    "contentSchema": _is_schema,
    "examples": _is_list,
    "$id": _is_id,
    "$anchor": _is_anchor,
    "$dynamicAnchor": _is_anchor,
}
"""The vocabularies of draft 2020-12.  A list for `items`, as older drafts had it, is none of its forms."""
