"""One server's start by step: wall, and the CPU of each process, between marks that the supervisor sees.

In this process, one server after the other on a machine that does nothing else: what is counted is the work of one
start, not how starts share the cores.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Final

import psutil
import pytest
from support.servers.real_endpoints import pretend

from quarterdeck.fleet.endpoint import ServerEndpointImpl, create_server_endpoint
from quarterdeck.fleet.workers.handle import WorkerHandle
from quarterdeck.fleet.workers.runtime import Runtime
from quarterdeck_protocol.link.frames import ServerStart
from quarterdeck_sandbox.policy.promises import Receipt

from .peers import ECHO, preloaded
from .process_tree import Role, costs_of

WARM_UP: Final = 2
"""Starts that do not count: the first loads what is loaded late."""

LOOK_S: Final = 0.001

ZYGOTE: Final = "the zygote ready (once, its interpreter included)"
WORKER: Final = "forked, the worker's proof taken"
CONFINED: Final = "confined: bubblewrap, network, gate judged, let go"
GREETED: Final = "the server greeted (its interpreter included)"
LISTED: Final = "its tools listed and read"
CLOSED: Final = "closed"

STEPS: Final = (ZYGOTE, WORKER, CONFINED, GREETED, LISTED, CLOSED)


@dataclass(frozen=True, slots=True)
class Step:
    """What one step took: wall in milliseconds, CPU by role since the mark before."""

    name: str
    wall_ms: float
    cpu_ms: dict[Role, float]


class Marks:
    """Marks of one start; what looking at /proc takes is taken off."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.steps: list[Step] = []
        self._before = costs_of(pid)
        self._at = time.perf_counter()

    def pass_(self, name: str) -> None:
        now = time.perf_counter()
        since = costs_of(self._pid).since(self._before)
        used = {role: cost.cpu_ms for role, cost in since.of.items()}
        self.steps.append(Step(name, (now - self._at) * 1000, used))
        self._before = costs_of(self._pid)
        self._at = time.perf_counter()


async def steps(repeats: int) -> list[Step]:
    marked: list[list[Step]] = []
    async with preloaded() as runtime:
        pid = psutil.Process().pid
        first = Marks(pid)
        runtime.warm_up()
        handle = await runtime.start_worker("first", create_server_endpoint(pretend(ECHO)))
        first.pass_(ZYGOTE)
        await handle.dismiss(0)
        for _ in range(WARM_UP + repeats):
            marks = Marks(pid)
            with _marking(marks):
                endpoint = create_server_endpoint(pretend(ECHO))
                await endpoint.open()
                marks.pass_(GREETED)
                await endpoint.list_tools()
                marks.pass_(LISTED)
                await endpoint.close()
                marks.pass_(CLOSED)
            marked.append(marks.steps)
            await asyncio.sleep(LOOK_S)
    return [*first.steps, *(_median(each) for each in zip(*marked[WARM_UP:], strict=True))]


@contextmanager
def _marking(marks: Marks) -> Iterator[None]:
    start_worker, on_started = Runtime.start_worker, ServerEndpointImpl.on_started

    async def start(self: Runtime, *args: object, **options: object) -> WorkerHandle:
        handle = await start_worker(self, *args, **options)  # type: ignore[arg-type]
        marks.pass_(WORKER)
        return handle

    def started(self: ServerEndpointImpl, start: ServerStart, receipt: Receipt) -> None:
        marks.pass_(CONFINED)
        on_started(self, start, receipt)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runtime, "start_worker", start)
        patch.setattr(ServerEndpointImpl, "on_started", started)
        yield


def _median(taken: tuple[Step, ...]) -> Step:
    # What has ended is not counted any more: a process that is gone used nothing.
    roles = {role: max(0.0, median(step.cpu_ms[role] for step in taken)) for role in Role}
    return Step(taken[0].name, median(step.wall_ms for step in taken), roles)
