"""`search_tools` and `call_tool`: how a client finds and calls what it is not shown.

Above it the lists and calls of the host, which put these two in the place of all tools; below it the index.  A call by
`call_tool` becomes the call of the tool that it names before anything looks at it, so that it is granted, recorded,
told of, asked about and cancelled as any other.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from quarterdeck.host.offers.publish import Catalog, Shown, is_same_form
from quarterdeck.host.offers.sources import ForwardingSource
from quarterdeck.host.raw_calls import MAX_LINE_BYTES, WireRequest
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_object
from quarterdeck_protocol.names import QUALIFIER
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.tools import (
    Client,
    ToolDescriptor,
    ToolHints,
    ToolSource,
)

from .words import MAX_QUESTION_CHARS

if TYPE_CHECKING:
    from .index import ToolIndex

SEARCH_TOOLS: Final = "search_tools"

CALL_TOOL: Final = "call_tool"

DEFAULT_LIMIT: Final = 5

MAX_LIMIT: Final = 20

MAX_ANSWER_BYTES: Final = 128 * 1024
"""Of the definitions of one answer; of what goes beyond it the name is told."""

_MAX_SERVERS_NAMED: Final = 30

_NOT_FOR_MODELS: Final = frozenset({"icons", "_meta"})
"""Members of a definition that are left out of an answer: pictures, and what programs tell one another."""


class ToolSearch:
    """What finds tools for the clients of one host."""

    def __init__(self, *, portable_schemas: bool = False) -> None:
        self._catalog = Catalog(portable_schemas=portable_schemas)
        self._index: ToolIndex | None = None
        self._building = asyncio.Lock()

    async def answer(
        self,
        arguments: Mapping[str, object],
        box: ToolSource,
        client: Client,
        version: str,
    ) -> str | ProtocolFault:
        """What `search_tools` answers to these arguments, one JSON object as a text.

        Args:
            arguments: as the client sent them.
            box: all tools of its deck; those that it may not use are not found.
            client: who asks.
            version: the protocol revision that it speaks, in which definitions are shown.
        """
        try:
            asked = msgspec.convert(arguments, _Search)
        except msgspec.ValidationError as error:
            return _bad(f"{SEARCH_TOOLS} takes a query and a limit: {plain_words(error)}")
        tools = box.descriptors()
        index = await self._index_of(tools)
        allowed = (tool for tool in index.ranked(asked.query) if client.allows(box.own(tool.name)))
        found = list(islice(allowed, asked.limit))
        shown = {str(tool["name"]): tool for tool in self._catalog.publish(tools, version, only=found)}
        return _answer_text([shown[tool.name] for tool in found if tool.name in shown])

    async def _index_of(self, tools: Sequence[ToolDescriptor]) -> "ToolIndex":
        """The index of these tools, made anew when they are others than before."""
        async with self._building:
            index = self._index
            if index is None or not _are_same(index.tools, tools):
                index = self._index = await asyncio.to_thread(_build, tuple(tools))
            return index


class SearchedTools(ForwardingSource):
    """The two tools that a client is shown in place of those of a source, which are described by whose those are."""

    def descriptors(self) -> Sequence[ToolDescriptor]:
        """The two; the same tuple while the tools are those of the same servers."""
        names = [tool.name for tool in self._source.descriptors()]
        servers = dict.fromkeys(name.partition(QUALIFIER)[0] for name in names if QUALIFIER in name)
        return _two_tools(tuple(servers), has_native=len(names) > sum(QUALIFIER in name for name in names))


def unwrapped(request: WireRequest) -> WireRequest | None:
    """The request, or that of the tool which a `call_tool` names; None when only the session can answer it."""
    if request.method != "tools/call" or request.name not in (CALL_TOOL, SEARCH_TOOLS):
        return request
    if request.name == SEARCH_TOOLS:
        return None
    try:
        call = _raw_call.decode(request.arguments)
        check_object(bytes(call.arguments), max_bytes=MAX_LINE_BYTES)
    except (msgspec.DecodeError, BodyError):
        return None
    return msgspec.structs.replace(request, name=call.name, arguments=bytes(call.arguments))


def unwrapped_call(name: str, arguments: Mapping[str, object]) -> tuple[str, Mapping[str, object]] | ProtocolFault:
    """The same of a call that was read already: a tool's name, and its arguments."""
    if name != CALL_TOOL:
        return name, arguments
    try:
        call = msgspec.convert(arguments, _Call)
    except msgspec.ValidationError as error:
        return _bad(
            f"{CALL_TOOL} takes the name of a tool, and arguments, one object as that tool's inputSchema describes it: "
            f"{plain_words(error)}"
        )
    return call.name, call.arguments


