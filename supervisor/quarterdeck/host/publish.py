"""How tools are shown to MCP clients: a server's whole definition under its qualified name, a native tool's own form.

No I/O.  Nothing of a definition is interpreted but its name.  What a client's protocol revision forbids is shown in a
plainer form: a client refuses a whole list for one bad tool.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from mcp_types import methods
from pydantic import ValidationError

from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_depth
from quarterdeck_protocol.tools import ToolDescriptor


def native_form(descriptor: ToolDescriptor) -> dict[str, object]:
    """The tool object: what a model is told of the tool, what a person is shown, and what a client may assume.

    Source: MCP specification, "Tools", section Tool; `ToolAnnotations` in its schema.
    """
    form: dict[str, object] = {
        "name": descriptor.name,
        "description": descriptor.description,
        "inputSchema": dict(descriptor.parameters),
    }
    if descriptor.title:
        form["title"] = descriptor.title
    if (hints := descriptor.hints) is not None:
        form["annotations"] = {
            "readOnlyHint": hints.read_only,
            "destructiveHint": hints.destructive and not hints.read_only,
            "idempotentHint": hints.idempotent,
            "openWorldHint": hints.open_world,
        }
    return form


MAX_DEFINITION_DEPTH: Final = 240
"""Nesting of one definition; a list adds a few levels, and serialisers stop at 256."""

Shown = dict[str, object]

_HEADER_MARK: Final = b"x-mcp-header"
_ENVELOPE: Final = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

_logger = logging.getLogger(__name__)


class Catalog:
    """The published form of a box's tools; each is built once per protocol revision, while its descriptor lives."""

    def __init__(self, *, portable_schemas: bool = False) -> None:
        self._portable = portable_schemas
        self._known: dict[str, dict[str, tuple[ToolDescriptor, Shown | None]]] = {}

    def publish(self, descriptors: Sequence[ToolDescriptor], version: str) -> list[Shown]:
        """The tools as a client of `version` is shown them, in the box's order; what cannot be shown is left out."""
        old = self._known.get(version, {})
        known: dict[str, tuple[ToolDescriptor, Shown | None]] = {}
        for descriptor in descriptors:
            before = old.get(descriptor.name)
            is_known = before is not None and _is_same(before[0], descriptor)
            shown = before[1] if before is not None and is_known else self._show(descriptor, version)
            known.setdefault(descriptor.name, (descriptor, shown))
        self._known[version] = known
        return [shown for _, shown in known.values() if shown is not None]

    def header_schema(
        self, descriptors: Sequence[ToolDescriptor], name: str, version: str
    ) -> Mapping[str, object] | None:
        """The input schema of a tool that mirrors arguments into HTTP headers, None for every other tool."""
        found = next((each for each in descriptors if each.name == name), None)
        if found is None or found.definition is None or _HEADER_MARK not in found.definition:
            return None
        shown = next((tool for tool in self.publish(descriptors, version) if tool["name"] == name), {})
        schema = shown.get("inputSchema")
        return schema if isinstance(schema, dict) else None

    def _show(self, descriptor: ToolDescriptor, version: str) -> Shown | None:
        for form, shown in forms(descriptor, portable_schemas=self._portable):
            if is_valid(shown, version):
                if form:
                    _logger.warning("the tool %s is shown %s to clients of %s", descriptor.name, form, version)
                return shown
        _logger.warning("the tool %s cannot be shown to clients of %s", descriptor.name, version)
        return None


def mirroring_names(descriptors: Sequence[ToolDescriptor]) -> frozenset[str]:
    """The names of the tools of which arguments may be mirrored into HTTP headers."""
    return frozenset(each.name for each in descriptors if each.definition and _HEADER_MARK in each.definition)


def is_valid(tool: Shown, version: str) -> bool:
    """Whether a client of `version` accepts a list with this tool in it."""
    try:
        methods.validate_server_result("tools/list", version, {"tools": [tool], **_ENVELOPE})
    except (ValidationError, ValueError):
        return False
    return True


def forms(descriptor: ToolDescriptor, *, portable_schemas: bool = False) -> Iterator[tuple[str, Shown]]:
    """The forms in which a tool can be shown, best first, each with what is wrong with it (nothing for the first)."""
    plain = native_form(descriptor)
    if descriptor.definition is None:
        yield "", plain
        return
    try:
        tool = _whole(descriptor.definition)
    except BodyError as error:
        yield f"without its definition, which is {error},", plain
        return
    tool["name"] = descriptor.name
    if portable_schemas:
        tool["inputSchema"] = plain["inputSchema"]
    yield "", tool
    # A 2026-07-28 server may describe output that is not an object; earlier clients refuse to read of it.
    yield "without its output schema", {key: value for key, value in tool.items() if key != "outputSchema"}
    yield "without its definition, which is invalid,", plain


def _is_same(known: ToolDescriptor, descriptor: ToolDescriptor) -> bool:
    """Whether the form of `known` is that of `descriptor`."""
    if known is descriptor:
        return True
    # Each client has native tools of its own, all alike; to compare what a server wrote takes time of its choosing.
    return descriptor.hints is not None and descriptor.definition is None and known == descriptor


def _whole(definition: bytes) -> Shown:
    check_depth(definition, MAX_DEFINITION_DEPTH)
    try:
        tool = msgspec.json.decode(definition, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BodyError("not one JSON object", error) from None
    return tool
