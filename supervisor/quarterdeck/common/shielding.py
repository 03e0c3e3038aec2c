"""Cancellation: by a token, only after work has ended, as an order to end, or leaving a thread behind.

An anyio shield stops only anyio's own cancellation: `Task.cancel()`, `asyncio.timeout` and a signal that ends the
process pass it. A thread cannot be cancelled at all.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from quarterdeck_protocol.tools import CancelToken

T = TypeVar("T")


@contextmanager
def cancelled_by(token: CancelToken, after_s: float = math.inf) -> Iterator[anyio.CancelScope]:
    """Yield a scope that `token` cancels, at once if it was cancelled before, or else `after_s` seconds."""
    with anyio.move_on_after(after_s) as scope:
        forget = token.on_cancel(scope.cancel)
        try:
            yield scope
        finally:
            forget()


async def carried_through(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Await `work()` to its end; a cancellation meanwhile takes effect then, anyio's at the next wait."""
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


async def cancelled(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and await their ends, however they end; a cancellation meanwhile takes effect then."""
    for task in tasks:
        task.cancel()
    await carried_through(partial(asyncio.wait, tasks))


async def told_to_end(work: Callable[[], Coroutine[Any, Any, T]], end: Callable[[], object]) -> T:
    """Await `work()` in its own task; a cancellation calls `end`, and takes effect once the work has returned. `end` is
    also called when the work has returned by itself.
    """
    owner = asyncio.ensure_future(work())
    try:
        return await asyncio.shield(owner)
    finally:
        end()
        await carried_through(partial(asyncio.wait, [owner]))
        if not owner.cancelled():
            owner.exception()  # raised above, unless the wait was cancelled


async def made_in_thread(make: Callable[[], T], undo: Callable[[T], object]) -> T:
    """`make()`, in a thread; when the caller was cancelled meanwhile what it made is undone, on the loop."""
    making = asyncio.get_running_loop().run_in_executor(None, make)
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:

        def take_back(made: "asyncio.Future[T]") -> None:
            if not made.cancelled() and made.exception() is None:
                undo(made.result())

        making.add_done_callback(take_back)
        raise


async def in_counted_thread(places: anyio.CapacityLimiter, work: Callable[[], T]) -> T:
    """Return the result of blocking `work`, whose thread keeps one of `places` until it has ended.

    Cancellation returns at once, and leaves the thread behind. anyio's own limiter counts the waiters: a cancelled call
    would give its place to the next while its thread goes on.
    """
    loop = asyncio.get_running_loop()
    place = object()
    unclaimed = [place]  # whoever takes it out gives the place back: the thread, or we when it never began

    def run() -> T:
        unclaimed.pop()
        try:
            return work()
        finally:
            with suppress(RuntimeError):  # the loop has ended before it
                loop.call_soon_threadsafe(places.release_on_behalf_of, place)

    await places.acquire_on_behalf_of(place)
    try:
        return await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
    finally:
        if unclaimed:
            with suppress(IndexError):
                places.release_on_behalf_of(unclaimed.pop())
