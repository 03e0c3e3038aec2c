"""Run asynchronous work of a command, and end it in order when a signal comes."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Final, TypeVar

T = TypeVar("T")

ENDING: Final = (signal.SIGINT, signal.SIGTERM)


class InterruptedBySignal(Exception):  # noqa: N818 - no error: somebody wants us to end
    """The work was cut short, and has cleaned up."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


def run(work: Callable[[], Coroutine[None, None, T]], *, ends_on_hangup: bool = False) -> T:
    """The result of `work`, in an event loop of its own.

    The first SIGINT or SIGTERM cancels it; a second one ends the process at once.  SIGHUP does too with
    `ends_on_hangup`, else it is ignored: whoever holds our stdin ends us by closing it.

    Raises:
        InterruptedBySignal: a signal came, and the work has ended.
    """
    return asyncio.run(_run(work, (*ENDING, signal.SIGHUP) if ends_on_hangup else ENDING))


async def _run(work: Callable[[], Coroutine[None, None, T]], ending: tuple[signal.Signals, ...]) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    came: list[int] = []

    def on_signal(number: int) -> None:
        if came:
            os._exit(128 + number)
        came.append(number)
        task.cancel()

    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    for number in ending:
        loop.add_signal_handler(number, on_signal, number)
    try:
        return await work()
    except asyncio.CancelledError:
        if came:
            raise InterruptedBySignal(came[0]) from None
        raise
    finally:
        for number in (*ENDING, signal.SIGHUP):
            loop.remove_signal_handler(number)
