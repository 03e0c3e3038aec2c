"""Calls of `echo` at a remote server whose answers a test plays, through all that a worker has between them."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from quarterdeck_protocol.faults import FaultRecord
from quarterdeck_protocol.link.frames import Call, News, OpenOrder, RemoteServer
from quarterdeck_worker.connection import Connection
from quarterdeck_worker.http.run import run_remote
from quarterdeck_worker.http.streams import Timing
from quarterdeck_worker.notifications import Notifier
from quarterdeck_worker.server import Outcome, ServerFault, ServerRun
from support.servers.played_http import HttpAsked, Play, Said, greeted, played_http
from support.waiting import PATIENCE_S


class Caller:
    """Calls `echo` of a server that is open."""

    def __init__(self) -> None:
        self.server: Connection
        self._ends: dict[int, Callable[[Outcome], None]] = {}
        self.news: list[News] = []
        self.is_open = anyio.Event()
        self.is_lost = anyio.Event()
        self.loss: FaultRecord | None = None
        self._last = 0

    def opened(self, server: Connection) -> None:
        self.server = server
        self.is_open.set()

    def lost(self, loss: FaultRecord) -> None:
        self.loss = loss
        self.is_lost.set()

    def told(self, frame: News, _body: bytes = b"") -> bool:
        self.news.append(frame)
        return True

    def on_end(self, number: int, outcome: Outcome) -> None:
        self._ends.pop(number, lambda _: None)(outcome)

    def begin(self, text: str, done: Callable[[Outcome], None] = lambda _: None) -> int:
        """Begin a call with this text; its number."""
        self._last += 1
        self._ends[self._last] = done
        refused = self.server.ask(Call(self._last, 60.0, "echo"), json.dumps({"text": text}).encode())
        assert refused is None
        return self._last

    async def call(self, text: str) -> Outcome:
        ended, found = anyio.Event(), list[Outcome]()

        def done(outcome: Outcome) -> None:
            found.append(outcome)
            ended.set()

        self.begin(text, done)
        await ended.wait()
        return found[0]

    async def fault(self, text: str) -> FaultRecord:
        outcome = await self.call(text)
        assert isinstance(outcome, FaultRecord), outcome
        return outcome


@asynccontextmanager
async def calling(
    play: Play,
    gets: Play | None = None,
    notes: Callable[[HttpAsked], Said] | None = None,
    timing: Timing | None = None,
    **order: Any,
) -> AsyncIterator[Caller]:
    """Calls to a server that is greeted, and answers calls so, a GET as `gets` says and a notification as `notes`."""

    async def answers(asked: HttpAsked) -> Said:
        if gets is not None and asked.method == "GET":
            return await gets(asked)
        if notes is not None and (said := notes(asked)) is not None:
            return said
        found = greeted(asked)
        return found if found is not None else await play(asked)

    caller = Caller()
    run = ServerRun(Notifier(caller.told, lambda: 0.0), caller.opened, caller.lost, caller.on_end)
    with anyio.fail_after(PATIENCE_S):
        async with played_http(answers) as url, anyio.create_task_group() as tasks:

            async def live() -> None:
                try:
                    await run_remote(OpenOrder(RemoteServer(url), **order), run, timing=timing)
                except ServerFault as fault:
                    caller.lost(fault.record)

            tasks.start_soon(live)
            await caller.is_open.wait()
            yield caller
            run.stop.set()


def silent_run() -> ServerRun:
    """A run of which nobody is told anything."""
    return ServerRun(Notifier(lambda *_: True, lambda: 0.0), lambda _: None, lambda _: None, lambda *_: None)
