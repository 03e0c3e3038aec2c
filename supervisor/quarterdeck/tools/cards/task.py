"""`task`: hand work to a sub-agent, where the host lends a runner of them; else say what is missing."""

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Final

from msgspec import Meta

from quarterdeck.config.native_names import Profile
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.deck.contract import (
    Capability,
    CapabilityCard,
    DeckContext,
    DelegateRunner,
    Delegation,
    JsonSchema,
    capability_id,
)
from quarterdeck.tools.deck.native_card import NativeCard
from quarterdeck.tools.results import ToolResult
from quarterdeck.tools.spec import Arguments, ToolSpec, define_tool, schema_of, typed
from quarterdeck_protocol.tools import ToolHints

NAME: Final = capability_id("task")
TITLE: Final = "Delegate task"

STUB: Final = (
    "Nothing was delegated: this host lends no sub-agents (`DeckFramework.delegate` is not set). Do the work yourself, "
    "with the other tools."
)

MAX_AGENTS_SHOWN: Final = 50
"""In the description, which every request of a model carries."""


class TaskArguments(Arguments, frozen=True):
    """The work."""

    objective: Annotated[str, Meta(min_length=1, description="What is to be achieved, so that it can be judged.")]
    agent: (
        Annotated[str, Meta(min_length=1, description="Which agent shall do it; absent, the host chooses.")] | None
    ) = None
    context: Annotated[str, Meta(description="What the agent has to know; it sees nothing of this session.")] | None = (
        None
    )


def task_card() -> CapabilityCard:
    """The catalogue's row."""
    return CapabilityCard(NAME, TITLE, "Hand work to a sub-agent.", (Profile.ALL,), _build)


def _build(ctx: DeckContext) -> Capability:
    runner = ctx.framework.delegate

    async def run(arguments: TaskArguments, call: ToolContext) -> ToolResult:
        if runner is None:
            return ToolResult.of_error(STUB)
        report = await runner.run(Delegation(arguments.objective, arguments.agent, arguments.context), call)
        return ToolResult.of_text(report.text) if report.ok else ToolResult.of_error(report.text)

    return NativeCard(
        define_tool(
            ToolSpec(
                NAME,
                _description(runner),
                _parameters(),
                typed(TaskArguments, run),
                title=TITLE,
                hints=ToolHints(),  # an agent may do anything that its own tools allow
            )
        )
    )


def _description(runner: DelegateRunner | None) -> str:
    text = "Hand one self-contained piece of work to a sub-agent and get its report."
    agents: Sequence[str] = runner.list_agents() if runner is not None else ()
    if not agents:
        return text
    more = f" and {len(agents) - MAX_AGENTS_SHOWN} more" if len(agents) > MAX_AGENTS_SHOWN else ""
    return f"{text} Agents: {', '.join(agents[:MAX_AGENTS_SHOWN])}{more}."


@cache
def _parameters() -> JsonSchema:
    return schema_of(TaskArguments)
