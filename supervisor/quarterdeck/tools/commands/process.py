"""`process` and `bg-process`: commands that run in the background.

Both start, list, poll and stop the jobs of a `JobTable`. `process` answers with JSON values, and its table lasts as
long as its context's identity; `bg-process` answers with text, and its table lasts as long as its card.
"""

import os
from typing import Annotated, Final, Literal
from weakref import WeakKeyDictionary

from msgspec import Meta

from quarterdeck.common.words import clipped
from quarterdeck.tools.card_types import DeckContext
from quarterdeck.tools.context import ContextId, Stream, ToolContext
from quarterdeck.tools.results import BudgetKind, Output, OutputBudget, ToolResult, clamp
from quarterdeck.tools.spec import Arguments, DefinedTool, native_tool
from quarterdeck_protocol.tools import ToolHints

from .jobs import CAPTURES_NAME, Job, JobError, JobTable, adopt, captures_of
from .output import MAX_BUFFERED_LINES

POLL_BUDGET: Final = OutputBudget(BudgetKind.TAIL, 32 * 1024)  # of each stream in one poll of `process`
MAX_COMMAND_CHARS: Final = 200  # of a command in a text of `bg-process`; the model that started it knows the rest
_HINTS: Final = ToolHints(destructive=True, open_world=True)


Action = Literal["start", "list", "poll", "stop"]


class ProcessArguments(Arguments, frozen=True):
    """One action on the session's processes."""

    action: Annotated[
        Action,
        Meta(
            description="start runs command and returns at once with an id; poll shows what a process wrote since the "
            "last poll, and its state; stop ends one with all that it started; list shows all."
        ),
    ]
    command: Annotated[str, Meta(description="For start: a command line for /bin/sh.")] | None = None
    id: Annotated[str, Meta(description='For poll and stop: the id that start gave, such as "job-1".')] | None = None


class BgProcessArguments(Arguments, frozen=True):
    """One action on the card's processes."""

    action: Annotated[
        Action,
        Meta(
            description="start runs command and returns at once with an id; poll shows the state and the output of a "
            "process; stop ends one with all that it started; list shows all."
        ),
    ]
    command: Annotated[str, Meta(description="For start: a command line for /bin/sh.")] | None = None
    id: Annotated[str, Meta(description='For poll and stop: the id that start gave, such as "bg-1".')] | None = None
    since_last: Annotated[bool, Meta(description="For poll: only what is new since the last poll.")] = False


State = Literal["running", "finished"]


class StartOutput(Output, frozen=True):
    """A process that was started."""

    action: Literal["start"]
    id: Annotated[str, Meta(description="What poll and stop know it by.")]
    pid: int
    command: str
    status: Annotated[str, Meta(description="running, or how it ended.")]
    note: Annotated[str, Meta(description="How to go on, and where its output is kept.")]


class JobRow(Output, frozen=True):
    """One process of the session."""

    id: str
    command: str
    pid: int
    state: State
    status: Annotated[str, Meta(description="running, or how it ended.")]
    age_ms: Annotated[int, Meta(description="Milliseconds from its start to its end, or to now.")]


class ListOutput(Output, frozen=True):
    """All processes that are remembered."""

    jobs: list[JobRow]


class PollOutput(Output, frozen=True):
    """How a process is, and what it wrote since the last poll."""

    action: Literal["poll"]
    id: str
    state: State
    status: Annotated[str, Meta(description="running, or how it ended.")]
    exit_code: Annotated[int | None, Meta(description="Null while it runs, and where a signal ended it.")]
    exit_signal: Annotated[str | None, Meta(description="The signal that ended it, such as SIGTERM.")]
    stdout: Annotated[str, Meta(description="What is new; the end of it, where that is much.")]
    stderr: Annotated[str, Meta(description="Likewise.")]
    had_new_output: bool


class StopOutput(Output, frozen=True):
    """A process that was stopped."""

    action: Literal["stop"]
    id: str
    was_running: bool
    final_status: str


_tables: Final[WeakKeyDictionary[ContextId, JobTable]] = WeakKeyDictionary()


def process_tool() -> DefinedTool:
    """Make the tool whose processes belong to the context."""

    async def run(arguments: ProcessArguments, ctx: ToolContext) -> ToolResult:
        table = _tables.get(ctx.context_id)
        if table is None:
            table = _tables[ctx.context_id] = JobTable("job", captures_of(ctx.context_id, ctx.cwd))
            adopt(table, ctx.context_id)
        return await _act(table, arguments, ctx, _AsValues())

    return native_tool(
        "process",
        "Run commands in the background: servers, watchers, long builds. A process runs in the workspace, in a "
        "sandbox of its own, with empty standard input, until it ends, is stopped, or the session ends. Its last "
        f"{MAX_BUFFERED_LINES:,} lines of each stream are kept for poll. Where sandboxes have networks of their own, "
        "no other command reaches what it listens on.",
        ProcessArguments,
        run,
        hints=_HINTS,
        outputs=(StartOutput, ListOutput, PollOutput, StopOutput),
    )


