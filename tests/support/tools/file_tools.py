"""Contexts and calls for the tools that work on files."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quarterdeck.tools.context import Framework, Fs, ToolContext, UnavailableShell
from quarterdeck.tools.files.file_access import ReadState
from quarterdeck.tools.files.local_files import LocalFs
from quarterdeck.tools.files.roots import Roots
from quarterdeck.tools.results import STANDARD_BUDGET, OutputBudget
from quarterdeck.tools.spec import DefinedTool
from quarterdeck_protocol.tools import CancelToken, ToolCall, ToolOutcome


def context_in(
    folder: Path, *, gate: bool = False, budget: OutputBudget = STANDARD_BUDGET, fs: Fs | None = None
) -> ToolContext:
    """A session that works in `folder`; with `gate` it has to read before it edits."""
    return ToolContext(
        str(folder),
        fs or LocalFs(Roots(folder), str(folder)),
        UnavailableShell(),
        budget=budget,
        framework=Framework(ReadState() if gate else None),
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """How a call ended: its text, and the value beside it when there is one."""

    text: str
    is_error: bool
    value: Any = None


async def call(tool: DefinedTool, ctx: ToolContext, cancel: CancelToken | None = None, /, **given: object) -> Answer:
    outcome = await outcome_of(tool, ctx, cancel, **given)
    if isinstance(outcome.output, str):
        return Answer(outcome.output, outcome.is_error)
    assert isinstance(outcome.output, list)
    text, value = outcome.output
    return Answer(text["text"], outcome.is_error, value["value"])


async def refusal(tool: DefinedTool, ctx: ToolContext, /, **given: object) -> str:
    """The text of a call that must fail."""
    answer = await call(tool, ctx, **given)
    assert answer.is_error, answer.text
    return answer.text


async def cancelled(tool: DefinedTool, ctx: ToolContext, begun: asyncio.Event, /, **given: object) -> Answer:
    """How a call ends that is cancelled as soon as `begun` is set."""
    cancel = CancelToken()
    async with asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(call(tool, ctx, cancel, **given))
        await begun.wait()
        cancel.cancel()
    return calling.result()


async def outcome_of(
    tool: DefinedTool, ctx: ToolContext, cancel: CancelToken | None = None, /, **given: object
) -> ToolOutcome:
    request = ToolCall("1", tool.name, given)
    return await tool.invoke(request, ctx.with_cancel(cancel or CancelToken(), request.report))
