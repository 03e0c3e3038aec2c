"""What the file tools share at the edge: work on an open file in a thread, one writer at a time, the session's gate."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import BinaryIO, Final, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import anyio
import anyio.to_thread

from quarterdeck.kernel.context import ContextId, ToolContext
from quarterdeck.kernel.files.read_state import ReadState

WORK_S: Final = 30.0
"""For one look at a file, or a turn to write it; a disk that is slower than that is broken, or far away."""

FILES_AT_A_TIME: Final = 2
"""That one session looks through; more of them would only take the interpreter from other sessions, in turn."""

T = TypeVar("T")

ShouldStop = Callable[[], bool]

_turns: Final[WeakKeyDictionary[ContextId, anyio.CapacityLimiter]] = WeakKeyDictionary()

_writers: Final[WeakValueDictionary[tuple[int, str], asyncio.Lock]] = WeakValueDictionary()


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
    with anyio.move_on_after(WORK_S) as scope:
        forget = ctx.cancel.on_cancel(scope.cancel)
        try:
            async with _turns.setdefault(ctx.context_id, anyio.CapacityLimiter(FILES_AT_A_TIME)):
                return await _in_thread(await ctx.fs.open_binary(path), work)
        finally:
            forget()
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
async def turn_to_write(real_path: str) -> AsyncIterator[None]:
    """Nobody else of this process changes the file meanwhile: a model asks for several changes at once.

    Raises:
        TimeoutError: others took longer than `WORK_S`.
    """
    lock = _writers.setdefault((id(asyncio.get_running_loop()), real_path), asyncio.Lock())
    with anyio.move_on_after(WORK_S) as scope:
        await lock.acquire()
    if scope.cancelled_caught:
        raise TimeoutError(f"another change of it took longer than {WORK_S:g} s")
    try:
        yield
    finally:
        lock.release()


def read_state_of(ctx: ToolContext) -> ReadState | None:
    """What the session has read; None for no gate."""
    state = ctx.framework.read_state
    return state if isinstance(state, ReadState) else None
