"""Shared by the file tools: work on open files in threads, turns of writers, the read-before-edit gate, error texts.

The gate: `read` remembers a file's state, `write` and `edit` check it. Files are told apart by real path, states of a
file by `FileStat.revision`.
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
"""A tool's argument."""

_CONTROLS: Final = {number: f"\\x{number:02x}" for number in (*range(0x20), *range(0x7F, 0xA0))} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    **{number: f"\\u{number:04x}" for number in (*range(0x2028, 0x202F), *range(0x2066, 0x206A))},
}
"""Characters that start a line, reverse its direction so that a name seems to be another, or control a terminal."""


def spell(name: str) -> str:
    """Return a path or a name on one line: controls, and bytes that are not text, as escapes."""
    return name.encode("utf-8", "backslashreplace").decode().translate(_CONTROLS)


def size(number: int) -> str:
    """Describe a number of bytes, exactly, and above one KiB also roughly."""
    exact = counted(number, "byte")
    return exact if number < 1024 else f"{rough_size(number)} ({exact})"


def explain(error: OSError | ValueError, path: str) -> str:
    """Describe to a model why the file tools failed with `path`, and a remedy."""
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


MAX_PATHS: Final = 4_096  # of one session; the least recently used file is forgotten, and would have to be read again
NOT_READ: Final = "it has not been read in this session"
CHANGED_SINCE: Final = "it has changed on disk since it was last read"


class ReadState:
    """The revision of each file that the session knows."""

    def __init__(self) -> None:
        self._revisions: OrderedDict[str, str] = OrderedDict()

    def remember(self, real_path: str, revision: str) -> None:
        """Note that the session has read or written the file at `revision`."""
        self._revisions[real_path] = revision
        self._revisions.move_to_end(real_path)
        if len(self._revisions) > MAX_PATHS:
            self._revisions.popitem(last=False)

    def check(self, real_path: str, revision: str) -> str | None:
        """Return why a file that is at `revision` now may not be changed; None when it may."""
        known = self._revisions.get(real_path)
        if known is None:
            return NOT_READ
        self._revisions.move_to_end(real_path)
        return None if known == revision else CHANGED_SINCE


WORK_S: Final = 30.0  # for one look at a file, or a turn to write it; a disk that is slower is broken, or far away
FILES_AT_A_TIME: Final = 2  # of one session; more would only take the interpreter from other sessions

T = TypeVar("T")

ShouldStop = Callable[[], bool]

_turns: Final[WeakKeyDictionary[ContextId, anyio.CapacityLimiter]] = WeakKeyDictionary()

_locks: Final[WeakValueDictionary[tuple[int, str], asyncio.Lock]] = WeakValueDictionary()


class StoppedError(Exception):
    """The call was cancelled while the file was in use."""


async def with_file(ctx: ToolContext, path: str, work: Callable[[BinaryIO, ShouldStop], T]) -> T:
    """Return the result of `work` on the file, in a thread; the file is closed afterwards.

    `work` also gets a function that tells it to give up, to be called at least every fraction of a second.
    Cancellation, by token or task, returns at once; the thread ends at its next such call. Raise `StoppedError` for the
    context's token, `OSError` if the file cannot be read, `TimeoutError` if it takes longer than `WORK_S`, the wait for
    the session's turn included.
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
    """Return the next `most` bytes of `file`, fewer only at its end."""
    pieces = []
    while most > 0 and (piece := file.read(most)):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


@asynccontextmanager
async def turn(key: str, wait_s: float) -> AsyncIterator[bool]:
    """Hold this process's turn of `key` within the block; yield False if it did not come within `wait_s`."""
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
    """Hold this process's turn to change the file: a model makes several changes at once.

    Raise `TimeoutError` if others took longer than `WORK_S`.
    """
    async with turn(real_path, WORK_S) as is_ours:
        if not is_ours:
            raise TimeoutError(f"another change of it took longer than {WORK_S:g} s")
        yield


def read_state_of(ctx: ToolContext) -> ReadState | None:
    """Return the session's memory of files read; None for no gate."""
    state = ctx.framework.read_state
    return state if isinstance(state, ReadState) else None
