"""`enter_plan_mode` and `exit_plan_mode`: markers that a host watches for.

The tools change nothing: whoever runs the session sees the markers and switches the mode.
"""

from typing import Annotated, Final

from msgspec import Meta

from quarterdeck.tools.card_types import DeckContext
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.results import JsonContentBlock, TextContentBlock, ToolResult
from quarterdeck.tools.spec import Arguments, DefinedTool, native_tool
from quarterdeck_protocol.tools import ToolHints

EXPLORE: Final = (
    "Plan mode was asked for. Until a plan is approved only explore: read, search, look things up; change nothing and "
    "run nothing that changes something. Then call exit_plan_mode with the plan."
)

_HINTS: Final = ToolHints(read_only=True, destructive=False, idempotent=True, open_world=False)


class EnterArguments(Arguments, frozen=True):
    """Nothing."""


class ExitArguments(Arguments, frozen=True):
    """The plan."""

    plan: Annotated[str, Meta(min_length=1, description="The whole plan as Markdown, its first line a title.")]


def enter_plan_mode_tool(_: DeckContext) -> DefinedTool:
    """Mark the begin of plan mode."""

    async def run(_: EnterArguments, __: ToolContext) -> ToolResult:
        return ToolResult((JsonContentBlock({"enterPlanMode": True, "applied": False}), TextContentBlock(EXPLORE)))

    return native_tool(
        "enter_plan_mode",
        "Mark that you plan first: from then on only explore, until the user has approved a plan. Use it before work "
        "of several steps, or where choices are the user's. It does not block any tool.",
        EnterArguments,
        run,
        title="Enter plan mode",
        hints=_HINTS,
    )


def exit_plan_mode_tool(_: DeckContext) -> DefinedTool:
    """Mark a finished plan."""

    async def run(arguments: ExitArguments, _: ToolContext) -> ToolResult:
        return ToolResult((JsonContentBlock({"exitPlan": True, "plan": arguments.plan}),))

    return native_tool(
        "exit_plan_mode",
        "Mark the plan as finished, to leave plan mode. A client that knows this mark asks the user for approval; "
        "most do not, so show the plan to the user yourself and wait for the answer.",
        ExitArguments,
        run,
        title="Exit plan mode",
        hints=_HINTS,
    )
