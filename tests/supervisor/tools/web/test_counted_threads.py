"""Threads that cancelled calls leave behind."""

import asyncio
import threading

import anyio
import pytest
from support.waiting import eventually_async

from quarterdeck.tools.web.counted_threads import in_counted_thread

pytestmark = pytest.mark.anyio


async def test_a_thread_keeps_its_place_when_its_caller_has_left() -> None:
    """Fetches of names that nobody resolves would leave a thread each, without end."""
    places = anyio.CapacityLimiter(1)
    begun, go = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go.wait()

    task = asyncio.ensure_future(in_counted_thread(places, work))
    await eventually_async(begun.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert places.available_tokens == 0
    with anyio.move_on_after(0.01):
        await in_counted_thread(places, lambda: pytest.fail("one more than there are places"))
    go.set()
    assert await in_counted_thread(places, lambda: "done") == "done"
    await eventually_async(lambda: places.available_tokens == 1)


async def test_a_failure_and_a_call_that_never_began_give_their_place_back() -> None:
    """After a few of them nothing would be resolved any more."""
    places = anyio.CapacityLimiter(1)
    with pytest.raises(ZeroDivisionError):
        await in_counted_thread(places, lambda: 1 // 0)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await in_counted_thread(places, lambda: pytest.fail("it was cancelled"))
    await eventually_async(lambda: places.available_tokens == 1)
