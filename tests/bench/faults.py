"""What a bad server costs the others: how soon a death is told, and what a flood does to a neighbour."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from statistics import median
from typing import Final

from support.servers.real_endpoints import fault_of, hostile, opened, pretend

from quarterdeck_protocol.tools import RawCall

from .finding import Finding, Target
from .peers import endpoint_call, preloaded
from .rounds import Effort, Table, alternate, p50_of, repeat

TOLD_MS: Final = Target(required=200.0, goal=20.0)
NEIGHBOUR: Final = Target(required=2.0)

CALLS: Final = 200
"""In one sample: long enough that the flood is at its height."""

JUNK_LINES: Final = 20_000
"""In one call of the flooding server; it is called again and again."""

Flood = Callable[[], AbstractAsyncContextManager[None]]
"""Floods for as long as it is entered."""


async def measure(effort: Effort) -> list[Finding]:
    async with preloaded():
        deaths = [await _death_ms() for _ in range(effort.rounds)]
        junk, no_junk = await repeat(effort.repeats, lambda: _beside(_junk_flood(), effort.rounds))
        news, no_news = await repeat(effort.repeats, lambda: _beside(_news_flood(), effort.rounds))
    return [
        Finding("SIGKILL of a server to the caller's fault", "ms", TOLD_MS, median(deaths), note=_worst(deaths)),
        Finding.of_rounds("a neighbour's p50 beside a flood of junk lines", "ms", NEIGHBOUR, junk, no_junk),
        Finding.of_rounds("a neighbour's p50 beside a flood of notifications", "ms", NEIGHBOUR, news, no_news),
    ]


def _worst(times_ms: list[float]) -> str:
    return f"longest {max(times_ms):.1f} ms"


async def _death_ms() -> float:
    """Kill a server that works on a call.  The echo comes back once it has the call: it answers in order."""
    async with opened(pretend("echo", server_id="mortal")) as endpoint:
        call = asyncio.create_task(fault_of(endpoint.result_of(RawCall("hang", b"{}"))))
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


async def _beside(flooding: AbstractAsyncContextManager[Flood], rounds: int) -> Table:
    """A neighbour's p50 beside the flood, and without it, in alternating rounds."""
    async with opened(pretend("echo", server_id="neighbour")) as neighbour, flooding as flood:
        call = endpoint_call(neighbour)
        p50 = p50_of(call, CALLS)

        async def loud() -> float:
            async with flood():
                await call()
                return await p50()

        async def calm() -> float:
            # The last flood runs dry first.
            for _ in range(CALLS):
                await call()
            return await p50()

        return await alternate(rounds, loud, calm)


@asynccontextmanager
async def _junk_flood() -> AsyncIterator[Flood]:
    """A server that writes junk lines as fast as it can, for as long as it is called."""
    async with opened(pretend("echo", server_id="junk", call_timeout_s=600.0)) as server:

        @asynccontextmanager
        async def flood() -> AsyncIterator[None]:
            is_over = False

            async def go_on() -> None:
                while not is_over:
                    await server.result_of(RawCall("flood", b'{"n":%d}' % JUNK_LINES))

            going = asyncio.create_task(go_on())
            try:
                yield
            finally:
                is_over = True
                await going

        yield flood


@asynccontextmanager
async def _news_flood() -> AsyncIterator[Flood]:
    """A server that notifies for ever, stopped by a signal in between."""
    async with opened(hostile("notification_flood")) as server:
        pid = server.status().pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)

        @asynccontextmanager
        async def flood() -> AsyncIterator[None]:
            os.kill(pid, signal.SIGCONT)
            try:
                yield
            finally:
                os.kill(pid, signal.SIGSTOP)

        try:
            yield flood
        finally:
            os.kill(pid, signal.SIGCONT)
