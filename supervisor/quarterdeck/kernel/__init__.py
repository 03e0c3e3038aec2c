"""The kernel: how a tool is defined, in which context it runs, and how many become one box."""

from typing import TYPE_CHECKING, Final

from quarterdeck.lazy import lazy_barrel

if TYPE_CHECKING:
    from quarterdeck_protocol.tools import CancelToken as CancelToken
    from quarterdeck_protocol.tools import ToolBox as ToolBox
    from quarterdeck_protocol.tools import ToolCall as ToolCall
    from quarterdeck_protocol.tools import ToolDescriptor as ToolDescriptor
    from quarterdeck_protocol.tools import ToolOutcome as ToolOutcome
    from quarterdeck_protocol.tools import ToolRunner as ToolRunner
    from quarterdeck_protocol.tools import WireResult as WireResult

    from .backends import Fs as Fs
    from .backends import Shell as Shell
    from .budget import OutputBudget as OutputBudget
    from .budget import clamp as clamp
    from .builtin import builtin_registry as builtin_registry
    from .context import Framework as Framework
    from .context import ToolContext as ToolContext
    from .local import make_local_context as make_local_context
    from .registry import ToolRegistry as ToolRegistry
    from .registry import UnknownToolError as UnknownToolError
    from .results import JsonContentBlock as JsonContentBlock
    from .results import TextContentBlock as TextContentBlock
    from .results import ToolResult as ToolResult
    from .spec import DefinedTool as DefinedTool
    from .spec import ToolSpec as ToolSpec
    from .spec import define_tool as define_tool

_HOMES: Final = {
    "CancelToken": "quarterdeck_protocol.tools",
    "DefinedTool": "quarterdeck.kernel.spec",
    "Framework": "quarterdeck.kernel.context",
    "Fs": "quarterdeck.kernel.backends",
    "JsonContentBlock": "quarterdeck.kernel.results",
    "OutputBudget": "quarterdeck.kernel.budget",
    "Shell": "quarterdeck.kernel.backends",
    "TextContentBlock": "quarterdeck.kernel.results",
    "ToolBox": "quarterdeck_protocol.tools",
    "ToolCall": "quarterdeck_protocol.tools",
    "ToolContext": "quarterdeck.kernel.context",
    "ToolDescriptor": "quarterdeck_protocol.tools",
    "ToolOutcome": "quarterdeck_protocol.tools",
    "ToolRegistry": "quarterdeck.kernel.registry",
    "ToolResult": "quarterdeck.kernel.results",
    "ToolRunner": "quarterdeck_protocol.tools",
    "ToolSpec": "quarterdeck.kernel.spec",
    "UnknownToolError": "quarterdeck.kernel.registry",
    "WireResult": "quarterdeck_protocol.tools",
    "builtin_registry": "quarterdeck.kernel.builtin",
    "clamp": "quarterdeck.kernel.budget",
    "define_tool": "quarterdeck.kernel.spec",
    "make_local_context": "quarterdeck.kernel.local",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_barrel(__name__, _HOMES)
