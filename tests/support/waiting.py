"""Wait until something is so: across processes by asking again, in one event loop by letting it run."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import anyio

POLL_S: Final = 0.01

PATIENCE_S: Final = 30.0
"""Long enough for a loaded machine; a wait that succeeds ends at once."""

T = TypeVar("T")


def eventually(predicate: Callable[[], T], within_s: float = PATIENCE_S, what: str = "") -> T:
    """Ask until the answer is true, and return it.  Blocks: inside an event loop use `eventually_async`.

    Raises:
        AssertionError: it was not within `within_s` seconds; says `what` was waited for.
    """
    deadline = time.monotonic() + within_s
    asked = time.monotonic()
    while not (answer := predicate()):
        _check(deadline, within_s, what, predicate)
        time.sleep(_pause(asked))
        asked = time.monotonic()
    return answer


async def eventually_async(predicate: Callable[[], T], within_s: float = PATIENCE_S, what: str = "") -> T:
    """Ask until the answer is true, and return it, while the loop runs on.

    Raises:
        AssertionError: it was not within `within_s` seconds; says `what` was waited for.
    """
    deadline = time.monotonic() + within_s
    asked = time.monotonic()
    while not (answer := predicate()):
        _check(deadline, within_s, what, predicate)
        await asyncio.sleep(_pause(asked))
        asked = time.monotonic()
    return answer


def _pause(asked: float) -> float:
    """Until the next question: a dear one is asked less often, not to take the time of what is waited for."""
    return max(POLL_S, 3 * (time.monotonic() - asked))


def _check(deadline: float, within_s: float, what: str, predicate: Callable[[], object]) -> None:
    if time.monotonic() > deadline:
        raise AssertionError(f"not within {within_s} s: {what or predicate}")


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def until(is_so: Callable[[], object]) -> None:
    """Let the loop run until it is so: for what happens in this loop alone.

    Raises:
        TimeoutError: it was not within `PATIENCE_S`.
    """
    with anyio.fail_after(PATIENCE_S):
        while not is_so():
            await turns(1)


@contextmanager
def meanwhile(turn: Callable[[], None]) -> Iterator[None]:
    """Until the end of the block `turn` is called again and again, and must not fail."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            while not stop.is_set():
                turn()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert failures == []
