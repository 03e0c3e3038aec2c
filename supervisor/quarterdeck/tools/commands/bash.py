"""`bash`: run one command to its end in a sandbox, and return its output and how it ended.

The output is bounded while it comes, and is returned even if the command was ended early.
"""

import asyncio
import math
from typing import Annotated, Final

import anyio.to_thread
from msgspec import Meta

from quarterdeck.common.words import clipped
from quarterdeck.tools.context import ExecResult, OutsideRootsError, Stream, ToolContext
from quarterdeck.tools.results import ToolResult
from quarterdeck.tools.spec import Arguments, DefinedTool, native_tool
from quarterdeck_protocol.tools import ToolHints
from quarterdeck_sandbox import signal_name

from .output import Excerpt

DEFAULT_TIMEOUT_MS: Final = 120_000
MAX_TIMEOUT_MS: Final = 600_000  # larger values are reduced to it; longer commands are for `process`
HEAD_BYTES: Final = 4 * 1024 * 1024
"""Kept of a stream's beginning; both streams with `TAIL_BYTES` are a bit less than an overflow file holds."""

TAIL_BYTES: Final = 3 * 1024 * 1024  # kept of a stream's end
LONG_BYTES: Final = 256 * 1024  # a longer report is composed in a thread: megabytes of no text take a tenth of a second
NOTE_S: Final = 0.1  # between two notes of progress
MAX_NOTE_CHARS: Final = 200  # of the line that a note shows
_SHELL: Final = 128  # plus a signal's number: a shell's exit status when that signal ended its last command
_SCRATCH: Final = frozenset({"scratch_bytes", "scratch_inodes"})  # limits on files that outlive the command
_TAIL_OF_NOTES: Final = 4 * MAX_NOTE_CHARS  # bytes in which that line is looked for; a character has up to four


class BashArguments(Arguments, frozen=True):
    """One command."""

    command: Annotated[str, Meta(min_length=1, description="A command line for /bin/sh.")]
    timeout_ms: (
        Annotated[
            float,
            Meta(
                gt=0,
                description=f"Milliseconds until it is ended with all that it started. Default {DEFAULT_TIMEOUT_MS}, "
                f"at most {MAX_TIMEOUT_MS}.",
            ),
        ]
        | None
    ) = None
    cwd: (
        Annotated[str, Meta(min_length=1, description="The directory to run it in. Default: the workspace.")] | None
    ) = None


def bash_tool() -> DefinedTool:
    """Make the tool."""
    return native_tool(
        "bash",
        "Run a command with /bin/sh in a sandbox and return its stdout, stderr and exit status. It can write to the "
        "workspace, to its private $HOME, which is kept, and to $TMPDIR, which is deleted with the session; /tmp is "
        "empty for every command. In the workspace, .git/hooks, .git/config and files that configure the user's "
        "programs are read-only. Standard input is empty: pass flags such as --yes. Processes that the command leaves "
        "behind are ended with it: use process for servers.",
        BashArguments,
        _run,
        hints=ToolHints(destructive=True, open_world=True),
    )


async def _run(arguments: BashArguments, ctx: ToolContext) -> ToolResult:
    if not arguments.command.strip():
        return ToolResult.of_error("The command is blank: nothing was run.")
    try:
        cwd = await ctx.fs.real_path(arguments.cwd) if arguments.cwd is not None else None
    except OutsideRootsError as error:
        return ToolResult.of_error(str(error))
    except (OSError, ValueError) as error:
        return ToolResult.of_error(f"cwd: {error}")
    timeout_s = min(arguments.timeout_ms or DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS) / 1000
    taken = {stream: Excerpt(HEAD_BYTES, TAIL_BYTES) for stream in Stream}
    progress = _Progress(ctx)

    def take(stream: Stream, data: bytes) -> None:
        taken[stream].feed(data)
        progress.feed(data)

    try:
        done = await ctx.shell.exec(arguments.command, cwd=cwd, cancel=ctx.cancel, timeout_s=timeout_s, on_output=take)
    except TimeoutError:
        status = (
            f"still running after {timeout_s:g} s, so it was ended with all that it had started; "
            "its output until then is above"
        )
        return ToolResult.of_error(await _report(taken, status))
    except OSError as error:
        if not ctx.cancel.cancelled:
            return ToolResult.of_error(f"The command was not run: {error}")
        return ToolResult.of_error(await _report(taken, "cancelled, and ended with all that it had started"))
    finally:
        progress.close()
    report = await _report(taken, _status(done))
    return ToolResult.of_text(report) if done.code == 0 and done.limit is None else ToolResult.of_error(report)


def _status(done: ExecResult) -> str:
    if done.limit is not None:
        hint = "; files in $TMPDIR count for the next command, too: remove them" if done.limit in _SCRATCH else ""
        return f"ended with all that it had started, because it exceeded the limit {done.limit} of its sandbox{hint}"
    if done.signal is not None:
        name = signal_name(done.signal).removeprefix("signal ")
        return f"ended by signal {name}, or exited with code {_SHELL + done.signal}, which looks the same"
    return f"exited with code {done.code}"


async def _report(taken: dict[Stream, Excerpt], status: str) -> str:
    if sum(excerpt.total_bytes for excerpt in taken.values()) < LONG_BYTES:
        return _composed(taken, status)
    return await anyio.to_thread.run_sync(_composed, taken, status)


def _composed(taken: dict[Stream, Excerpt], status: str) -> str:
    sections = []
    for stream, excerpt in taken.items():
        if text := excerpt.text():
            sections.append(f"{stream}:\n{text}" + ("" if text.endswith("\n") else "\n"))
    return "\n".join((*(sections or ["No output.\n"]), f"status: {status}"))


class _Progress:
    """Progress notes of a command's output, at most one in `NOTE_S`; none if none are wanted."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self._loop = asyncio.get_running_loop()
        self._next_at = -math.inf
        self._due: asyncio.TimerHandle | None = None
        self._total_bytes = 0
        self._last = b""

    def feed(self, data: bytes) -> None:
        """Report `data`, now or soon."""
        self._total_bytes += len(data)
        if self._ctx.report is None:
            return
        self._last = (self._last + data[-_TAIL_OF_NOTES:])[-_TAIL_OF_NOTES:]
        if self._due is None:
            self._due = self._loop.call_at(max(self._loop.time(), self._next_at), self._tell)

    def close(self) -> None:
        """Drop the pending note: the result says it all."""
        if self._due is not None:
            self._due.cancel()

    def _tell(self) -> None:
        self._due = None
        self._next_at = self._loop.time() + NOTE_S
        lines = self._last.decode(errors="replace").split("\n")
        line = next((line for line in reversed(lines) if line.strip()), "")
        self._ctx.tell(self._total_bytes, None, clipped(line.strip(), MAX_NOTE_CHARS) or None)
