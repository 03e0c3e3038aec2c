"""Run ripgrep as one of the session's commands: bounded, stopped as soon as enough is known, confined like the others.

ripgrep walks by path, and directories may be swapped for links meanwhile: the shell confines it to the session's roots.
`grep` and `find` read its output (`ripgrep_output`), and share the words for places and gaps.
"""

import os
import shlex
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

import anyio

from quarterdeck.common.words import counted
from quarterdeck.tools.context import ContextId, Stream, ToolContext
from quarterdeck.tools.files.file_access import spell
from quarterdeck.tools.installed import INSTALL, ripgrep_path
from quarterdeck_protocol.tools import CancelToken

from .ripgrep_output import ComplaintReader

DEADLINE_S: Final = 60.0  # of one search; some 10 million files
AT_A_TIME: Final = 4  # searches of one session; each is a sandbox with a thread for every processor
MAX_FILE_MIB: Final = 20  # larger files are skipped in a directory: they are data, and several are searched at once
TELL_S: Final = 1.0  # between notes of progress

COMMON_OPTIONS: Final = (
    "--no-config",
    *("--color", "never"),
    "--null",
    "--hidden",
    *("--glob", "!.git"),
    "--no-require-git",  # a workspace may be a part of a repository, whose `.git` it does not see
    "--no-ignore-global",
    "--no-ignore-messages",
)
"""The same files and spelling of names in every search."""


_MEMORY_KIB: Final = 2 * 1024 * 1024  # a line without an end is read whole, however long it is
_PATTERN_VARIABLE: Final = "QUARTERDECK_PATTERN"
_PLACE_VARIABLE: Final = "QUARTERDECK_PLACE"  # a command line is text; the name of a place need not be
_NOT_RUN: Final = (126, 127)  # a shell's status for a command that it could not run


_turns: Final[WeakKeyDictionary[ContextId, anyio.CapacityLimiter]] = WeakKeyDictionary()

T = TypeVar("T")


class Ending(StrEnum):
    """Why a search is over."""

    COMPLETE = "complete"
    ENOUGH = "enough"  # the caller had seen enough
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    KILLED = "killed"  # by a limit, or a fault of its own


@dataclass(frozen=True, slots=True)
class Searched:
    """The end of a search; `place_error` says why the place itself could not be searched, and is empty if it could."""

    ending: Ending
    unreadable: int
    place_error: str
    complaint: str
    failed: bool


@dataclass(frozen=True, slots=True)
class NotRun:
    """The reason why ripgrep could not be run, and a remedy."""

    reason: str


async def run_ripgrep(
    ctx: ToolContext, place: str, take: Callable[[bytes], bool], options: Sequence[str], pattern: str | None = None
) -> Searched | NotRun:
    """Search a directory or a file, as `Fs.real_path` gives it, and pass the output to `take`, piece by piece, until
    that returns True; without `pattern` the search is for names alone.

    It waits for its turn as long as it may take itself. Cancellation, by the context's token or the task, ends it.
    """
    program = ripgrep_path()
    if program is None:
        return NotRun(
            f"the program rg (ripgrep) is not installed: install it with `{INSTALL}` in quarterdeck's environment, "
            "or from the system's packages"
        )
    turns = _turns.setdefault(ctx.context_id, anyio.CapacityLimiter(AT_A_TIME))
    with anyio.move_on_after(DEADLINE_S) as waiting:
        await turns.acquire()
    if waiting.cancelled_caught:
        return NotRun(f"{AT_A_TIME} other searches of this session took too long: ask for fewer at a time")
    complaints = ComplaintReader(os.fsencode(place))
    end = CancelToken()
    has_enough = False

    def on_output(stream: Stream, data: bytes) -> None:
        nonlocal has_enough
        if stream is Stream.STDERR:
            complaints.feed(data)
        elif not has_enough and take(data):
            has_enough = True
            end.cancel()

    ending, code = Ending.COMPLETE, None
    forget = ctx.cancel.on_cancel(end.cancel)
    try:
        done = await ctx.shell.exec(
            _command(str(program), options, has_pattern=pattern is not None),
            cwd="/",
            env={_PLACE_VARIABLE: place, _PATTERN_VARIABLE: pattern or ""},
            cancel=end,
            timeout_s=DEADLINE_S,
            on_output=on_output,
        )
        code = done.code
        if code is None or done.limit is not None:
            ending = Ending.KILLED
    except TimeoutError:
        ending = Ending.DEADLINE
    except OSError as error:
        if not end.cancelled:
            return NotRun(str(error) or type(error).__name__)
    finally:
        forget()
        turns.release()
    if end.cancelled:
        ending = Ending.ENOUGH if has_enough else Ending.CANCELLED
    complaints.close()
    if ending is Ending.COMPLETE and code in _NOT_RUN:
        return NotRun(
            f"the session's commands cannot run {program}, which may be hidden from them: {complaints.text[:300]}"
        )
    return Searched(ending, complaints.unreadable, complaints.place_error, complaints.text, code not in (0, 1, None))


