"""`process`: commands that run on while the session does other things, told as JSON values.

Its table lasts as long as its context's identity; `jobs` runs it, `bg-process` is another face of the same.
"""

from enum import StrEnum
from typing import Annotated, Final
from weakref import WeakKeyDictionary

from msgspec import Meta

from quarterdeck.tools.context import ContextId, Stream, ToolContext
from quarterdeck.tools.results import BudgetKind, JsonContentBlock, OutputBudget, ToolResult, clamp
from quarterdeck.tools.spec import Arguments, DefinedTool, ToolSpec, define_tool, schema_of, typed
from quarterdeck_protocol.tools import ToolHints

from .jobs import Job, JobError, JobTable, adopt, captures_of

PREFIX: Final = "job"

POLL_BUDGET: Final = OutputBudget(BudgetKind.TAIL, 32 * 1024)
"""Of what one poll shows of each stream."""


class ProcessAction(StrEnum):
    """What to do."""

    START = "start"
    LIST = "list"
    POLL = "poll"
    STOP = "stop"


class ProcessArguments(Arguments, frozen=True):
    """One action on the session's processes."""

    action: Annotated[
        ProcessAction,
        Meta(
            description="start runs command and returns at once with an id; poll shows what a process wrote since the "
            "last poll, and how it stands; stop ends one with all that it started; list shows all."
        ),
    ]
    command: Annotated[str, Meta(description="For start: a command line for /bin/sh.")] | None = None
    id: Annotated[str, Meta(description='For poll and stop: the id that start gave, such as "job-1".')] | None = None


_tables: Final[WeakKeyDictionary[ContextId, JobTable]] = WeakKeyDictionary()


def process_tool() -> DefinedTool:
    """The tool."""
    return define_tool(
        ToolSpec(
            "process",
            "Run commands in the background: servers, watchers, long builds. A process runs in the workspace, in a "
            "sandbox of its own, with empty standard input, until it ends, is stopped, or the session ends. Its last "
            "2,000 lines of each stream are kept for poll. Where sandboxes have networks of their own, no other "
            "command reaches what it listens on.",
            schema_of(ProcessArguments),
            typed(ProcessArguments, _run),
            title="Manage background processes",
            hints=ToolHints(destructive=True, open_world=True),
        )
    )


async def _run(arguments: ProcessArguments, ctx: ToolContext) -> ToolResult:
    table = _table_of(ctx)
    match arguments.action:
        case ProcessAction.START:
            return await _start(table, arguments.command, ctx)
        case ProcessAction.LIST:
            return _value({"jobs": [_row(job, table) for job in table.jobs]})
        case ProcessAction.POLL | ProcessAction.STOP:
            if not arguments.id:
                return ToolResult.of_error(f"{arguments.action} needs an id: {_known(table)}")
            job = table.get(arguments.id)
            if job is None:
                return ToolResult.of_error(f"There is no process {arguments.id!r}: {_known(table)}")
            return _poll(job) if arguments.action is ProcessAction.POLL else await _stop(table, job)


def _table_of(ctx: ToolContext) -> JobTable:
    if ctx.context_id not in _tables:
        _tables[ctx.context_id] = JobTable(PREFIX, captures_of(ctx.context_id, ctx.cwd))
        adopt(_tables[ctx.context_id], ctx.context_id)
    return _tables[ctx.context_id]


async def _start(table: JobTable, command: str | None, ctx: ToolContext) -> ToolResult:
    if command is None or not command.strip():
        return ToolResult.of_error("start needs a command: a command line for /bin/sh.")
    try:
        job = await table.start(ctx.shell, command, ctx.cancel)
    except JobError as error:
        return ToolResult.of_error(f"The process was not started: {error}")
    files = ", ".join(capture.path for capture in job.captures.values())
    kept = f"All that it writes is kept in {files} while the session lasts." if files else job.no_captures
    return _value(
        {
            "action": "start",
            "id": job.id,
            "pid": job.pid,
            "command": job.command,
            "status": job.status,
            "note": f'Poll it with {{"action": "poll", "id": "{job.id}"}}. {kept}',
        }
    )


def _row(job: Job, table: JobTable) -> dict[str, object]:
    return {
        "id": job.id,
        "command": job.command,
        "pid": job.pid,
        "state": _state(job),
        "status": job.status,
        "ageMs": int(job.age_s(table.now) * 1000),
    }


def _poll(job: Job) -> ToolResult:
    has_news = any(ring.has_news for ring in job.lines.values())
    news = {stream: clamp(ring.take_news().text, POLL_BUDGET) for stream, ring in job.lines.items()}
    return _value(
        {
            "action": "poll",
            "id": job.id,
            "state": _state(job),
            "status": job.status,
            "exitCode": job.exit_code,
            "exitSignal": job.signal_name,
            "stdout": news[Stream.STDOUT],
            "stderr": news[Stream.STDERR],
            "hadNewOutput": has_news,
        }
    )


async def _stop(table: JobTable, job: Job) -> ToolResult:
    was_running = await table.stop(job)
    table.forget(job)
    return _value({"action": "stop", "id": job.id, "wasRunning": was_running, "finalStatus": job.status})


def _state(job: Job) -> str:
    return "running" if job.is_running else "finished"


def _known(table: JobTable) -> str:
    names = ", ".join(job.id for job in table.jobs)
    return f"the processes of this session are {names}." if names else "this session has no processes; start one first."


def _value(value: dict[str, object]) -> ToolResult:
    return ToolResult((JsonContentBlock(value),))
