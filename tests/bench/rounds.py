"""The method: short rounds of alternating samples, so that a shared machine's moods hit both sides alike.

A process keeps the place in memory and on the cores that it happened to get, which moves its figures by a quarter: so
the rounds are repeated on fresh processes, and the median is one over all.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median

Sample = Callable[[], Awaitable[float]]
"""Takes one sample: a number."""

Call = Callable[[], Awaitable[object]]
"""Makes one call and waits for its end."""

Table = list[list[float]]
"""A list of numbers for each sample, one number a round."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: `rounds` of short samples, `repeats` on fresh processes."""

    rounds: int
    repeats: int


async def alternate(rounds: int, *samples: Sample) -> Table:
    """Take each sample once a round, the last first in every other round; one list of numbers for each.

    A round before the first warms up and does not count.
    """
    taken: Table = [[] for _ in samples]
    order = list(range(len(samples)))
    for number in range(rounds + 1):
        for index in order:
            value = await samples[index]()
            if number:
                taken[index].append(value)
        order.reverse()
    return taken


async def repeat(times: int, measure: Callable[[], Awaitable[Table]]) -> Table:
    """Measure so often, each time on fresh processes, and put the rounds of all together."""
    tables = [await measure() for _ in range(times)]
    return [[value for part in parts for value in part] for parts in zip(*tables, strict=True)]


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
