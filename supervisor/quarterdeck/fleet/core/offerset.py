"""Parse a server's list of prompts, resources or templates into what may be shown. Pure.

An item that cannot be shown is left out with a warning. Items are judged by the strictest clients' rules, because these
refuse a whole list for one bad item of one server.
"""

import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw

from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.mcp.client.notes import MAX_URI_CHARS
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_depth
from quarterdeck_protocol.names import is_tool_name
from quarterdeck_protocol.offers import Listing, Offered
from quarterdeck_protocol.plain_words import plain_words

from .toolset import MAX_DEFINITION_BYTES, MAX_DEFINITION_DEPTH, Parsed, ToolsetError

MAX_EXPRESSIONS: Final = 32
"""Expressions of a template: each is a wildcard when URIs are matched."""

MAX_TEMPLATES: Final = 500
"""Templates of one server: an unlisted URI is matched against each of them."""

MAX_WARNINGS: Final = 20
"""Told one by one; of the rest their number."""


class _Item(msgspec.Struct):
    """Members of all items, with the types that clients insist on."""

    name: str
    title: str | None = None
    description: str | None = None
    icons: list[Raw] | None = None
    meta: dict[str, Raw] | None = msgspec.field(name="_meta", default=None)


class _Argument(msgspec.Struct):
    name: str
    description: str | None = None
    required: bool | None = None


class _Prompt(_Item):
    arguments: list[_Argument] | None = None


class _Resource(_Item, kw_only=True):
    uri: str
    mimeType: str | None = None  # noqa: N815 - the wire's name
    size: float | None = None
    annotations: dict[str, Raw] | None = None


class _Template(_Item, kw_only=True):
    uriTemplate: str  # noqa: N815
    mimeType: str | None = None  # noqa: N815
    annotations: dict[str, Raw] | None = None


def parse_offers(
    config: ServerConfig, listing: Listing, body: bytes, is_wanted: Callable[[], bool] = lambda: True
) -> Parsed[Offered]:
    """Return what may be shown of any list but the tools'. `is_wanted` is asked before each item whether to go on.

    Raise ToolsetError if `body` is no JSON array, or is not read to its end.
    """
    what = listing.noun
    try:
        rows = _rows.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ToolsetError(f"the list of {what} is not a list: {plain_words(error)}") from None
    found: dict[str, Offered] = {}
    warnings: list[str] = []
    left_out = 0
    for index, row in enumerate(rows):
        if not is_wanted():
            raise ToolsetError(f"its {len(rows):,} {what} take too long to read")
        problem, offered = read_offer(config.id, listing, bytes(row))
        if offered is not None and offered.key in found:
            problem = f"{offered.key[:80]!r} is listed already"
        elif listing is Listing.TEMPLATES and len(found) >= MAX_TEMPLATES:
            problem = f"it has {MAX_TEMPLATES} templates already"
        if problem:
            left_out += 1
            if left_out <= MAX_WARNINGS:
                warnings.append(f"item {index + 1} of the {what} of {config.id} is left out: {problem}")
        elif offered is not None:
            found[offered.key] = offered
    if left_out > MAX_WARNINGS:
        warnings.append(f"{left_out - MAX_WARNINGS:,} more of the {what} of {config.id} are left out")
    return Parsed(tuple(found.values()), tuple(warnings))


def read_offer(server: str, listing: Listing, row: bytes) -> tuple[str, Offered | None]:
    """Return what one object offers, or why it cannot be shown."""
    if len(row) > MAX_DEFINITION_BYTES:
        return f"its definition has {len(row):,} bytes", None
    try:
        row.decode()
        check_depth(row, MAX_DEFINITION_DEPTH)
        msgspec.json.decode(row)
        item = _decoders[listing].decode(row)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, BodyError) as error:
        return f"its definition is broken: {plain_words(error)}", None
    match item:
        case _Prompt(name=name):
            if not is_tool_name(name):
                return f"{name[:80]!r} is not a name (1 to 128 of A-Z a-z 0-9 _ . -)", None
            return "", Offered(server, listing, name, row, name)
        case _Resource(uri=uri):
            problem, key = uri_problem(uri), uri
        case _Template(uriTemplate=key):
            problem = template_problem(key)
    return (problem, None) if problem else ("", Offered(server, listing, key, row, key))


def uri_problem(uri: str) -> str:
    """Return why clients cannot be shown this URI; empty if they can."""
    if len(uri) > MAX_URI_CHARS:
        return f"its URI has {len(uri):,} characters"
    if _URI.fullmatch(uri) is None:
        return f"{uri[:80]!r} is not a URI"
    try:
        parts = urlsplit(uri)
        is_whole = parts.scheme not in _WITH_HOST or bool(parts.hostname)
        _ = parts.port
    except ValueError:
        is_whole = False
    return "" if is_whole else f"{uri[:80]!r} is not a URI"


def template_problem(template: str) -> str:
    """Return why clients cannot be shown this URI template; empty if they can."""
    if len(template) > MAX_URI_CHARS:
        return f"its template has {len(template):,} characters"
    if _TEMPLATE.fullmatch(template) is None:
        return f"{template[:80]!r} is not a template of URIs"
    if template.count("{") > MAX_EXPRESSIONS:
        return f"its template has more than {MAX_EXPRESSIONS} expressions"
    return ""


_CONTROLS: Final = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
_URI: Final = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*+:[^{_CONTROLS}]++")
_TEMPLATE: Final = re.compile(rf"(?:[^{_CONTROLS}{{}}]|\{{[^{_CONTROLS}{{}}]++\}})++")
_WITH_HOST: Final = frozenset({"http", "https", "ws", "wss", "ftp"})
_rows: Final = msgspec.json.Decoder(list[Raw])
_decoders: Final[dict[Listing, msgspec.json.Decoder[Any]]] = {
    Listing.PROMPTS: msgspec.json.Decoder(_Prompt),
    Listing.RESOURCES: msgspec.json.Decoder(_Resource),
    Listing.TEMPLATES: msgspec.json.Decoder(_Template),
}


# What a server says that it has


def promised(capabilities: bytes) -> frozenset[Listing]:
    """The lists, but the tools', that a server with these capabilities, one JSON object, has."""
    has = _said(capabilities)
    return frozenset(listing for listing, name in _CAPABILITIES.items() if name in has)


def has_capability(capabilities: bytes, name: str) -> bool:
    """Whether a server says that it can do this."""
    return name in _said(capabilities)


def subscribes(capabilities: bytes) -> bool:
    """Whether a server says that it tells when a resource changes."""
    try:
        return _members.decode(_said(capabilities).get("resources", b"{}")).get("subscribe") == _TRUE
    except msgspec.DecodeError:
        return False


def _said(capabilities: bytes) -> dict[str, Raw]:
    """Return each capability that is not null: some servers serialise every absent one."""
    return {name: flags for name, flags in _members.decode(capabilities).items() if flags != _NULL}


_CAPABILITIES: Final = {Listing.PROMPTS: "prompts", Listing.RESOURCES: "resources", Listing.TEMPLATES: "resources"}
_members: Final = msgspec.json.Decoder(dict[str, Raw])
_TRUE: Final = Raw(b"true")
_NULL: Final = Raw(b"null")
