"""Compare the headers of an HTTP request of 2026-07-28 with its body, whose parts they repeat.  Pure.

Proxies route by them: where the two disagree, a request would be judged as one thing and carried out as another.
Source: 2026-07-28, basic/transports, "Standard Headers" and "Custom Headers" (SEP-2243).
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from quarterdeck_protocol.mcp.jsonrpc import ClientMessage

from .methods import HEADER_MISMATCH, NAMED_BY
from .requests import VERSION_KEY, Params, Refused

MARK: Final = "x-mcp-header"
"""The member of a property's schema that names the header which repeats it."""

PREFIX: Final = "mcp-param-"

_SENTINEL: Final = re.compile(r"=\?base64\?(.*)\?=")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_DECIMAL: Final = re.compile(r"(-?[0-9]+)(?:\.0+)?")
_ONE: Final = frozenset(
    [
        "items",
        "contains",
        "unevaluatedItems",
        "additionalProperties",
        "propertyNames",
        "unevaluatedProperties",
        "not",
        "if",
        "then",
        "else",
        "contentSchema",
    ]
)
_MANY: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED: Final = frozenset({"patternProperties", "dependentSchemas", "$defs", "definitions"})
"""The keywords of JSON Schema 2020-12 that hold schemas: one, a list, or by names."""


def check_standard(message: ClientMessage, headers: Mapping[str, str], params: Params) -> None:
    """Check the headers that every request has.

    Raises:
        Refused: one disagrees with the body.
    """
    meta = _decoded(params.meta)
    version = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
    if version is None or headers.get("mcp-protocol-version") != version:
        raise _mismatch("mcp-protocol-version header does not match the request envelope's protocol version")
    if headers.get("mcp-method") != message.method:
        raise _mismatch("mcp-method header does not match the request body's method")
    if (member := NAMED_BY.get(str(message.method))) is not None:
        name = _decoded(params.uri if member == "uri" else params.name)
        if name is not None and decode_value(headers.get("mcp-name", "")) != name:
            raise _mismatch(f"mcp-name header does not match the request body's {member!r} parameter")


def check_mirrored(schema: object, arguments: bytes, headers: Sequence[tuple[str, str]]) -> None:
    """Check the headers that repeat arguments of a tool.

    Args:
        schema: of the tool's input; one whose marks are wrong is not checked, since clients drop such tools.
        arguments: of the call, one JSON object.
        headers: of the request, names in lower case.

    Raises:
        Refused: one disagrees with the arguments.
    """
    if (marked := marked_properties(schema)) is None:
        return
    given = _decoded(Raw(arguments))
    for path, token, kind in marked:
        values = [value for name, value in headers if name == f"{PREFIX}{token.lower()}"]
        value, header, argument = _at(given, path), f"Mcp-Param-{token}", ".".join(path)
        if len(values) > 1:
            raise _mismatch(f"{header} header appears more than once")
        rendered = _rendered(value)
        if rendered is None:
            if values:
                what = "is absent" if value is None else "has no header form"
                raise _mismatch(f"{header} header is present but the request body's {argument!r} argument {what}")
        elif not values:
            raise _mismatch(f"{header} header is missing but the request body's {argument!r} argument is present")
        elif (said := decode_value(values[0])) is None:
            raise _mismatch(f"{header} header carries a malformed base64 sentinel value")
        elif said != rendered and not (kind == "integer" and _are_equal(said, value)):
            raise _mismatch(f"{header} header does not match the request body's {argument!r} argument")


def decode_value(value: str) -> str | None:
    """Return what a header says; None where its base64 form is broken."""
    if (found := _SENTINEL.fullmatch(value)) is None:
        return value
    try:
        decoded = base64.b64decode(found[1], validate=True)
        # Only the canonical form: of two spellings one could pass where the other is looked for.
        return decoded.decode() if base64.b64encode(decoded).decode() == found[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None


def marked_properties(schema: object) -> list[tuple[tuple[str, ...], str, str]] | None:
    """Return path, token and type of each property that a header repeats; None where a mark is wrong."""
    found: dict[str, tuple[tuple[str, ...], str, str]] = {}
    for path, each in _positions(schema):
        if MARK not in each:
            continue
        token, kind = each[MARK], each.get("type")
        if not path or not isinstance(token, str) or not _TOKEN.fullmatch(token) or token.lower() in found:
            return None
        if kind not in ("string", "integer", "boolean"):
            return None
        found[token.lower()] = path, token, str(kind)
    return list(found.values())


def _positions(root: object) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Each schema with its path of properties; None for one that is reached in another way."""
    stack: list[tuple[tuple[str, ...] | None, object]] = [((), root)]
    while stack:
        path, node = stack.pop()
        if not isinstance(node, dict):
            continue
        yield path, node
        for keyword, value in node.items():
            if keyword == "properties" and isinstance(value, dict):
                stack += [(None if path is None else (*path, name), inner) for name, inner in value.items()]
            elif keyword in _ONE:
                stack.append((None, value))
            elif keyword in _MANY and isinstance(value, list):
                stack += [(None, inner) for inner in value]
            elif keyword in _NAMED and isinstance(value, dict):
                stack += [(None, inner) for inner in value.values()]


def _at(node: object, path: Sequence[str]) -> object:
    for name in path:
        node = node.get(name) if isinstance(node, dict) else None
    return node


def _rendered(value: object) -> str | None:
    """The header form of an argument; None for one that has none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        return str(value) if isinstance(value, str | int | float) else None
    except ValueError:  # too many digits
        return None


def _are_equal(said: str, value: object) -> bool:
    """Whether a header says the same number in another spelling: 42 is 42.0."""
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not isinstance(value, int | float) or not is_whole:
        return False
    return (found := _DECIMAL.fullmatch(said)) is not None and len(found[1]) < 4_300 and int(found[1]) == int(value)


def _decoded(raw: Raw) -> Any:
    try:
        return msgspec.json.decode(raw) if raw else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _mismatch(message: str) -> Refused:
    return Refused(HEADER_MISMATCH, message)
