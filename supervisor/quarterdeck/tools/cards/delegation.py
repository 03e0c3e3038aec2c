"""Work for the host: `task` and `saas-action` through a handle that it lends, plan mode by marks that it reads.

`enter_plan_mode` and `exit_plan_mode` change nothing: the host sees the marks and switches the mode.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from msgspec import Meta

from quarterdeck.tools.card_types import DeckContext, DelegateRunner, Delegation
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.results import Output, TextContentBlock, ToolResult
from quarterdeck.tools.spec import Arguments, DefinedTool, native_tool
from quarterdeck_protocol.tools import ToolHints

MAX_AGENTS_SHOWN: Final = 50  # in the description, which every request of a model carries
_ANYTHING: Final = ToolHints()  # the effects of an agent or of a vendor's action are unknown here

EXPLORE: Final = (
    "Plan mode was asked for. Until a plan is approved only explore: read, search, look things up; change nothing and "
    "run nothing that changes something. Then call exit_plan_mode with the plan."
)

_MARKS: Final = ToolHints(read_only=True, destructive=False, idempotent=True, open_world=False)


class TaskArguments(Arguments, frozen=True):
    """The work."""

    objective: Annotated[str, Meta(min_length=1, description="What is to be achieved, so that it can be judged.")]
    agent: (
        Annotated[str, Meta(min_length=1, description="Which agent shall do it; absent, the host chooses.")] | None
    ) = None
    context: Annotated[str, Meta(description="What the agent has to know; it sees nothing of this session.")] | None = (
        None
    )


class SaasArguments(Arguments, frozen=True):
    """Find actions, or run one."""

    action: Annotated[
        Literal["discover", "execute"], Meta(description="discover lists actions, execute runs the one in slug.")
    ]
    slug: (
        Annotated[str, Meta(min_length=1, description="For execute: the action, exactly as discover shows it.")] | None
    ) = None
    arguments: Annotated[dict[str, object], Meta(description="For execute: what the action takes.")] | None = None
    toolkits: Annotated[list[str], Meta(description="For discover: only actions of these services.")] | None = None
    query: Annotated[str, Meta(description="For discover: what is to be done; absent, every action.")] | None = None


def task_tool(ctx: DeckContext) -> DefinedTool:
    """Make the card that hands work to a sub-agent."""
    runner = ctx.framework.delegate

    async def run(arguments: TaskArguments, call: ToolContext) -> ToolResult:
        if runner is None:
            return _missing("delegated", "lends no sub-agents", "delegate", "Do the work yourself, with other tools.")
        report = await runner.run(Delegation(arguments.objective, arguments.agent, arguments.context), call)
        return ToolResult.of_text(report.text) if report.ok else ToolResult.of_error(report.text)

    return native_tool("task", _description(runner), TaskArguments, run, hints=_ANYTHING)


def saas_action_tool(ctx: DeckContext) -> DefinedTool:
    """Make the card that finds and runs actions of connected services; a vendor's slugs pass through unchanged."""
    gateway = ctx.framework.saas

    async def run(arguments: SaasArguments, _: ToolContext) -> ToolResult:
        if gateway is None:
            return _missing("done", "is connected to no services", "saas", "Ask the user to connect one.")
        if arguments.action == "discover":
            actions = await gateway.discover(arguments.query, arguments.toolkits or ())
            rows = [f"- {action.slug} — {' '.join(action.description.split())}" for action in actions]
            return ToolResult.of_text(
                "\n".join(rows) or "No action matches; try other words, or discover without a query."
            )
        if arguments.slug is None:
            return ToolResult.of_error("execute needs slug: the action to run, as discover shows it.")
        reply = await gateway.execute(arguments.slug, arguments.arguments or {})
        if not reply.ok:
            return ToolResult.of_error(reply.error or f"{arguments.slug} failed, and the service does not say why.")
        return ToolResult.of_text(json.dumps(reply.data, indent=2, ensure_ascii=False, default=str))

    return native_tool(
        "saas-action",
        "Use services that the user has connected. First discover actions by what they do, then execute one "
        "by its slug.",
        SaasArguments,
        run,
        hints=_ANYTHING,
    )


def _missing(what: str, why: str, handle: str, remedy: str) -> ToolResult:
    return ToolResult.of_error(f"Nothing was {what}: this host {why} (`DeckFramework.{handle}` is not set). {remedy}")


def _description(runner: DelegateRunner | None) -> str:
    text = "Hand one self-contained piece of work to a sub-agent and get its report."
    agents: Sequence[str] = runner.list_agents() if runner is not None else ()
    if not agents:
        return text
    more = f" and {len(agents) - MAX_AGENTS_SHOWN} more" if len(agents) > MAX_AGENTS_SHOWN else ""
    return f"{text} Agents: {', '.join(agents[:MAX_AGENTS_SHOWN])}{more}."


class EnterArguments(Arguments, frozen=True):
    """Nothing."""


class ExitArguments(Arguments, frozen=True):
    """The plan."""

    plan: Annotated[str, Meta(min_length=1, description="The whole plan as Markdown, its first line a title.")]


class EnterOutput(Output, frozen=True):
    """The mark of plan mode's begin."""

    enter_plan_mode: Annotated[bool, Meta(description="True: plan mode is asked for.")]
    applied: Annotated[bool, Meta(description="False: it is the client's to apply, nothing is blocked here.")]


class ExitOutput(Output, frozen=True):
    """The mark of plan mode's end."""

    exit_plan: Annotated[bool, Meta(description="True: the plan is finished, and needs approval.")]
    plan: Annotated[str, Meta(description="The whole plan, as it was given.")]


def enter_plan_mode_tool(_: DeckContext) -> DefinedTool:
    """Make the card that marks the begin of plan mode."""

    async def run(_: EnterArguments, __: ToolContext) -> ToolResult:
        return ToolResult.of_output(EnterOutput(enter_plan_mode=True, applied=False), TextContentBlock(EXPLORE))

    return native_tool(
        "enter_plan_mode",
        "Mark that you plan first: from then on only explore, until the user has approved a plan. Use it before work "
        "of several steps, or where choices are the user's. It does not block any tool.",
        EnterArguments,
        run,
        hints=_MARKS,
        outputs=(EnterOutput,),
    )


def exit_plan_mode_tool(_: DeckContext) -> DefinedTool:
    """Make the card that marks a finished plan."""

    async def run(arguments: ExitArguments, _: ToolContext) -> ToolResult:
        return ToolResult.of_output(ExitOutput(exit_plan=True, plan=arguments.plan))

    return native_tool(
        "exit_plan_mode",
        "Mark the plan as finished, to leave plan mode. A client that knows this mark asks the user for approval; "
        "most do not, so show the plan to the user yourself and wait for the answer.",
        ExitArguments,
        run,
        hints=_MARKS,
        outputs=(ExitOutput,),
    )
