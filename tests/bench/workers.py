"""What a worker costs: its start through the zygote against a fresh interpreter's, and its private memory."""

import asyncio
import os
import time
from statistics import median
from typing import Final

import psutil
from support.servers.real_endpoints import opened, pretend

from quarterdeck.fleet.workers.interpreters import SPAWN_VARIABLE
from quarterdeck.fleet.workers.runtime import Runtime
from quarterdeck_protocol.faults import FaultRecord
from quarterdeck_protocol.link.frames import ServerStart
from quarterdeck_sandbox.policy.promises import Receipt

from .finding import Finding, Target
from .peers import endpoint_call, preloaded
from .rounds import Effort

START: Final = Target(required=15.0, goal=25.0, more_is_better=True)
"""A fresh interpreter takes a hundred milliseconds, as it loads no SDK."""

UNOPENED_MIB: Final = Target(required=4.0)
IDLE_MIB: Final = Target(required=5.0)
USED_MIB: Final = Target(required=6.0)

STARTS_A_ROUND: Final = 8
"""Forks for one fresh interpreter, which takes many times as long."""

WORKERS_WEIGHED: Final = 3

CALLS_BEFORE_WEIGHING: Final = 100

REST_S: Final = 8.0
"""Until a worker whose server has nothing to do has given back what it can: two looks, after its first few."""

MIB: Final = 1024 * 1024


class _Deaf:
    """An owner of workers who wants to hear nothing."""

    def on_list_changed(self, kind: str) -> None:
        """See `WorkerListener`."""

    def on_news(self, news: object, body: bytes) -> None:
        """See `WorkerListener`."""

    def on_asked(self, asked: object, params: bytes) -> None:
        """See `WorkerListener`."""

    def on_ask_ended(self, ask_id: int) -> None:
        """See `WorkerListener`."""

    def on_started(self, start: ServerStart, receipt: Receipt) -> None:
        """See `WorkerListener`."""

    def on_lost(self, fault: FaultRecord) -> None:
        """See `WorkerListener`."""


async def measure(effort: Effort) -> list[Finding]:
    return [*await _starts(effort.repeats), *await _weights()]


async def _starts(repeats: int) -> list[Finding]:
    ours, fresh = [], []
    async with preloaded() as runtime:
        await _start_ms(runtime)  # the zygote's own start, once a run
        for _ in range(repeats):
            ours.append(median([await _start_ms(runtime) for _ in range(STARTS_A_ROUND)]))
            fresh.append(await asyncio.to_thread(_fresh_start_ms))
    return [_faster("worker start, against a fresh worker's", ours, fresh)]


def _faster(measure: str, ours: list[float], reference: list[float]) -> Finding:
    ratio = median(other / mine for mine, other in zip(ours, reference, strict=True))
    return Finding(measure, "ms", START, median(ours), median(reference), ratio)


async def _start_ms(runtime: Runtime) -> float:
    started = time.perf_counter()
    handle = await runtime.start_worker("bench", _Deaf())
    taken_ms = (time.perf_counter() - started) * 1000
    await handle.dismiss(0)
    return taken_ms


def _fresh_start_ms() -> float:
    """A worker in an interpreter of its own, on an event loop, and so a runtime, of its own."""

    async def start() -> float:
        async with preloaded() as runtime:
            return await _start_ms(runtime)

    os.environ[SPAWN_VARIABLE] = "fresh"
    try:
        return asyncio.run(start())
    finally:
        del os.environ[SPAWN_VARIABLE]


async def _weights() -> list[Finding]:
    idle, opened_mib, used = [], [], []
    async with preloaded() as runtime:
        for _ in range(WORKERS_WEIGHED):
            handle = await runtime.start_worker("bench", _Deaf())
            idle.append(_private_mib(handle.pid))
            await handle.dismiss(0)
            async with opened(pretend("echo")) as endpoint:
                await endpoint.list_tools()
                worker = endpoint.status().worker_pid
                await asyncio.sleep(REST_S)
                opened_mib.append(_private_mib(worker))
                call = endpoint_call(endpoint)
                for _ in range(CALLS_BEFORE_WEIGHING):
                    await call()
                await asyncio.sleep(REST_S)
                used.append(_private_mib(worker))
    return [
        Finding("private memory of a worker, not opened", "MiB", UNOPENED_MIB, median(idle)),
        Finding("private memory, its server open and listed, at rest", "MiB", IDLE_MIB, median(opened_mib)),
        Finding(f"private memory, after {CALLS_BEFORE_WEIGHING} calls, at rest", "MiB", USED_MIB, median(used)),
    ]


def _private_mib(pid: int | None) -> float:
    """Pages that only this process has (USS): what one more worker costs."""
    assert pid is not None
    return float(psutil.Process(pid).memory_full_info().uss) / MIB
