"""Native tools: how a tool is defined, in which context it runs, and how many become one box."""

from typing import TYPE_CHECKING

from quarterdeck_protocol.lazy import lazy_barrel

if TYPE_CHECKING:
    from quarterdeck_protocol.tools import (
        CancelToken as CancelToken,
        ToolBox as ToolBox,
        ToolCall as ToolCall,
        ToolDescriptor as ToolDescriptor,
        ToolOutcome as ToolOutcome,
        ToolRunner as ToolRunner,
        WireResult as WireResult,
    )

    from .context import Framework as Framework, Fs as Fs, Shell as Shell, ToolContext as ToolContext
    from .local_context import make_local_context as make_local_context
    from .registry import (
        ToolRegistry as ToolRegistry,
        UnknownToolError as UnknownToolError,
        builtin_registry as builtin_registry,
    )
    from .results import (
        JsonContentBlock as JsonContentBlock,
        OutputBudget as OutputBudget,
        TextContentBlock as TextContentBlock,
        ToolResult as ToolResult,
        clamp as clamp,
    )
    from .spec import DefinedTool as DefinedTool, ToolSpec as ToolSpec, define_tool as define_tool

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_barrel(__name__)
