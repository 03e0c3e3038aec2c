"""What a bad server costs the others: how soon a death is told, and what a flood does to a neighbour."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from statistics import median
from typing import Final

from support.real import fault_of, hostile, opened, pretend

from .finding import Finding, Target
from .peers import endpoint_call
from .rounds import Call, Effort, Sample, alternate, p50_of

TOLD_MS: Final = Target(required=200.0, goal=20.0)
NEIGHBOUR: Final = Target(required=2.0)

CALLS: Final = 40
"""In one sample."""

JUNK_LINES: Final = 20_000
"""In one call of the flooding server; it is called again and again."""

Flood = Callable[[], AbstractAsyncContextManager[None]]
"""Floods for as long as it is entered."""


async def measure(effort: Effort) -> list[Finding]:
    """Deaths, then floods."""
    deaths = [await _death_ms() for _ in range(max(3, effort.rounds // 2))]
    async with opened(pretend("echo", server_id="neighbour")) as neighbour:
        call = endpoint_call(neighbour)
        junk = await _beside_junk(call, effort.rounds)
        news = await _beside_notifications(call, effort.rounds)
    return [
        Finding("SIGKILL of a server to the caller's fault", "ms", TOLD_MS, median(deaths), note=_worst(deaths)),
        Finding.of_rounds("a neighbour's p50 beside a flood of junk lines", "ms", NEIGHBOUR, *junk),
        Finding.of_rounds("a neighbour's p50 beside a flood of notifications", "ms", NEIGHBOUR, *news),
    ]


def _worst(times_ms: list[float]) -> str:
    return f"longest {max(times_ms):.1f} ms"


async def _death_ms() -> float:
    """Kill a server that works on a call.  The echo comes back once it has the call: it answers in order."""
    async with opened(pretend("echo", server_id="mortal")) as endpoint:
        call = asyncio.create_task(fault_of(endpoint.call("hang", b"{}")))
        await asyncio.sleep(0)
        await endpoint_call(endpoint)()
        pid = endpoint.status().pid
        assert pid is not None
        started = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        fault = await call
        taken_ms = (time.perf_counter() - started) * 1000
        assert fault.kind == "tool_error", fault
        return taken_ms


async def _beside_junk(call: Call, rounds: int) -> tuple[list[float], list[float]]:
    async with opened(pretend("echo", server_id="junk", call_timeout_s=600.0)) as flooding:

        @asynccontextmanager
        async def flood() -> AsyncIterator[None]:
            is_over = False

            async def go_on() -> None:
                while not is_over:
                    await flooding.call("flood", b'{"n":%d}' % JUNK_LINES)

            going = asyncio.create_task(go_on())
            yield
            is_over = True
            await going

        return await _calm_and_beside(call, flood, rounds)


async def _beside_notifications(call: Call, rounds: int) -> tuple[list[float], list[float]]:
    async with opened(hostile("notification_flood")) as flooding:
        pid = flooding.status().pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)

        @asynccontextmanager
        async def flood() -> AsyncIterator[None]:
            os.kill(pid, signal.SIGCONT)
            yield
            os.kill(pid, signal.SIGSTOP)

        try:
            return await _calm_and_beside(call, flood, rounds)
        finally:
            os.kill(pid, signal.SIGCONT)


async def _calm_and_beside(call: Call, flood: Flood, rounds: int) -> tuple[list[float], list[float]]:
    """A neighbour's p50 beside the flood, and without it, in alternating rounds."""
    calm = p50_of(call, CALLS)

    async def beside() -> float:
        async with flood():
            await call()
            return await calm()

    quiet, loud = await alternate(rounds, _after(call, calm), beside)
    return loud, quiet


def _after(call: Call, sample: Sample) -> Sample:
    """The sample after a few calls in which the last flood runs dry."""

    async def settled() -> float:
        for _ in range(CALLS // 2):
            await call()
        return await sample()

    return settled
