"""A result of 20 MB: it passes in one piece, and how long it holds up other calls on the same supervisor's loop."""

import asyncio
import time
from statistics import median
from typing import Final

from support.servers.real_endpoints import opened, pretend

from quarterdeck.interop import ServerEndpointImpl
from quarterdeck_protocol.tools import RawCall

from .finding import Finding, Target
from .peers import endpoint_call
from .rounds import Call, Effort

STALL_MS: Final = Target(required=50.0)

TEXT_BYTES: Final = 20 * 1000 * 1000

HEAD: Final = b'{"content":[{"type":"text","text":"'
TAIL: Final = b'"}]}'
"""What stands around the text, as the server writes it."""


async def measure(effort: Effort) -> list[Finding]:
    """The longest neighbour's call while a large result passes, against the longest in as much time without one."""
    stalls, calms, taken = [], [], []
    async with (
        opened(pretend("echo", server_id="neighbour")) as neighbour,
        opened(pretend("echo", server_id="large")) as large,
    ):
        call = endpoint_call(neighbour)
        for number in range(effort.rounds + 1):
            started = time.perf_counter()
            stall_ms = await _longest_beside(call, asyncio.create_task(_pass_large(large)))
            taken_s = time.perf_counter() - started
            calm_ms = await _longest_beside(call, asyncio.create_task(asyncio.sleep(taken_s)))
            if number:
                stalls.append(stall_ms)
                calms.append(calm_ms)
                taken.append(taken_s * 1000)
    note = f"longest of all {max(stalls):.0f} ms; calm {median(calms):.1f} ms; the result takes {median(taken):.0f} ms"
    return [Finding("longest call beside a 20 MB result", "ms", STALL_MS, median(stalls), note=note)]


async def _pass_large(endpoint: ServerEndpointImpl) -> None:
    result = await endpoint.result_of(RawCall("big", b'{"bytes":%d}' % TEXT_BYTES))
    assert len(result.body) == len(HEAD) + TEXT_BYTES + len(TAIL)
    assert result.body.startswith(HEAD)
    assert result.body.endswith(TAIL)


async def _longest_beside(call: Call, other: "asyncio.Task[None]") -> float:
    """The longest of the calls that were made, one after the other, until `other` ended; milliseconds."""
    longest = 0.0
    while not other.done():
        started = time.perf_counter()
        await call()
        longest = max(longest, time.perf_counter() - started)
    await other
    return longest * 1000