def bg_process_tool(ctx: DeckContext) -> DefinedTool:
    """Make a card with processes of its own."""
    table = JobTable("bg", str(ctx.captures) if ctx.captures is not None else os.path.join(ctx.cwd, CAPTURES_NAME))

    async def run(arguments: BgProcessArguments, ctx: ToolContext) -> ToolResult:
        adopt(table, ctx.context_id)
        return await _act(table, arguments, ctx, _AsText())

    return native_tool(
        "bg-process",
        "Run commands in the background: servers, watchers, long builds. Start one, poll its output, stop "
        "it. It runs in the workspace, in a sandbox of its own, with empty standard input, until it ends, "
        f"is stopped, or the session ends. The last {MAX_BUFFERED_LINES:,} lines of each stream are kept. "
        "Where sandboxes have networks of their own, no other command reaches what it listens on.",
        BgProcessArguments,
        run,
        hints=_HINTS,
    )


async def _act(
    table: JobTable, arguments: ProcessArguments | BgProcessArguments, ctx: ToolContext, answers: "_AsValues | _AsText"
) -> ToolResult:
    match arguments.action:
        case "start":
            if not (arguments.command or "").strip():
                return ToolResult.of_error("start needs a command: a command line for /bin/sh.")
            try:
                return answers.started(await table.start(ctx.shell, arguments.command or "", ctx.cancel))
            except JobError as error:
                return ToolResult.of_error(f"The process was not started: {error}")
        case "list":
            return answers.listed(table)
        case "poll" | "stop":
            if not arguments.id:
                return ToolResult.of_error(f"{arguments.action} needs an id. {_known(table)}")
            job = table.get(arguments.id)
            if job is None:
                return ToolResult.of_error(f"There is no process {_short(arguments.id)!r}. {_known(table)}")
            if arguments.action == "poll":
                return answers.polled(job, arguments)
            was_running = await table.stop(job)
            if answers.forgets_stopped:
                table.forget(job)
            return answers.stopped(job, was_running)


def _known(table: JobTable) -> str:
    names = ", ".join(job.id for job in table.jobs)
    return f"The processes of this session are {names}." if names else "This session has no processes: start one first."


class _AsValues:
    """Answers as JSON values; a process that was stopped is forgotten."""

    forgets_stopped = True

    def started(self, job: Job) -> ToolResult:
        files = ", ".join(capture.path for capture in job.captures.values())
        kept = f"All that it writes is kept in {files} while the session lasts." if files else job.no_captures
        started = StartOutput(
            action="start",
            id=job.id,
            pid=job.process.pid,
            command=job.command,
            status=job.status,
            note=f'Poll it with {{"action": "poll", "id": "{job.id}"}}. {kept}',
        )
        return ToolResult.of_output(started)

    def listed(self, table: JobTable) -> ToolResult:
        rows = [
            JobRow(
                id=job.id,
                command=job.command,
                pid=job.process.pid,
                state=_state(job),
                status=job.status,
                age_ms=int(job.age_s * 1000),
            )
            for job in table.jobs
        ]
        return ToolResult.of_output(ListOutput(jobs=rows))

    def polled(self, job: Job, _: Arguments) -> ToolResult:
        has_news = any(ring.has_news for ring in job.lines.values())
        news = {stream: clamp(ring.take_news().text, POLL_BUDGET) for stream, ring in job.lines.items()}
        polled = PollOutput(
            action="poll",
            id=job.id,
            state=_state(job),
            status=job.status,
            exit_code=job.exit_code,
            exit_signal=job.signal_name,
            stdout=news[Stream.STDOUT],
            stderr=news[Stream.STDERR],
            had_new_output=has_news,
        )
        return ToolResult.of_output(polled)

    def stopped(self, job: Job, was_running: bool) -> ToolResult:
        stopped = StopOutput(action="stop", id=job.id, was_running=was_running, final_status=job.status)
        return ToolResult.of_output(stopped)


class _AsText:
    """Answers as text; a process that was stopped can still be polled."""

    forgets_stopped = False

    def started(self, job: Job) -> ToolResult:
        text = (
            f"Started {job.id} (pid {job.process.pid}): {_short(job.command)}\n"
            f'Poll it with {{"action": "poll", "id": "{job.id}"}}, '
            f'end it with {{"action": "stop", "id": "{job.id}"}}.'
        )
        if job.no_captures:
            text += f"\nIts output is kept in memory only: {job.no_captures}"
        return ToolResult.of_text(text)

    def listed(self, table: JobTable) -> ToolResult:
        rows = "\n".join(f"{job.id} [{job.status}] {_short(job.command)}" for job in table.jobs)
        return ToolResult.of_text(rows or "There are no background processes.")

    def polled(self, job: Job, arguments: Arguments) -> ToolResult:
        since_last = isinstance(arguments, BgProcessArguments) and arguments.since_last
        parts = [f"Process {job.id} — {job.status}"]
        for stream, ring in job.lines.items():
            window = ring.take_news() if since_last else ring.all_lines()
            ring.mark_seen()
            if text := window.text:
                parts.append(f"--- {stream} ---\n{text.removesuffix(chr(10))}")
        if len(parts) == 1:
            parts.append("No new output since the last poll." if since_last else "It has written nothing yet.")
        return ToolResult.of_text("\n".join(parts))

    def stopped(self, job: Job, was_running: bool) -> ToolResult:
        if was_running:
            return ToolResult.of_text(f"Stopped {job.id} — {job.status}, with all that it had started.")
        return ToolResult.of_text(f"Process {job.id} had ended before — {job.status}.")


def _state(job: Job) -> State:
    return "running" if job.is_running else "finished"


def _short(text: str) -> str:
    return clipped(" ".join(text.split()), MAX_COMMAND_CHARS)
