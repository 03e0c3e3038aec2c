"""The method: short rounds of alternating samples, so that a shared machine's moods hit both sides alike."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median

Sample = Callable[[], Awaitable[float]]
"""Takes one sample: a number."""

Call = Callable[[], Awaitable[object]]
"""Makes one call and waits for its end."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: `rounds` of short samples, `repeats` of what takes seconds."""

    rounds: int
    repeats: int


async def alternate(rounds: int, *samples: Sample) -> list[list[float]]:
    """Take each sample once a round, the last first in every other round; one list of numbers for each.

    A round before the first warms up and does not count.
    """
    taken: list[list[float]] = [[] for _ in samples]
    order = list(range(len(samples)))
    for number in range(rounds + 1):
        for index in order:
            value = await samples[index]()
            if number:
                taken[index].append(value)
        order.reverse()
    return taken


def p50_of(call: Call, calls: int) -> Sample:
    """The median duration of so many calls, one after the other, in milliseconds."""

    async def sample() -> float:
        times = []
        for _ in range(calls):
            started = time.perf_counter()
            await call()
            times.append(time.perf_counter() - started)
        return median(times) * 1000

    return sample


def rate_of(call: Call, calls: int, concurrency: int) -> Sample:
    """Calls a second, with `concurrency` of them under way at any time."""

    async def lane() -> None:
        for _ in range(calls // concurrency):
            await call()

    async def sample() -> float:
        started = time.perf_counter()
        await asyncio.gather(*(lane() for _ in range(concurrency)))
        return calls / (time.perf_counter() - started)

    return sample
