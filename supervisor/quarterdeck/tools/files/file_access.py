"""What the file tools share: work on open files in threads, one writer at a time, what was read, words for failures.

The read-before-edit gate: `read` remembers a file's state, `write` and `edit` check it.  Files are told apart by real
path, states of a file by `FileStat.revision`.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Annotated, BinaryIO, Final, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import anyio
import anyio.to_thread
from msgspec import Meta

from quarterdeck.common.shielding import cancelled_by
from quarterdeck.common.words import counted
from quarterdeck.common.words import size as rough_size
from quarterdeck.tools.context import BackendUnavailableError, ContextId, OutsideRootsError, ToolContext

NamedFile = Annotated[str, Meta(min_length=1, description="The file; relative paths start from the working directory.")]
"""Of the arguments of a tool."""

_CONTROLS: Final = {number: f"\\x{number:02x}" for number in (*range(0x20), *range(0x7F, 0xA0))} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    **{number: f"\\u{number:04x}" for number in (*range(0x2028, 0x202F), *range(0x2066, 0x206A))},
}
"""What would begin a line of its own, turn one around so that a name seems to be another, or do worse to a terminal."""


def spell(name: str) -> str:
    """A path or a name on one line, read as it is: controls, and bytes that are no text, as escapes."""
    return name.encode("utf-8", "backslashreplace").decode().translate(_CONTROLS)


def size(number: int) -> str:
    """So many bytes, exactly, and above one KiB also roughly."""
    exact = counted(number, "byte")
    return exact if number < 1024 else f"{rough_size(number)} ({exact})"


def explain(error: OSError | ValueError, path: str) -> str:
    """Why the file tools cannot do what they were asked with `path`, and what may help."""
    name = spell(path)
    match error:
        case OutsideRootsError() | BackendUnavailableError():
            return spell(error.strerror or str(error))
        case FileNotFoundError():
            return f"{name} does not exist. Look for it with ls or find."
        case NotADirectoryError():
            return f"{name}: a part of this path is not a directory."
        case IsADirectoryError():
            return f"{name} is a directory, not a file. Use ls to see what is in it."
        case OSError(strerror=str(reason)) if reason:
            return f"{name}: {spell(reason[0].lower() + reason[1:])}."
        case ValueError():
            return f"{name} cannot be a path: {spell(str(error))}."
        case _:
            return f"{name}: {spell(str(error)) or type(error).__name__}."


MAX_PATHS: Final = 4_096
"""Of one session; the file used longest ago is forgotten, and would have to be read again."""

NOT_READ: Final = "it has not been read in this session"
CHANGED_SINCE: Final = "it has changed on disk since it was last read"


class ReadState:
    """The revision of each file that the session knows."""

    def __init__(self) -> None:
        self._revisions: OrderedDict[str, str] = OrderedDict()

    def remember(self, real_path: str, revision: str) -> None:
        """The session knows the file as it is at `revision`: it has read or written that."""
        self._revisions[real_path] = revision
        self._revisions.move_to_end(real_path)
        if len(self._revisions) > MAX_PATHS:
            self._revisions.popitem(last=False)

    def check(self, real_path: str, revision: str) -> str | None:
        """Why a file that is at `revision` now may not be changed; None when it may."""
        known = self._revisions.get(real_path)
        if known is None:
            return NOT_READ
        self._revisions.move_to_end(real_path)
        return None if known == revision else CHANGED_SINCE


WORK_S: Final = 30.0
"""For one look at a file, or a turn to write it; a disk that is slower than that is broken, or far away."""

FILES_AT_A_TIME: Final = 2
"""That one session looks through; more of them would only take the interpreter from other sessions, in turn."""

T = TypeVar("T")

ShouldStop = Callable[[], bool]

_turns: Final[WeakKeyDictionary[ContextId, anyio.CapacityLimiter]] = WeakKeyDictionary()

_locks: Final[WeakValueDictionary[tuple[int, str], asyncio.Lock]] = WeakValueDictionary()


class StoppedError(Exception):
    """The call was cancelled while the file was looked at."""


async def with_file(ctx: ToolContext, path: str, work: Callable[[BinaryIO, ShouldStop], T]) -> T:
    """What `work` makes of the file, in a thread; it is closed afterwards.

    `work` also gets what tells it to give up: to be asked between two steps of at most a fraction of a second.
    Cancellation, by token or task, returns at once; the thread ends at its next question.

    Raises:
        StoppedError: the context's token was cancelled.
        OSError: the file cannot be opened or read; `TimeoutError` when it, and the wait for the session's turn, took
            longer than `WORK_S`.
    """
    with cancelled_by(ctx.cancel, WORK_S):
        async with _turns.setdefault(ctx.context_id, anyio.CapacityLimiter(FILES_AT_A_TIME)):
            return await _in_thread(await ctx.fs.open_binary(path), work)
    if ctx.cancel.cancelled:
        raise StoppedError
    raise TimeoutError(f"it was not read within {WORK_S:g} s")


async def _in_thread(file: BinaryIO, work: Callable[[BinaryIO, ShouldStop], T]) -> T:
    opened = [file]  # whoever takes it out closes it: the thread, or we when it never began
    is_over = False

    def run() -> T:
        with opened.pop() as file:
            return work(file, lambda: is_over)

    try:
        return await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
    finally:
        is_over = True
        with suppress(IndexError):
            opened.pop().close()


def read_up_to(file: BinaryIO, most: int) -> bytes:
    """The next `most` bytes of `file`, fewer only at its end."""
    pieces = []
    while most > 0 and (piece := file.read(most)):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


@asynccontextmanager
async def turn(key: str, wait_s: float) -> AsyncIterator[bool]:
    """Nobody else of this process has the turn of this `key` meanwhile; False when it did not come within `wait_s`."""
    lock = _locks.setdefault((id(asyncio.get_running_loop()), key), asyncio.Lock())
    with anyio.move_on_after(wait_s) as scope:
        await lock.acquire()
    try:
        yield not scope.cancelled_caught
    finally:
        if not scope.cancelled_caught:
            lock.release()


@asynccontextmanager
async def turn_to_write(real_path: str) -> AsyncIterator[None]:
    """Nobody else of this process changes the file meanwhile: a model asks for several changes at once.

    Raises:
        TimeoutError: others took longer than `WORK_S`.
    """
    async with turn(real_path, WORK_S) as is_ours:
        if not is_ours:
            raise TimeoutError(f"another change of it took longer than {WORK_S:g} s")
        yield


def read_state_of(ctx: ToolContext) -> ReadState | None:
    """What the session has read; None for no gate."""
    state = ctx.framework.read_state
    return state if isinstance(state, ReadState) else None
