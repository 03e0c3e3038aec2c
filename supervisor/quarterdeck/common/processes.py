"""The command line of a process of ours that does one thing and ends: an isolated interpreter, killed when we end.

A stranger's page or the user's keyring is dealt with in one; stopped or hanging, it would outlive a `serve` that was
killed.  When memory runs out it is killed before we are.

What must not be left half done by somebody who gives up in the middle.

An anyio shield keeps anyio's own cancellation away, and no other: `Task.cancel()`, `asyncio.timeout` and a signal that
ends the process pass it.  A thread cannot be called off at all.
"""

import asyncio
import importlib.util
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio

T = TypeVar("T")


async def carried_through(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Await `work()` to its end; whoever is cancelled meanwhile is so when it has ended, by anyio at its next wait."""
    task = asyncio.ensure_future(work())
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # nobody is left to be told
        raise cancelled
    return task.result()


async def made_in_thread(make: Callable[[], T], undo: Callable[[T], object]) -> T:
    """`make()`, in a thread; what it makes for somebody who has given up meanwhile is undone, on the loop."""
    making = asyncio.get_running_loop().run_in_executor(None, make)
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:

        def take_back(made: "asyncio.Future[T]") -> None:
            if not made.cancelled() and made.exception() is None:
                undo(made.result())

        making.add_done_callback(take_back)
        raise


_TIE: Final = """\
import os, sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
    if os.getppid() != int(sys.argv[1]):
        os._exit(0)
    try:
        with open("/proc/self/oom_score_adj", "r+") as score:
            points = min(1000, int(score.read()) + 600)  # as whatever else may need much memory
            score.seek(0)
            score.write(str(points))
    except OSError:
        pass
sys.path += [each for each in sys.argv[2:] if each not in sys.path]
"""


def child_command(code: str, packages: Sequence[str]) -> list[str]:
    """What runs `code`, which finds `packages` wherever they are installed.

    The process is killed when the thread that starts it ends (Linux).
    """
    origins = (spec.origin for name in packages if (spec := importlib.util.find_spec(name)) is not None)
    folders = [str(Path(origin).parents[1]) for origin in origins if origin is not None]
    return [sys.executable, "-I", "-c", _TIE + code, str(os.getpid()), *folders]
