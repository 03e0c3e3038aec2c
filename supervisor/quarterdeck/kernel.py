"""The public names for programs that define tools of their own: tool, context, result, and a box of tools."""

from typing import TYPE_CHECKING

from quarterdeck_protocol.lazy import lazy_barrel

if TYPE_CHECKING:
    from quarterdeck.embedding.deck import (
        ToolRegistry as ToolRegistry,
        UnknownToolError as UnknownToolError,
        builtin_registry as builtin_registry,
    )
    from quarterdeck.tools.context import Framework as Framework, Fs as Fs, Shell as Shell, ToolContext as ToolContext
    from quarterdeck.tools.files.local_files import make_local_context as make_local_context
    from quarterdeck.tools.results import (
        JsonContentBlock as JsonContentBlock,
        OutputBudget as OutputBudget,
        TextContentBlock as TextContentBlock,
        ToolResult as ToolResult,
        clamp as clamp,
    )
    from quarterdeck.tools.spec import DefinedTool as DefinedTool, ToolSpec as ToolSpec, define_tool as define_tool
    from quarterdeck_protocol.tools import (
        CancelToken as CancelToken,
        ToolBox as ToolBox,
        ToolCall as ToolCall,
        ToolDescriptor as ToolDescriptor,
        ToolOutcome as ToolOutcome,
        ToolRunner as ToolRunner,
        WireResult as WireResult,
    )

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_barrel(__name__)
