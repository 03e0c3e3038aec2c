"""Native tools: how a tool is defined, in which context it runs, and how many become one box."""

from typing import TYPE_CHECKING, Final

from quarterdeck.common.lazy import lazy_barrel

if TYPE_CHECKING:
    from quarterdeck_protocol.tools import CancelToken as CancelToken
    from quarterdeck_protocol.tools import ToolBox as ToolBox
    from quarterdeck_protocol.tools import ToolCall as ToolCall
    from quarterdeck_protocol.tools import ToolDescriptor as ToolDescriptor
    from quarterdeck_protocol.tools import ToolOutcome as ToolOutcome
    from quarterdeck_protocol.tools import ToolRunner as ToolRunner
    from quarterdeck_protocol.tools import WireResult as WireResult

    from .context import Framework as Framework
    from .context import Fs as Fs
    from .context import Shell as Shell
    from .context import ToolContext as ToolContext
    from .local_context import make_local_context as make_local_context
    from .registry import ToolRegistry as ToolRegistry
    from .registry import UnknownToolError as UnknownToolError
    from .registry import builtin_registry as builtin_registry
    from .results import JsonContentBlock as JsonContentBlock
    from .results import OutputBudget as OutputBudget
    from .results import TextContentBlock as TextContentBlock
    from .results import ToolResult as ToolResult
    from .results import clamp as clamp
    from .spec import DefinedTool as DefinedTool
    from .spec import ToolSpec as ToolSpec
    from .spec import define_tool as define_tool

_HOMES: Final = {
    "CancelToken": "quarterdeck_protocol.tools",
    "DefinedTool": "quarterdeck.tools.spec",
    "Framework": "quarterdeck.tools.context",
    "Fs": "quarterdeck.tools.context",
    "JsonContentBlock": "quarterdeck.tools.results",
    "OutputBudget": "quarterdeck.tools.results",
    "Shell": "quarterdeck.tools.context",
    "TextContentBlock": "quarterdeck.tools.results",
    "ToolBox": "quarterdeck_protocol.tools",
    "ToolCall": "quarterdeck_protocol.tools",
    "ToolContext": "quarterdeck.tools.context",
    "ToolDescriptor": "quarterdeck_protocol.tools",
    "ToolOutcome": "quarterdeck_protocol.tools",
    "ToolRegistry": "quarterdeck.tools.registry",
    "ToolResult": "quarterdeck.tools.results",
    "ToolRunner": "quarterdeck_protocol.tools",
    "ToolSpec": "quarterdeck.tools.spec",
    "UnknownToolError": "quarterdeck.tools.registry",
    "WireResult": "quarterdeck_protocol.tools",
    "builtin_registry": "quarterdeck.tools.registry",
    "clamp": "quarterdeck.tools.results",
    "define_tool": "quarterdeck.tools.spec",
    "make_local_context": "quarterdeck.tools.local_context",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_barrel(__name__, _HOMES)
