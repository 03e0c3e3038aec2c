"""Calls inside the supervisor's process (toolbox, link, worker, server) against the plain SDK client's.

Both sides run on one event loop, each with an echo server of its own.
"""

from typing import Final

from .finding import Finding, Target
from .peers import mounted, plain_client, preloaded, raw_call, sdk_call, toolbox_call
from .rounds import Effort, Table, alternate, p50_of, rate_of, repeat

LATENCY: Final = Target(required=0.75, goal=0.4)
RATE: Final = Target(required=5.5, goal=8.0, more_is_better=True)

OF_VALUES_LATENCY: Final = Target(required=1.0, goal=0.4)
OF_VALUES_RATE: Final = Target(required=4.0, goal=7.0, more_is_better=True)

CALLS_AT_ONE: Final = 60
CALLS_AT_MANY: Final = 600
"""In one sample: a fifth of a second at most."""

MANY: Final = 100
"""Calls under way at once."""


async def measure(effort: Effort) -> list[Finding]:
    async def compare() -> Table:
        async with mounted() as box, plain_client() as client:
            ways = (sdk_call(client), raw_call(box), toolbox_call(box))
            return [
                *await alternate(effort.rounds, *(p50_of(way, CALLS_AT_ONE) for way in ways)),
                *await alternate(effort.rounds, *(rate_of(way, CALLS_AT_MANY, MANY) for way in ways)),
            ]

    async with preloaded():
        table = await repeat(effort.repeats, compare)
    sdk_ms, short_ms, values_ms, sdk_rate, short_rate, values_rate = table
    return [
        Finding.of_rounds("call, JSON in and out, p50", "ms", LATENCY, short_ms, sdk_ms),
        Finding.of_rounds("call, values in and out, p50", "ms", OF_VALUES_LATENCY, values_ms, sdk_ms),
        Finding.of_rounds(f"{MANY} at once, JSON in and out", "calls/s", RATE, short_rate, sdk_rate),
        Finding.of_rounds(f"{MANY} at once, values in and out", "calls/s", OF_VALUES_RATE, values_rate, sdk_rate),
    ]
