"""A calm client beside one that floods the same server, by way of the product and with calls of 20 ms.

Both are in this process, told apart as a host tells its clients apart.  One server works on many calls at once, the
other on one: what it was given before cannot be taken back, and of two clients that always want it each has every other
call, so that twice its time is the least there.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from support.config.places import row, short_folder, write_config

from quarterdeck.app import open_quarterdeck
from quarterdeck.config.settings import Settings
from quarterdeck.interop import QUALIFIER
from quarterdeck.route.router import Router
from quarterdeck_protocol.tools import CallEnd, Client, RawCall, WireResult

from .finding import Finding, Target
from .rounds import Effort

CALM: Final = Target(required=2.0, goal=1.2)

FLOOD: Final = 1000
"""Calls of the flooding client under way at any time."""

CALLS: Final = 200
"""Of the calm client, one after the other, of which two may be slower."""

WARM_UP_S: Final = 5.0
"""Before the calm client is measured beside the flood: it has come some time ago, as most have."""

START_S: Final = 60.0

WAYS: Final = {
    "that works on many calls": (f"many{QUALIFIER}slow", b'{"seconds":0.02}'),
    "that works on one call": (f"one{QUALIFIER}work", b'{"ms":20}'),
}


async def measure(effort: Effort) -> list[Finding]:
    """Both servers, alone and beside the flood."""
    findings = []
    async with _box() as box:
        for name, (tool, arguments) in WAYS.items():
            alone, beside = [], []
            for _ in range(effort.repeats):
                alone.append(await _p99(box, tool, arguments))
                async with asyncio.TaskGroup() as tasks:
                    flood = [tasks.create_task(_flood(box, tool, arguments)) for _ in range(FLOOD)]
                    until = time.monotonic() + WARM_UP_S
                    while time.monotonic() < until:
                        await _call(box, tool, arguments, "calm")
                    beside.append(await _p99(box, tool, arguments))
                    for one in flood:
                        one.cancel()
            what = f"a calm client's p99 beside a flood, server {name}"
            findings.append(Finding.of_rounds(what, "ms", CALM, beside, alone, f"{FLOOD:,} calls of 20 ms under way"))
    return findings


@asynccontextmanager
async def _box() -> AsyncIterator[Router]:
    with short_folder() as folder:
        path = write_config(folder / "servers.json", many=row("echo"), one=row("one_hand"))
        async with open_quarterdeck(Settings.load([path])) as product:
            await product.finished(START_S)
            yield product.router


async def _p99(box: Router, tool: str, arguments: bytes) -> float:
    times = []
    for _ in range(CALLS):
        started = time.perf_counter()
        await _call(box, tool, arguments, "calm")
        times.append(time.perf_counter() - started)
    return sorted(times)[-3] * 1000


async def _flood(box: Router, tool: str, arguments: bytes) -> None:
    while True:
        await _call(box, tool, arguments, "flood")


async def _call(box: Router, tool: str, arguments: bytes, client: str) -> None:
    settled: asyncio.Future[CallEnd] = asyncio.get_running_loop().create_future()

    def settle(end: CallEnd) -> None:
        if not settled.done():
            settled.set_result(end)

    call = box.begin(RawCall(tool, arguments, client=Client(client, client)), settle)
    assert call is not None
    try:
        assert isinstance(await settled, WireResult)
    except asyncio.CancelledError:
        call.cancel()
        raise
