"""Tools by name, groups of them by name, and the box that a session calls.

Knows nothing of servers; a box made here never changes.

The twelve built-in tools by name, and the registry that holds them all.

A tool's module is imported when the tool is first asked for.  Tools hold no state of their own, what they keep belongs
to a context's identity: so one instance serves every session.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import Final

from quarterdeck_protocol.names import MAX_SERVER_ID_CHARS, MAX_TOOL_NAME_CHARS, QUALIFIER, did_you_mean, nearest_tool
from quarterdeck_protocol.tools import CancelToken, ToolBox, ToolCall, ToolDescriptor, ToolOutcome

from .context import ToolContext
from .spec import DefinedTool

_MAX_NAME_CHARS: Final = MAX_SERVER_ID_CHARS + len(QUALIFIER) + MAX_TOOL_NAME_CHARS
"""No tool's name is longer; more of a caller's is neither compared nor repeated."""


class Missing(StrEnum):
    """What a registry was asked for in vain."""

    TOOL = "tool"
    COLLECTION = "collection"


class UnknownToolError(LookupError):
    """A name that the registry does not hold: `missing`, of a tool or of a collection."""

    def __init__(self, kind: Missing, missing: str) -> None:
        super().__init__(f"there is no {kind} called {missing!r}")
        self.kind = kind
        self.missing = missing


class ToolRegistry:
    """Tools in the order of their first registration."""

    def __init__(self) -> None:
        self._tools: dict[str, DefinedTool] = {}
        self._collections: dict[str, tuple[str, ...]] = {}

    def register(self, tool: DefinedTool) -> None:
        """Add `tool`; one of the same name is replaced and its position kept."""
        self._tools[tool.name] = tool

    def register_all(self, tools: Iterable[DefinedTool]) -> None:
        """Add `tools` in their order."""
        for tool in tools:
            self.register(tool)

    def has(self, name: str) -> bool:
        """Whether a tool of this name is registered."""
        return name in self._tools

    def get(self, name: str) -> DefinedTool:
        """The tool of this name.

        Raises:
            UnknownToolError: there is none.
        """
        try:
            return self._tools[name]
        except KeyError:
            raise UnknownToolError(Missing.TOOL, name) from None

    def names(self) -> tuple[str, ...]:
        """All names, in order."""
        return tuple(self._tools)

    def collection(self, name: str, tools: Iterable[str]) -> None:
        """Name a group of registered tools; the same name again replaces it.

        Raises:
            UnknownToolError: one of `tools` is not registered.
        """
        self._collections[name] = tuple(self.get(tool).name for tool in tools)

    def members_of(self, collection: str) -> tuple[DefinedTool, ...]:
        """The tools of a collection, in its order.

        Raises:
            UnknownToolError: there is no such collection.
        """
        try:
            names = self._collections[collection]
        except KeyError:
            raise UnknownToolError(Missing.COLLECTION, collection) from None
        return tuple(self._tools[name] for name in names)

    def collection_names(self) -> tuple[str, ...]:
        """The names of all collections, in the order in which they came."""
        return tuple(self._collections)

    def to_tool_box(self, make_context: Callable[[], ToolContext], collection: str | None = None) -> ToolBox:
        """A box of the present tools, of `collection` only when it is given.

        `make_context` is called once: all calls share that context's identity, each with its own cancel token.

        Raises:
            UnknownToolError: there is no such collection.
        """
        tools = self._tools.values() if collection is None else self.members_of(collection)
        return _RegistryBox({tool.name: tool for tool in tools}, make_context())


class _RegistryBox:
    """A fixed set of tools over one base context; its own runner."""

    def __init__(self, tools: Mapping[str, DefinedTool], context: ToolContext) -> None:
        self._tools = tools
        self._context = context
        self._descriptors = tuple(tool.descriptor() for tool in tools.values())

    def descriptors(self) -> Sequence[ToolDescriptor]:
        """The tools, in the registry's order."""
        return self._descriptors

    @property
    def runner(self) -> "_RegistryBox":
        """The box itself."""
        return self

    async def run(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        """Run the named tool; an unknown name is an outcome that suggests the nearest one."""
        tool = self._tools.get(call.name)
        if tool is None:
            return ToolOutcome(call.id, unknown_name_text(call.name, self._tools), is_error=True)
        return await tool.invoke(call, self._context.for_call(call, cancel))


def unknown_name_text(name: str, known: Collection[str]) -> str:
    """What a caller of an unknown tool is told: the name, cut to a sane length, and the nearest known one."""
    name = name[:_MAX_NAME_CHARS]
    return f"There is no tool called {name!r}{did_you_mean(name, known, near=nearest_tool) or '.'}"


_FACTORIES: Final = {
    "read": "files.read:read_tool",
    "ls": "files.ls:ls_tool",
    "grep": "search.grep:grep_tool",
    "find": "search.find:find_tool",
    "websearch": "web.websearch:web_search_tool",
    "webfetch": "web.webfetch:web_fetch_tool",
    "write": "files.write:write_tool",
    "edit": "editing.edit:edit_tool",
    "bash": "commands.bash:bash_tool",
    "todo_set": "cards.checklist:todo_set_tool",
    "todo_read": "cards.checklist:todo_read_tool",
    "process": "commands.process:process_tool",
}
"""Each tool's `module:factory` below `quarterdeck.tools`, in the registry's order."""

READ_ONLY_NAMES: Final = ("read", "ls", "grep", "find", "websearch", "webfetch", "todo_read")
"""The tools that change nothing."""

MUTATING_NAMES: Final = ("write", "edit", "bash", "process", "todo_set")
"""All others."""


@cache
def builtin_tool(name: str) -> DefinedTool:
    """The built-in tool called `name`; the same object each time.

    Raises:
        UnknownToolError: there is none.
    """
    try:
        module, _, factory = _FACTORIES[name].partition(":")
    except KeyError:
        raise UnknownToolError(Missing.TOOL, name) from None
    tool = getattr(import_module(f"quarterdeck.tools.{module}"), factory)()
    assert isinstance(tool, DefinedTool)
    return tool


def builtin_registry() -> ToolRegistry:
    """A new registry of the twelve, with the collections `read-only`, `coding` and `all`."""
    registry = ToolRegistry()
    registry.register_all(map(builtin_tool, _FACTORIES))
    registry.collection("read-only", READ_ONLY_NAMES)
    registry.collection("coding", _FACTORIES)
    registry.collection("all", _FACTORIES)
    return registry
