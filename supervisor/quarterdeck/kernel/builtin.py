"""The twelve built-in tools by name, and the registry that holds them all.

A tool's module is imported when the tool is first asked for.  Tools hold no state of their own, what they keep belongs
to a context's identity: so one instance serves every session.
"""

from functools import cache
from importlib import import_module
from typing import Final

from .registry import Missing, ToolRegistry, UnknownToolError
from .spec import DefinedTool

_FACTORIES: Final = {
    "read": "read:read_tool",
    "ls": "ls:ls_tool",
    "grep": "grep:grep_tool",
    "find": "find:find_tool",
    "websearch": "websearch:web_search_tool",
    "webfetch": "webfetch:web_fetch_tool",
    "write": "write:write_tool",
    "edit": "edit:edit_tool",
    "bash": "bash:bash_tool",
    "todo_set": "todo:todo_set_tool",
    "todo_read": "todo:todo_read_tool",
    "process": "process:process_tool",
}
"""Each tool's `module:factory` below `quarterdeck.kernel.tools`, in the registry's order."""

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
    tool = getattr(import_module(f"quarterdeck.kernel.tools.{module}"), factory)()
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
