"""How tools are shown to MCP clients: the server's whole definition under its qualified name.  No I/O.

Nothing of a definition is interpreted but its name and the one member that promises tasks, which are not bridged.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from quarterdeck_protocol.jsonrpc import BodyError, check_depth
from quarterdeck_protocol.tools import ToolDescriptor

MAX_DEFINITION_DEPTH: Final = 240
"""Nesting of one definition; a list adds a few levels, and serialisers stop at 256: one tool must not spoil all."""

_HEADER_MARK: Final = b"x-mcp-header"

_logger = logging.getLogger(__name__)


class Catalog:
    """The published form of a box's tools, each built once for as long as its descriptor lives."""

    def __init__(self, *, portable_schemas: bool = False) -> None:
        self._portable = portable_schemas
        self._known: dict[str, tuple[ToolDescriptor, dict[str, object] | None]] = {}

    def publish(self, descriptors: Sequence[ToolDescriptor]) -> list[dict[str, object]]:
        """The tools as a client is shown them, in the box's order; one that cannot be shown is left out."""
        known: dict[str, tuple[ToolDescriptor, dict[str, object] | None]] = {}
        for descriptor in descriptors:
            old = self._known.get(descriptor.name)
            shown = old[1] if old is not None and old[0] is descriptor else self._try(descriptor)
            known.setdefault(descriptor.name, (descriptor, shown))
        self._known = known
        return [shown for _, shown in known.values() if shown is not None]

    def header_schema(self, descriptors: Sequence[ToolDescriptor], name: str) -> Mapping[str, object] | None:
        """The input schema of a tool that mirrors arguments into HTTP headers, None for every other tool."""
        found = next((each for each in descriptors if each.name == name), None)
        if found is None or found.definition is None or _HEADER_MARK not in found.definition:
            return None
        self.publish(descriptors)
        shown = self._known[name][1]
        schema = shown.get("inputSchema") if shown is not None else None
        return schema if isinstance(schema, dict) else None

    def _try(self, descriptor: ToolDescriptor) -> dict[str, object] | None:
        try:
            return published_tool(descriptor, portable_schemas=self._portable)
        except BodyError as error:
            _logger.warning("the tool %s is not shown: its definition is %s", descriptor.name, error)
            return None


def published_tool(descriptor: ToolDescriptor, *, portable_schemas: bool = False) -> dict[str, object]:
    """One tool object for `tools/list`.

    Raises:
        BodyError: the definition is no JSON object, or nested too deeply to be sent.
    """
    if descriptor.definition is None:
        return {
            "name": descriptor.name,
            "description": descriptor.description,
            "inputSchema": dict(descriptor.parameters),
        }
    check_depth(descriptor.definition, MAX_DEFINITION_DEPTH)
    try:
        tool = msgspec.json.decode(descriptor.definition, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BodyError(f"not one JSON object: {error}") from None
    tool["name"] = descriptor.name
    if portable_schemas:
        tool["inputSchema"] = dict(descriptor.parameters)
    _without_tasks(tool)
    return tool


def _without_tasks(tool: dict[str, object]) -> None:
    """Take back the promise of tasks; the word `forbidden` says what holds here and stays."""
    execution = tool.get("execution")
    if not isinstance(execution, dict) or execution.get("taskSupport", "forbidden") == "forbidden":
        return
    kept = {key: value for key, value in execution.items() if key != "taskSupport"}
    if kept:
        tool["execution"] = kept
    else:
        del tool["execution"]