class _Search(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    query: str
    limit: int = DEFAULT_LIMIT

    def __post_init__(self) -> None:
        if not 1 <= len(self.query) <= MAX_QUESTION_CHARS:
            raise ValueError(f"the query is 1 to {MAX_QUESTION_CHARS:,} characters long")
        if not 1 <= self.limit <= MAX_LIMIT:
            raise ValueError(f"the limit is 1 to {MAX_LIMIT}")


class _Call(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str
    arguments: dict[str, object] = {}


class _RawCall(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str
    arguments: Raw = Raw(b"{}")


_raw_call: Final = msgspec.json.Decoder(_RawCall)


def _answer_text(found: Sequence[Shown]) -> str:
    if not found:
        return '{"tools":[],"note":"no tool has these words: try others, or the name of a server"}'
    shown: list[Raw] = []
    left_out: list[object] = []
    size = 0
    for tool in found:
        definition = msgspec.json.encode({key: value for key, value in tool.items() if key not in _NOT_FOR_MODELS})
        size += len(definition)
        if size > MAX_ANSWER_BYTES:
            size -= len(definition)
            left_out.append(tool["name"])
        else:
            shown.append(Raw(definition))
    answer: dict[str, object] = {"tools": shown}
    if left_out:
        answer["note"] = "left out, for the answer would be too long; ask for each by its name"
        answer["left_out"] = left_out
    return msgspec.json.encode(answer).decode()


def _build(tools: tuple[ToolDescriptor, ...]) -> "ToolIndex":
    from .index import ToolIndex  # SQLite, for the first that searches

    return ToolIndex(tools)


def _are_same(tools: Sequence[ToolDescriptor], others: Sequence[ToolDescriptor]) -> bool:
    """Whether an index of the one is an index of the other: clients have native tools of their own, all alike."""
    return len(tools) == len(others) and all(map(is_same_form, tools, others))


def _bad(message: str) -> ProtocolFault:
    return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, message, "bad_arguments")


@lru_cache(maxsize=64)
def _two_tools(servers: tuple[str, ...], *, has_native: bool) -> tuple[ToolDescriptor, ...]:
    named = [*servers[:_MAX_SERVERS_NAMED]]
    if len(servers) > len(named):
        named.append(f"{len(servers) - len(named)} more servers")
    if has_native:
        named.append("this machine's files and commands")
    whose = f"  There are tools of: {', '.join(named)}." if named else ""
    search = ToolDescriptor(
        SEARCH_TOOLS,
        "Finds tools by what they do: say in a few words what is to be done, or name a tool or its server.  The answer "
        f"holds the whole definitions of those that fit best; {CALL_TOOL} calls them.{whose}",
        {
            "type": "object",
            "properties": {
                "query": {"type": "string", "minLength": 1, "maxLength": MAX_QUESTION_CHARS},
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
        title="Search tools",
        hints=ToolHints(read_only=True, destructive=False, idempotent=True, open_world=False),
    )
    call = ToolDescriptor(
        CALL_TOOL,
        f"Calls a tool that {SEARCH_TOOLS} found, by its name, with arguments as its inputSchema describes them, and "
        "answers what that tool answers.",
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
            "required": ["name"],
            "additionalProperties": False,
        },
        title="Call a tool",
        hints=ToolHints(),
    )
    return search, call
