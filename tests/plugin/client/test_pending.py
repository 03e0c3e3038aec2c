"""What comes before a result is handled by whoever waits, in the order in which it came."""

import asyncio
import threading
from concurrent.futures import Future

import pytest

from quarterdeck_pytest.client.pending import Inbox, McpTestError, Pending
from quarterdeck_pytest.messages import Meanwhile, Progressed

WAIT_S = 60.0


def pending(inbox: Inbox) -> tuple[Pending[object], "Future[object]"]:
    future: Future[object] = Future()
    return Pending(future, lambda value: value, inbox=inbox), future


def test_a_plain_test_handles_it_in_its_own_thread() -> None:
    """An assertion of a handler would fail a thread of ours, and not the test."""
    threads: list[threading.Thread] = []
    inbox = Inbox(lambda item: threads.append(threading.current_thread()))
    waiting, future = pending(inbox)

    def come() -> None:
        inbox.put(Progressed(1, 1))
        inbox.put(Progressed(1, 2))
        future.set_result("end")

    reader = threading.Thread(target=come)
    reader.start()
    assert waiting.result(WAIT_S) == "end"
    reader.join()
    assert threads == [threading.current_thread()] * 2


def test_what_a_handler_raises_ends_the_wait_and_gives_the_request_up() -> None:
    """The test would wait on for a server that waits for its answer."""

    def handle(_: Meanwhile) -> None:
        raise AssertionError("not that")

    ends: list[object] = []
    inbox = Inbox(handle)
    waiting, future = pending(inbox)
    inbox.put(Progressed(1, 1))
    with pytest.raises(AssertionError, match="not that"):
        waiting.noted(ends.append).result(WAIT_S)
    assert future.cancelled()
    assert [str(end) for end in ends] == ["not that"]


def test_a_wait_has_its_time_though_nothing_comes() -> None:
    """A server that neither answers nor asks would hold its test for ever."""
    waiting, future = pending(Inbox(lambda _: None))
    with pytest.raises(TimeoutError):
        waiting.result(0.01)
    assert future.cancelled()


def test_a_coroutine_is_for_coroutines() -> None:
    """It would never run, and Python would warn of it somewhere else."""

    async def later() -> None:
        """Never run."""

    inbox = Inbox(lambda _: later())
    waiting, _ = pending(inbox)
    inbox.put(Progressed(1, 1))
    with pytest.raises(McpTestError, match="use mcp_async_client"):
        waiting.result(WAIT_S)


async def test_a_coroutine_handles_it_in_its_own_task() -> None:
    """A handler's loop would be another than the test's."""
    tasks: list[object] = []
    has_one = asyncio.Event()

    async def handle(_: Meanwhile) -> None:
        await asyncio.sleep(0)
        tasks.append(asyncio.current_task())
        has_one.set()

    inbox = Inbox(handle)
    waiting, future = pending(inbox)
    task = asyncio.ensure_future(_awaited(waiting))
    inbox.put(Progressed(1, 1))
    await asyncio.wait_for(has_one.wait(), WAIT_S)
    assert not task.done()
    inbox.put(Progressed(1, 2))
    await asyncio.to_thread(future.set_result, "end")
    assert await task == "end"
    assert tasks == [task, task]


async def _awaited(waiting: Pending[object]) -> object:
    return await waiting
