"""A worker from its order to its exit status, in this very process: the real socket, a played supervisor and server."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import pytest
from support.workers import CARD, PATIENCE_S

from quarterdeck.fleet.router import SOCKET_NAME, Router
from quarterdeck_protocol.io.driver import LinkDriver
from quarterdeck_protocol.link.frames import Answer, Close, Dossier, Open, OpenOrder, Reply, SpawnOrder
from quarterdeck_protocol.link.session import Greeted, Link, LinkEvent, Settled, Side
from quarterdeck_worker import main as main_module
from quarterdeck_worker.main import EXIT_LINK_LOST, VERSION
from quarterdeck_worker.session import Life, OpenServer

pytestmark = pytest.mark.anyio

TOKEN = b"one time only, 16 bytes or more"


class PlayedSupervisor:
    """The supervisor's end of the socket."""

    def __init__(self, folder: str) -> None:
        self.router = Router(Path(folder) / SOCKET_NAME)
        self.way = self.router.expect(TOKEN, lambda parts: self.driver.receive(parts), pytest.fail)  # noqa: PLW0108
        link = Link(Side.SUPERVISOR, token=TOKEN, version=VERSION, now=asyncio.get_running_loop().time())
        self._events: asyncio.Queue[LinkEvent] = asyncio.Queue()
        self.driver = LinkDriver(link, self.way, self._events.put_nowait)

    async def next(self) -> LinkEvent:
        """What the worker says next."""
        with anyio.fail_after(PATIENCE_S):
            return await self._events.get()

    async def reply(self) -> tuple[Reply, bytes]:
        """The next reply."""
        event = await self.next()
        assert isinstance(event, Settled), event
        return event.reply, event.body


@asynccontextmanager
async def working(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[PlayedSupervisor, "asyncio.Task[int]"]]:
    """A worker that serves its link, and whoever it serves."""
    swept: list[float] = []

    async def sweep(grace_s: float) -> None:
        swept.append(grace_s)

    monkeypatch.setattr(main_module, "kill_descendants", sweep)
    with tempfile.TemporaryDirectory(prefix="qd-") as folder:
        supervisor = PlayedSupervisor(folder)
        order = SpawnOrder(1, supervisor.router.address, TOKEN.hex())
        task = asyncio.ensure_future(main_module._serve(order, None))
        try:
            assert isinstance(await supervisor.next(), Greeted)
            yield supervisor, task
        finally:
            with anyio.fail_after(PATIENCE_S):
                await asyncio.wait([task])
            supervisor.driver.close()
            supervisor.router.close()
    assert swept == [main_module.SWEEP_S]


async def test_a_worker_lives_one_servers_life_and_leaves_in_good_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server would ever start, or its worker stay when it is gone."""
    lived: list[OpenOrder] = []

    async def live(order: OpenOrder, life: Life) -> None:
        lived.append(order)
        life.on_open(OpenServer(CARD, None, None))  # type: ignore[arg-type]
        await life.stop.wait()

    monkeypatch.setattr(main_module, "run_server", live)
    async with working(monkeypatch) as (supervisor, task):
        order = OpenOrder("{}", {"A": "1"}, "/home", "/log", "era")
        supervisor.driver.request(Open(1, 30.0), msgspec.json.encode(order))
        reply, body = await supervisor.reply()
        assert reply == Answer(1, CARD.era)
        assert msgspec.json.decode(body, type=type(CARD)) == CARD
        assert lived == [order]
        supervisor.driver.request(Close(2, 30.0))
        reply, body = await supervisor.reply()
        assert reply == Answer(2)
        assert msgspec.json.decode(body, type=Dossier) == Dossier()
        assert await task == 0


async def test_a_worker_that_is_closed_unused_leaves_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose server was given up early would wait for ever."""
    async with working(monkeypatch) as (supervisor, task):
        supervisor.driver.request(Close(1, 30.0))
        await supervisor.reply()
        assert await task == 0


async def test_a_worker_whose_supervisor_breaks_the_rules_leaves_with_a_status_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker would serve whoever took the supervisor's place."""
    async with working(monkeypatch) as (supervisor, task):
        supervisor.way.send([b"nonsense"])
        assert await task == EXIT_LINK_LOST


def test_the_program_reads_its_order_and_exits_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where fork does not serve no worker would start."""
    order = SpawnOrder(1, "ipc:///nowhere", "ab" * 16)
    taken: list[tuple[SpawnOrder, int]] = []

    def work(given: SpawnOrder, owner_fd: int) -> int:
        taken.append((given, owner_fd))
        return 5

    reading, writing = os.pipe()
    os.write(writing, msgspec.json.encode(order) + b"\n")
    monkeypatch.setattr(main_module, "work", work)
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(SystemExit) as caught:
            main_module.main()
    os.close(writing)
    assert caught.value.code == 5
    assert taken == [(order, reading)]


def test_a_worker_is_killed_before_us_and_gives_the_memory_of_large_results_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where fork does not serve it would be killed after us, and stay as large as it was at its busiest moment."""
    done: list[object] = []
    monkeypatch.setattr(main_module, "be_quiet", lambda: None)
    monkeypatch.setattr(main_module.oom_score, "raise_to", done.append)
    monkeypatch.setattr(main_module, "give_back_large_blocks", lambda: done.append("memory"))
    monkeypatch.setattr(main_module, "work", lambda *_: 0)
    (tmp_path / "order").write_bytes(msgspec.json.encode(SpawnOrder(1, "ipc:///nowhere", "ab" * 16)))
    with (tmp_path / "order").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(SystemExit):
            main_module.main()
    assert done == [main_module.oom_score.WORKER, "memory"]
