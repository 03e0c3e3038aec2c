"""`bg-process`: commands that run on while the session does other things, told as text.

The kernel's jobs do the work; this is their face of the deck, with a table for each card.
"""

import os
from enum import StrEnum
from functools import cache
from typing import Annotated, Final

from msgspec import Meta

from quarterdeck.config.native_names import Profile
from quarterdeck.tools.commands.jobs import CAPTURES_NAME, STOP_GRACE_MS, Job, JobError, JobTable, adopt
from quarterdeck.tools.commands.output import MAX_BUFFERED_LINES
from quarterdeck.tools.context import ToolContext
from quarterdeck.tools.deck.contract import Capability, CapabilityCard, DeckContext, JsonSchema, capability_id
from quarterdeck.tools.deck.native_card import NativeCard
from quarterdeck.tools.results import ToolResult
from quarterdeck.tools.spec import Arguments, ToolSpec, define_tool, schema_of, typed
from quarterdeck_protocol.tools import ToolHints

__all__ = ["MAX_BUFFERED_LINES", "NAME", "STOP_GRACE_MS", "TITLE", "DaemonCard", "DaemonTable", "daemon_card"]

NAME: Final = capability_id("bg-process")
TITLE: Final = "Background process"
PREFIX: Final = "bg"

MAX_COMMAND_CHARS: Final = 200
"""Of a command in a list; the model that started it knows the rest."""


class DaemonAction(StrEnum):
    """What to do."""

    START = "start"
    POLL = "poll"
    STOP = "stop"
    LIST = "list"


class DaemonArguments(Arguments, frozen=True):
    """One action on the session's background processes."""

    action: Annotated[
        DaemonAction,
        Meta(
            description="start runs command and returns at once with an id; poll shows the state and the output of a "
            "process; stop ends one with all that it started; list shows all."
        ),
    ]
    command: Annotated[str, Meta(description="For start: a command line for /bin/sh.")] | None = None
    id: Annotated[str, Meta(description='For poll and stop: the id that start gave, such as "bg-1".')] | None = None
    since_last: Annotated[bool, Meta(description="For poll: only what is new since the last poll.")] = False


class DaemonTable(JobTable):
    """The processes of one card."""

    def __init__(self, captures: str) -> None:
        """Write their output files to the directory `captures`."""
        super().__init__(PREFIX, captures)

    def rows(self) -> str:
        """One line for each process; empty when there is none."""
        return "\n".join(f"{job.id} [{job.status}] {_short(job.command)}" for job in self.jobs)


class DaemonCard(NativeCard):
    """The card, and the table that lives as long as it does."""

    def __init__(self, table: DaemonTable) -> None:
        async def run(arguments: DaemonArguments, ctx: ToolContext) -> ToolResult:
            adopt(table, ctx.context_id)
            return await _run(table, arguments, ctx)

        super().__init__(
            define_tool(
                ToolSpec(
                    NAME,
                    "Run commands in the background: servers, watchers, long builds. Start one, poll its output, stop "
                    "it. It runs in the workspace, in a sandbox of its own, with empty standard input, until it ends, "
                    f"is stopped, or the session ends. The last {MAX_BUFFERED_LINES:,} lines of each stream are kept. "
                    "Where sandboxes have networks of their own, no other command reaches what it listens on.",
                    _parameters(),
                    typed(DaemonArguments, run),
                    title=TITLE,
                    hints=ToolHints(destructive=True, open_world=True),
                )
            )
        )
        self.table: Final = table

    async def aclose(self) -> None:
        """End every process with all that it started, and remove their output files.  Repeatable."""
        await self.table.aclose()


def daemon_card() -> CapabilityCard:
    """The catalogue's row."""
    return CapabilityCard(NAME, TITLE, "Run commands in the background, and watch them.", (Profile.ALL,), _build)


def _build(ctx: DeckContext) -> Capability:
    captures = str(ctx.captures) if ctx.captures is not None else os.path.join(ctx.cwd, CAPTURES_NAME)
    return DaemonCard(DaemonTable(captures))


@cache
def _parameters() -> JsonSchema:
    return schema_of(DaemonArguments)


async def _run(table: DaemonTable, arguments: DaemonArguments, ctx: ToolContext) -> ToolResult:
    match arguments.action:
        case DaemonAction.START:
            return await _start(table, arguments.command, ctx)
        case DaemonAction.LIST:
            return ToolResult.of_text(table.rows() or "There are no background processes.")
        case DaemonAction.POLL | DaemonAction.STOP:
            if not arguments.id:
                return ToolResult.of_error(f"{arguments.action} needs an id. {_known(table)}")
            job = table.get(arguments.id)
            if job is None:
                return ToolResult.of_error(f"There is no background process {_short(arguments.id)!r}. {_known(table)}")
            if arguments.action is DaemonAction.POLL:
                return ToolResult.of_text(_poll(job, since_last=arguments.since_last))
            return await _stop(table, job)


async def _start(table: DaemonTable, command: str | None, ctx: ToolContext) -> ToolResult:
    if command is None or not command.strip():
        return ToolResult.of_error("start needs a command: a command line for /bin/sh.")
    try:
        job = await table.start(ctx.shell, command, ctx.cancel)
    except JobError as error:
        return ToolResult.of_error(f"The process was not started: {error}")
    text = (
        f"Started {job.id} (pid {job.pid}): {_short(job.command)}\n"
        f'Poll it with {{"action": "poll", "id": "{job.id}"}}, end it with {{"action": "stop", "id": "{job.id}"}}.'
    )
    if job.no_captures:
        text += f"\nIts output is kept in memory only: {job.no_captures}"
    return ToolResult.of_text(text)


def _poll(job: Job, *, since_last: bool) -> str:
    parts = [f"Process {job.id} — {job.status}"]
    for stream, ring in job.lines.items():
        window = ring.take_news() if since_last else ring.all_lines()
        ring.mark_seen()
        if text := window.text:
            parts.append(f"--- {stream} ---\n{text.removesuffix(chr(10))}")
    if len(parts) == 1:
        parts.append("No new output since the last poll." if since_last else "It has written nothing yet.")
    return "\n".join(parts)


async def _stop(table: DaemonTable, job: Job) -> ToolResult:
    if await table.stop(job):
        return ToolResult.of_text(f"Stopped {job.id} — {job.status}, with all that it had started.")
    return ToolResult.of_text(f"Process {job.id} had ended before — {job.status}.")


def _known(table: DaemonTable) -> str:
    return f"The processes of this session:\n{table.rows()}" if table.jobs else "This session has none; start one."


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_COMMAND_CHARS else f"{line[:MAX_COMMAND_CHARS]}…"