def _command(program: str, options: Sequence[str], *, has_pattern: bool) -> str:
    pattern = f'-e "${_PATTERN_VARIABLE}"' if has_pattern else ""
    words = shlex.join((program, *COMMON_OPTIONS, *options))
    # Not every shell can bound memory; those of the systems that we confine on can.
    return f'ulimit -v {_MEMORY_KIB} 2>/dev/null; exec {words} {pattern} -- "${_PLACE_VARIABLE}"'


async def with_progress(ctx: ToolContext, words: Callable[[], str], work: Awaitable[T]) -> T:
    """Await `work`, reporting its progress in `words` about once in `TELL_S`."""
    async with anyio.create_task_group() as notes:
        notes.start_soon(_tell, ctx, words)
        result = await work
        notes.cancel_scope.cancel()
    return result


async def _tell(ctx: ToolContext, words: Callable[[], str]) -> None:
    started = time.monotonic()
    while True:
        await anyio.sleep(TELL_S)
        ctx.tell(time.monotonic() - started, message=words())


@dataclass(frozen=True, slots=True)
class SearchTarget:
    """A directory or file within the session's roots, as `spelled` by the caller; `real` and `cwd` have no links."""

    spelled: str
    real: str
    is_directory: bool
    cwd: str

    def show(self, path: bytes) -> str:
        """Return `path`, absolute, on one line: relative where it lies in the context's directory."""
        text = os.fsdecode(path)
        return spell(text.removeprefix(f"{self.cwd.rstrip('/')}/") or ".")


async def find_target(ctx: ToolContext, path: str | None) -> SearchTarget:
    """Return the place of `path`, None being the context's directory.

    Raise `OSError` if it does not exist or lies outside of the session's roots, `ValueError` if it cannot be a path.
    """
    real = await ctx.fs.real_path(ctx.cwd if path is None else path)
    status = await ctx.fs.stat(real)
    spelled = "the working directory" if path is None else spell(path)
    return SearchTarget(spelled, real, status.is_directory, await ctx.fs.real_path(ctx.cwd))


def what_is_missing(searched: Searched) -> list[str]:
    """Return the reasons why a search may have missed something, one line each."""
    lines = []
    match searched.ending:
        case Ending.DEADLINE:
            lines.append(
                f"It was stopped after {DEADLINE_S:g} s, so there may be more: name a smaller directory as path."
            )
        case Ending.KILLED:
            why = spell(searched.complaint.strip().rpartition("\n")[2][:300]) or "by a limit or a fault of its own"
            lines.append(f"ripgrep was ended before it was done, so there may be more: {why}")
    if searched.unreadable:
        lines.append(f"{counted(searched.unreadable, 'path')} could not be read, for want of permission or being gone.")
    return lines
