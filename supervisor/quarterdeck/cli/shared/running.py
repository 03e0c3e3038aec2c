"""Run asynchronous work of a command, and end it in order when a signal comes."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import TypeVar

from . import signals

T = TypeVar("T")


def run(work: Callable[[], Coroutine[None, None, T]], *, outlives_terminal: bool = False) -> T:
    """The result of `work`, in an event loop of its own.

    The first SIGINT, SIGTERM or SIGHUP cancels it; a second one ends the process at once.  SIGHUP does nothing when it
    was ignored before, or with `outlives_terminal`: whoever holds our stdin ends us by closing it.

    Raises:
        InterruptedBySignal: a signal came, and the work has ended.
    """
    hears_hangup = signals.hears_hangup()
    ending = (*signals.ENDING, signal.SIGHUP) if hears_hangup and not outlives_terminal else signals.ENDING
    handled = (*signals.ENDING, signal.SIGHUP) if hears_hangup else signals.ENDING
    before = {number: signal.getsignal(number) for number in handled}
    try:
        return asyncio.run(_run(work, ending, handled))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _run(
    work: Callable[[], Coroutine[None, None, T]],
    ending: tuple[signal.Signals, ...],
    handled: tuple[signal.Signals, ...],
) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    came: list[int] = []

    def on_signal(number: int) -> None:
        if came:
            os._exit(128 + number)
        came.append(number)
        task.cancel()

    for number in handled:
        loop.add_signal_handler(number, on_signal if number in ending else lambda _: None, number)
    try:
        return await work()
    except asyncio.CancelledError:
        if came:
            raise signals.InterruptedBySignal(came[0]) from None
        raise
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
