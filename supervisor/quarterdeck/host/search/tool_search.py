"""`search_tools` and `call_tool`: how a client finds and calls what it is not shown.

Above it the lists and calls of the host, which put these two in the place of all tools; below it the index.  A call by
`call_tool` becomes the call of the tool that it names before anything looks at it, so that it is granted, recorded,
told of, asked about and cancelled as any other.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from quarterdeck.common.shielding import carried_through
from quarterdeck.host.offers.publish import Catalog, Shown, is_same_form
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import MAX_LINE_BYTES, BodyError, check_object
from quarterdeck_protocol.mcp.server.requests import Request
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

_LOOKED_AT: Final = 3
"""Times as many as are wanted: so many definitions are made ready at most, where some cannot be shown."""

_MAX_SERVERS_NAMED: Final = 30

_NOT_FOR_MODELS: Final = frozenset({"icons", "_meta"})
"""Members of a definition that are left out of an answer: pictures, and what programs tell one another."""


class ToolSearch:
    """What finds tools for the clients of one host."""

    def __init__(self, *, portable_schemas: bool = False) -> None:
        self._portable = portable_schemas
        self._index: ToolIndex | None = None
        self._forms: dict[tuple[str, str], tuple[ToolDescriptor, Shown | None]] = {}
        self._asking = asyncio.Lock()

    async def answer(
        self,
        arguments: bytes,
        box: ToolSource,
        client: Client,
        version: str,
        *,
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> str | ProtocolFault:
        """What `search_tools` answers to these arguments, one JSON object as a text.

        Args:
            arguments: as the client sent them, one JSON object.
            box: all tools of its deck; those that it may not use are not found.
            client: who asks.
            version: the protocol revision that it speaks, in which definitions are shown.
            max_bytes: of the definitions; never more than `MAX_ANSWER_BYTES`.
        """
        try:
            asked = _search.decode(arguments)
        except msgspec.DecodeError as error:
            return _bad(f"{SEARCH_TOOLS} takes a query and a limit: {plain_words(error)}")
        try:
            ranked = await self._ranked(asked.query, tuple(box.descriptors()))
        except ProtocolFault as fault:
            return fault
        present = {tool.name: tool for tool in box.descriptors()}  # some may be gone, or held, since it was asked

        def server_of(tool: ToolDescriptor) -> str | None:
            own = box.own(tool.name)
            is_there = tool.name in present and is_same_form(tool, present[tool.name]) and client.allows(own)
            return own.partition(QUALIFIER)[0] if is_there else None

        found = shared_out(ranked, asked.limit, server_of, partial(self._form, version))
        return _answer_text(found, min(max_bytes, MAX_ANSWER_BYTES))

    async def _ranked(self, question: str, tools: tuple[ToolDescriptor, ...]) -> list[ToolDescriptor]:
        """The tools that fit a question, best first.

        In a thread, since ten thousand tools take a while; one at a time, though a client gives up.
        """
        async with self._asking:
            return await carried_through(partial(asyncio.to_thread, self._rank, question, tools))

    def _rank(self, question: str, tools: tuple[ToolDescriptor, ...]) -> list[ToolDescriptor]:
        from .index import ToolIndex  # SQLite, for the first that searches

        index = self._index
        if index is None or not _are_same(index.tools, tools):
            index = self._index = ToolIndex(tools)
            self._forms = {}
        return index.ranked(question)

    def _form(self, version: str, tool: ToolDescriptor) -> Shown | None:
        """A definition as clients of a protocol revision are shown it; None where they cannot be."""
        known, form = self._forms.get((version, tool.name), (None, None))
        if known is None or not is_same_form(known, tool):
            published = Catalog(portable_schemas=self._portable).publish([tool], version)
            form = published[0] if published else None
            self._forms[version, tool.name] = tool, form
        return form


def shared_out(
    ranked: Iterable[ToolDescriptor],
    limit: int,
    server_of: Callable[[ToolDescriptor], str | None],
    form_of: Callable[[ToolDescriptor], Shown | None],
) -> list[Shown]:
    """The best of these tools as they are shown, of which one server has no more than four of five.

    What else fits of a server's comes in where the others have less: a server whose definitions were written to be
    found by every question keeps no other's out of an answer.

    Args:
        ranked: best first.
        limit: how many are wanted.
        server_of: whose a tool is; None for one that is not to be found.
        form_of: the form of a tool; None where it cannot be shown.
    """
    most, places = max(1, limit * 4 // 5), Counter[str]()
    taken: list[tuple[int, Shown]] = []
    spare: list[tuple[int, ToolDescriptor]] = []
    forms_left = limit * _LOOKED_AT
    for rank, tool in enumerate(ranked):
        if len(taken) == limit or not forms_left:
            break
        if (server := server_of(tool)) is None:
            continue
        if places[server] == most:
            spare.append((rank, tool))
            continue
        # Also for one that cannot be shown: a server with many of those would use up all looks.
        places[server] += 1
        forms_left -= 1
        if (form := form_of(tool)) is not None:
            taken.append((rank, form))
    made = ((rank, form_of(tool)) for rank, tool in spare[:forms_left])
    more = islice(((rank, form) for rank, form in made if form is not None), limit - len(taken))
    return [form for _, form in sorted([*taken, *more], key=itemgetter(0))]


def two_tools(tools: Sequence[ToolDescriptor]) -> Sequence[ToolDescriptor]:
    """The two tools that a client is shown in place of these, described by whose these are.

    The same tuple while they are those of the same servers.
    """
    servers = dict.fromkeys(tool.name.partition(QUALIFIER)[0] for tool in tools if QUALIFIER in tool.name)
    return _two_tools(tuple(servers), has_native=any(QUALIFIER not in tool.name for tool in tools))


def unwrapped(request: Request) -> Request | ProtocolFault:
    """The request, or that of the tool which a `call_tool` names; a fault where it names none."""
    if request.method != "tools/call" or request.name != CALL_TOOL:
        return request
    try:
        call = _raw_call.decode(request.arguments)
        check_object(bytes(call.arguments), max_bytes=MAX_LINE_BYTES)
    except (msgspec.DecodeError, BodyError) as error:
        return _bad(
            f"{CALL_TOOL} takes the name of a tool, and arguments, one object as that tool's inputSchema describes it: "
            f"{plain_words(error)}"
        )
    return msgspec.structs.replace(request, name=call.name, arguments=bytes(call.arguments))


class _Search(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    query: str
    limit: int = DEFAULT_LIMIT

    def __post_init__(self) -> None:
        if not 1 <= len(self.query) <= MAX_QUESTION_CHARS:
            raise ValueError(f"the query is 1 to {MAX_QUESTION_CHARS:,} characters long")
        if not 1 <= self.limit <= MAX_LIMIT:
            raise ValueError(f"the limit is 1 to {MAX_LIMIT}")


class _RawCall(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str
    arguments: Raw = Raw(b"{}")


_search: Final = msgspec.json.Decoder(_Search)
_raw_call: Final = msgspec.json.Decoder(_RawCall)


def _answer_text(found: Sequence[Shown], max_bytes: int) -> str:
    """The answer; of definitions that are too long together the longest are left out, whoever wrote them."""
    if not found:
        return '{"tools":[],"note":"no tool has these words: try others, or the name of a server"}'
    definitions = [
        msgspec.json.encode({key: value for key, value in tool.items() if key not in _NOT_FOR_MODELS}) for tool in found
    ]
    shown = dict(enumerate(definitions))
    for rank in sorted(shown, key=lambda rank: (len(definitions[rank]), rank), reverse=True):
        if sum(map(len, shown.values())) <= max_bytes:
            break
        del shown[rank]
    left_out = [tool["name"] for rank, tool in enumerate(found) if rank not in shown]
    answer: dict[str, object] = {"tools": [Raw(each) for each in shown.values()]}
    if left_out:
        answer["note"] = "left out, for the answer would be too long; ask for each by its name"
        answer["left_out"] = left_out
    return msgspec.json.encode(answer).decode()


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
