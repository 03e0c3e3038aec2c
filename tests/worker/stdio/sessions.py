"""One server's life under way over a played process, and what it told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from support.servers.greetings import INITIALIZED, LEGACY, Answer
from support.waiting import PATIENCE_S

from quarterdeck_protocol.faults import FaultRecord
from quarterdeck_protocol.link.frames import Call, List, News, OpenOrder, StdioServer
from quarterdeck_sandbox.program.launch import LaunchPlan
from quarterdeck_worker.connection import Connection
from quarterdeck_worker.notifications import Notifier
from quarterdeck_worker.server import Outcome, ServerFault, ServerRun
from quarterdeck_worker.stdio.run import run_process

from .played_process import PlayedProcess

ANSWERS: dict[str, Answer] = {
    "initialize": INITIALIZED,
    "tools/list": {"result": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}},
    "tools/call": lambda params: {"result": {"content": [], "asked": params}},
}


class Stage:
    """A life under way, and what it told."""

    def __init__(self, answers: dict[str, Answer], order: OpenOrder) -> None:
        self.process = PlayedProcess(answers)
        self.plans: list[LaunchPlan] = []
        self.opened: list[Connection] = []
        self.lost: list[FaultRecord] = []
        self.news: list[News] = []
        self.bodies: list[bytes] = []
        self.ends: dict[int, asyncio.Future[Outcome]] = {}
        self.run = ServerRun(Notifier(self._post, lambda: 0.0), self._on_open, self.lost.append, self._on_end)
        self.is_open = anyio.Event()
        self.task = asyncio.ensure_future(run_process(order, self.run, self._launch))

    def _post(self, frame: News, body: bytes = b"") -> bool:
        self.news.append(frame)
        self.bodies.append(body)
        return True

    def _on_open(self, server: Connection) -> None:
        self.opened.append(server)
        self.is_open.set()

    def _on_end(self, request_id: int, outcome: Outcome) -> None:
        self.ends.pop(request_id).set_result(outcome)

    async def _launch(self, plan: LaunchPlan) -> Any:
        self.plans.append(plan)
        return self.process

    @property
    def server(self) -> Connection:
        [server] = self.opened
        return server

    async def fault(self) -> FaultRecord:
        with pytest.raises(ServerFault) as caught:
            await self.task
        assert str(caught.value) == caught.value.record.message
        return caught.value.record


@asynccontextmanager
async def stage(
    answers: dict[str, Answer] | None = None, *, era: str = LEGACY, max_result_bytes: int = 10_000
) -> AsyncIterator[Stage]:
    """The life of a stdio server; stopped at the end, with nothing left."""
    server = StdioServer("/bin/sh", ("-c", "x"))
    order = OpenOrder(server, max_result_bytes=max_result_bytes, env={"A": "1"}, home="/", protocol=era)
    played = Stage(ANSWERS if answers is None else answers, order)
    with anyio.fail_after(PATIENCE_S):
        yield played
        played.run.stop.set()
        await asyncio.gather(played.task, return_exceptions=True)
    if played.plans:
        assert len(played.process.stopped) == 1
        assert played.process.is_released
    else:
        played.process.dies(0)
        played.process.close_fds()


async def opened(played: Stage) -> Connection:
    await played.is_open.wait()
    return played.server


async def ended(played: Stage, request_id: int = 1) -> Outcome:
    end = played.ends[request_id] = asyncio.get_running_loop().create_future()
    assert played.server.ask(Call(request_id, 30.0, "echo"), b'{"a":1}') is None
    return await end


async def listed(played: Stage, request_id: int = 2) -> Outcome:
    end = played.ends[request_id] = asyncio.get_running_loop().create_future()
    assert played.server.ask(List(request_id, 30.0)) is None
    return await end
