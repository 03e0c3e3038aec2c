"""Races for the file tools without chance: what a name leads to changes just before any one system call of theirs.

`swapping` is the same by a thread and luck; here no moment is left out, however short.  A check that looks at a path,
before or after what it is for, falls each time.
"""

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from types import FrameType
from typing import Any, Final

WIDTHS: Final = (1, 2, 1000)  # how many system calls see the change before it is undone; the last: all that follow


class Moments:
    """Calls `flip` before the system calls of given numbers, in the threads that it is the profiler of."""

    def __init__(self, flip: Callable[[], None]) -> None:
        self._flip = flip
        self._due = set[int]()
        self._calls = self.flips = 0

    def set(self, due: set[int]) -> None:
        """From now on calls are counted from 0."""
        self._due, self._calls, self.flips = due, 0, 0

    def profile(self, frame: FrameType, event: str, called: Any) -> None:
        """What `threading.setprofile` wants; nothing is profiled while it runs, so flipping counts for nothing."""
        if event == "c_call" and getattr(called, "__module__", None) == "posix":
            if self._calls in self._due:
                self._flip()
                self.flips += 1
            self._calls += 1


async def at_every_moment(use: Callable[[], Awaitable[object]], flip: Callable[[], None]) -> set[object]:
    """All answers, and the types of the failures, of `use` in threads, with a change at each moment of it.

    Args:
        use: what is tried, from both states that there are.
        flip: changes the one state into the other; in the end all is as it was.
    """
    answers = set[object]()
    with _watched(flip) as moments:
        for _ in range(2):
            for width in WIDTHS:
                for moment in count():
                    moments.set({moment, moment + width})
                    answers.add(await answer(use))
                    flips = moments.flips
                    moments.set(set())
                    if flips == 1:
                        flip()
                    if not flips:
                        break
            flip()
    return answers


async def answer(use: Callable[[], Awaitable[object]]) -> object:
    """What it returns, or the type of its failure."""
    try:
        return await use()
    except OSError as error:
        return type(error)


@contextmanager
def _watched(flip: Callable[[], None]) -> Iterator[Moments]:
    moments = Moments(flip)
    threading.setprofile(moments.profile)
    try:
        yield moments
    finally:
        threading.setprofile(None)
        moments.set(set())
