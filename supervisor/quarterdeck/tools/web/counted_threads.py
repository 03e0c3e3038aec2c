"""Run blocking work in a bounded number of threads, even if its caller has left.

anyio's own limiter counts those who wait: a cancelled call gives its place to the next while its thread goes on.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")


async def in_counted_thread(places: anyio.CapacityLimiter, work: Callable[[], T]) -> T:
    """What `work` returns; its thread keeps one of `places` until it has ended.

    Cancellation returns at once, and leaves the thread behind.
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
