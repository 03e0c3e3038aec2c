"""Parse a server's tool list into tools that may be shown; others are left out with a warning. Pure."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Generic, TypeVar
from weakref import WeakValueDictionary

import msgspec

from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.contract import RemoteTool
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_depth
from quarterdeck_protocol.names import RemoteToolRef, is_tool_name, qualify_tool_name
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.schema.portable import portable_schema
from quarterdeck_protocol.tools import ToolDescriptor

MAX_DEFINITION_BYTES: Final = 1024 * 1024
"""Bytes of one tool object; a larger one would fill most of a model's context by itself."""


MAX_DEFINITION_DEPTH: Final = 500
"""Levels of nesting: what is deeper cannot be judged, and is not shown."""


class ToolsetError(ValueError):
    """The list is not a list of objects."""


T = TypeVar("T")


class Parsed(msgspec.Struct, Generic[T], frozen=True):
    """A list as far as it may be shown, in the server's order, and what was left out and why."""

    items: tuple[T, ...] = ()
    warnings: tuple[str, ...] = ()


class _Definition(msgspec.Struct):
    name: str
    description: str | None = None
    inputSchema: object = None  # noqa: N815 - the wire's name


def parse_tools(config: ServerConfig, body: bytes, is_wanted: Callable[[], bool] = lambda: True) -> Parsed[RemoteTool]:
    """Return the tools that may be shown. `is_wanted` is asked before each tool, whose schema can take a tenth of a
    second.

    Raise ToolsetError if `body` is no JSON array, or is not read to its end.
    """
    try:
        rows = _rows.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ToolsetError(f"the list of tools is not a list: {plain_words(error)}") from None
    tools: dict[str, RemoteTool] = {}
    warnings: list[str] = []
    for index, row in enumerate(rows):
        if not is_wanted():
            raise ToolsetError(f"its {len(rows):,} tools take too long to read")
        problem, tool = read_tool(config.id, bytes(row))
        if tool is None:
            warnings.append(f"tool {index + 1} of {config.id} is left out: {problem}")
        elif tool.ref.name in tools:
            warnings.append(f"tool {index + 1} of {config.id} is left out: {tool.ref.name!r} is listed already")
        elif config.tools.admits(tool.ref.name):
            tools[tool.ref.name] = tool
    return Parsed(tuple(tools.values()), tuple(warnings))


def read_tool(server: str, row: bytes) -> tuple[str, RemoteTool | None]:
    """The tool of one object, or why it cannot be shown."""
    if len(row) > MAX_DEFINITION_BYTES:
        return f"its definition has {len(row):,} bytes", None
    if (known := _known.get(row)) is not None:
        # The servers of one program list the same, and share what came of reading it.
        ref = RemoteToolRef(server, known.ref.name)
        return "", RemoteTool(ref, replace(known.descriptor, name=qualify_tool_name(ref)))
    try:
        row.decode()
        check_depth(row, MAX_DEFINITION_DEPTH)
        # Whole, and once: what cannot be read could not be judged either.
        definition = msgspec.convert(msgspec.json.decode(row), _Definition)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, BodyError) as error:
        return f"its definition is broken: {plain_words(error)}", None
    if not is_tool_name(definition.name):
        return f"{definition.name[:80]!r} is not a tool name (1 to 128 of A-Z a-z 0-9 _ . -)", None
    ref = RemoteToolRef(server, definition.name)
    descriptor = ToolDescriptor(
        name=qualify_tool_name(ref),
        description=definition.description or "",
        parameters=portable_schema(definition.inputSchema),
        definition=row,
    )
    tool = _known[row] = RemoteTool(ref, descriptor)
    return "", tool


_known: Final[WeakValueDictionary[bytes, RemoteTool]] = WeakValueDictionary()
"""Tools in use, by their definitions."""

_rows: Final = msgspec.json.Decoder(list[msgspec.Raw])
