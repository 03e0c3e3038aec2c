"""Whoever gives up in the middle leaves nothing half done."""

import asyncio
import threading
from collections.abc import Callable

import anyio
import pytest
from support.waiting import PATIENCE_S, eventually_async

from quarterdeck.common.shielding import (
    cancelled,
    cancelled_by,
    carried_through,
    in_counted_thread,
    made_in_thread,
    told_to_end,
)
from quarterdeck_protocol.tools import CancelToken


def cancel_twice(task: "asyncio.Task[None]", scope: anyio.CancelScope) -> None:
    task.cancel()
    asyncio.get_running_loop().call_soon(task.cancel)


def cancel_scope(_: "asyncio.Task[None]", scope: anyio.CancelScope) -> None:
    """As anyio does: again on every turn of the loop."""
    scope.cancel()


Cancel = Callable[["asyncio.Task[None]", anyio.CancelScope], None]
CANCELS = pytest.mark.parametrize("cancel", [cancel_twice, cancel_scope])


@CANCELS
async def test_work_that_has_begun_is_done_before_its_waiter_is_cancelled(cancel: Cancel) -> None:
    """What is recorded would not be enforced; a fleet would be left with nobody to end it."""
    steps: list[str] = []
    begun = asyncio.Event()
    scope = anyio.CancelScope()

    async def work() -> None:
        begun.set()
        for _ in range(5):
            await asyncio.sleep(0.001)
        steps.append("done")

    async def wait() -> None:
        with scope:
            await carried_through(work)
            steps.append("told")
        steps.append("left")

    task = asyncio.create_task(wait())
    await begun.wait()
    cancel(task, scope)
    await asyncio.wait((task,), timeout=PATIENCE_S)
    assert steps == (["done", "told", "left"] if cancel is cancel_scope else ["done"])
    assert task.cancelled() is (cancel is cancel_twice)


async def test_work_says_how_it_ended_to_whoever_waits() -> None:
    """A decision that could not be recorded would seem to count, a failed listener to have been told to end."""

    async def fail() -> None:
        raise ValueError("a full disk")

    async def answer() -> int:
        return 42

    ends: list[str] = []
    assert await carried_through(answer) == await told_to_end(answer, lambda: ends.append("answer")) == 42
    with pytest.raises(ValueError, match="a full disk"):
        await carried_through(fail)
    with pytest.raises(ValueError, match="a full disk"):
        await told_to_end(fail, lambda: ends.append("fail"))
    assert ends == ["answer", "fail"]


@pytest.mark.parametrize("fails", [False, True])
@CANCELS
async def test_a_cancellation_has_work_end_and_waits_for_it(cancel: Cancel, fails: bool) -> None:
    """Clients would be cut off in place of being answered, or a failure at the end be told as nobody's."""
    steps: list[str] = []
    begun, ending = asyncio.Event(), asyncio.Event()
    scope = anyio.CancelScope()

    async def work() -> None:
        begun.set()
        await ending.wait()
        await asyncio.sleep(0.001)
        steps.append("answered")
        if fails:
            raise ValueError("a full disk")

    async def wait() -> None:
        with scope:
            await told_to_end(work, ending.set)
            steps.append("told")

    task = asyncio.create_task(wait())
    await begun.wait()
    cancel(task, scope)
    await asyncio.wait((task,), timeout=PATIENCE_S)
    assert steps == ["answered"]
    assert task.cancelled() is (cancel is cancel_twice)


@CANCELS
async def test_tasks_that_are_cancelled_have_ended_before_who_cancels_them(cancel: Cancel) -> None:
    """A daemon would close the ledger under sessions that still end."""
    steps: list[str] = []
    begun, ending = asyncio.Event(), asyncio.Event()
    scope = anyio.CancelScope()

    async def serve() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await asyncio.sleep(0.001)
            steps.append("ended")

    async def fail() -> None:
        raise ValueError("a full disk")

    serving, failing = asyncio.create_task(serve()), asyncio.create_task(fail())

    async def stop() -> None:
        with scope:
            await cancelled(serving, failing)
        steps.append("left")

    await begun.wait()
    task = asyncio.create_task(stop())
    await ending.wait()
    cancel(task, scope)
    await asyncio.wait((task,), timeout=PATIENCE_S)
    assert steps == (["ended", "left"] if cancel is cancel_scope else ["ended"])
    assert serving.cancelled()
    assert isinstance(failing.exception(), ValueError)


@pytest.mark.parametrize("fails", [False, True])
async def test_what_a_thread_makes_for_nobody_is_undone(fails: bool) -> None:
    """A lease would be held, a directory left, until the process ends."""
    go, undone = threading.Event(), asyncio.Event()

    def make() -> str:
        assert go.wait(PATIENCE_S)
        if fails:
            raise OSError("there is no room")
        return "a lease"

    def undo(made: str) -> None:
        assert made == "a lease"
        undone.set()

    with anyio.move_on_after(0.01) as scope:
        await made_in_thread(make, undo)
    assert scope.cancelled_caught
    go.set()
    if fails:
        await asyncio.sleep(0.01)  # an exception that nobody takes would be a warning, and an error here
        assert not undone.is_set()
    else:
        with anyio.fail_after(PATIENCE_S):
            await undone.wait()


async def test_what_a_thread_makes_is_whoevers_waits() -> None:
    """It would be undone under the feet of its owner."""
    undone: list[str] = []
    assert await made_in_thread(lambda: "a lease", undone.append) == "a lease"
    await asyncio.sleep(0)
    assert undone == []


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


@pytest.mark.parametrize("when", ["before", "meanwhile", "late"])
async def test_a_token_or_the_time_ends_a_block(when: str) -> None:
    """A tool would work on for somebody who has given up."""
    token = CancelToken()
    if when == "before":
        token.cancel()
    with cancelled_by(token, 0.01 if when == "late" else 60) as scope:
        if when == "meanwhile":
            token.cancel()
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert token.cancelled == (when != "late")


async def test_a_token_is_of_no_account_after_its_block() -> None:
    """Whatever the task does next would be cancelled, too."""
    token = CancelToken()
    with cancelled_by(token) as scope:
        pass
    token.cancel()
    assert not scope.cancel_called
