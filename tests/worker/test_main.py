"""A worker from its order to its exit status, in this very process: the real socket, a played supervisor and server."""

import asyncio
import errno
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import msgspec
import pytest
import zmq
from support.config.places import short_folder
from support.fleet.workers import CARD
from support.fleet.zeromq import ZmqEnd, libzmq
from support.waiting import PATIENCE_S, until

from quarterdeck.fleet.workers.router import SOCKET_NAME, Router
from quarterdeck_protocol.faults import Dossier
from quarterdeck_protocol.identity import CLIENT_VERSION
from quarterdeck_protocol.io import LinkDriver
from quarterdeck_protocol.link.events import Greeted, LinkEvent, Replied, Side
from quarterdeck_protocol.link.frame_bytes import INLINE_BYTES
from quarterdeck_protocol.link.frames import Answer, Close, Open, OpenOrder, Reply, StdioServer
from quarterdeck_protocol.link.session import Link
from quarterdeck_protocol.spawn_orders import SpawnOrder
from quarterdeck_worker import main as main_module
from quarterdeck_worker.main import EXIT_LINK_LOST, Dealer
from quarterdeck_worker.server import RunServer, ServerRun

from .served import PlayedServer

pytestmark = pytest.mark.process

TOKEN = b"one time only, 16 bytes or more"


class PlayedSupervisor:
    """The supervisor's end of the socket."""

    def __init__(self, folder: str) -> None:
        self.router = Router(Path(folder) / SOCKET_NAME)
        self.way = self.router.expect(TOKEN, pytest.fail)
        link = Link(Side.SUPERVISOR, token=TOKEN, version=CLIENT_VERSION, now=asyncio.get_running_loop().time())
        self._events: asyncio.Queue[LinkEvent] = asyncio.Queue()
        self.driver = LinkDriver(link, self.way, self._events.put_nowait)
        self.way.receive = self.driver.receive

    async def next(self) -> LinkEvent:
        with anyio.fail_after(PATIENCE_S):
            return await self._events.get()

    async def reply(self) -> tuple[Reply, bytes]:
        event = await self.next()
        assert isinstance(event, Replied), event
        return event.reply, event.body


async def never(_: OpenOrder, run: ServerRun) -> None:
    raise AssertionError


@asynccontextmanager
async def working(
    monkeypatch: pytest.MonkeyPatch, run_server: RunServer = never
) -> AsyncIterator[tuple[PlayedSupervisor, "asyncio.Task[int]"]]:
    """A worker that serves its link, and whoever it serves."""
    swept: list[float] = []

    async def sweep(grace_s: float) -> None:
        swept.append(grace_s)

    monkeypatch.setattr(main_module, "kill_descendants", sweep)
    with short_folder() as folder:
        supervisor = PlayedSupervisor(str(folder))
        order = SpawnOrder(1, supervisor.router.address, TOKEN.hex())
        task = asyncio.ensure_future(main_module.serve(order, run_server=run_server))
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

    async def live(order: OpenOrder, run: ServerRun) -> None:
        lived.append(order)
        server = PlayedServer()
        run.on_open(server)  # type: ignore[arg-type]
        await run.stop.wait()

    async with working(monkeypatch, live) as (supervisor, task):
        order = OpenOrder(StdioServer("x"), env={"A": "1"}, home="/home", log_path="/log")
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


def test_a_worker_serves_where_the_kernel_lets_it_adopt_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server would start on a kernel that imitates Linux and lacks this."""

    def refuse() -> None:
        raise OSError(errno.EINVAL, "prctl 36")

    async def serve(order: SpawnOrder, owner_fd: int | None) -> int:
        return 7

    monkeypatch.setattr(main_module, "adopt_orphans", refuse)
    monkeypatch.setattr(main_module, "serve", serve)
    assert main_module.work(SpawnOrder(1, "ipc:///nowhere", "ab" * 16)) == 7


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
    monkeypatch.setattr(main_module, "raise_oom_score", done.append)
    monkeypatch.setattr(main_module, "give_back_large_blocks", lambda: done.append("memory"))
    monkeypatch.setattr(main_module, "work", lambda *_: 0)
    (tmp_path / "order").write_bytes(msgspec.json.encode(SpawnOrder(1, "ipc:///nowhere", "ab" * 16)))
    with (tmp_path / "order").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(SystemExit):
            main_module.main()
    assert done == [main_module.OomScore.WORKER, "memory"]


class WorkersEnd:
    """A dealer, and what it heard."""

    def __init__(self, address: str) -> None:
        self.heard: list[list[bytes]] = []
        self.ends: list[Exception] = []
        self.dealer = Dealer(address, self.heard.append, self.ends.append)

    async def hear(self, count: int) -> list[list[bytes]]:
        await until(lambda: len(self.heard) >= count)
        return self.heard


@pytest.fixture
def address() -> Iterator[str]:
    """Where nobody listens yet; short, as socket paths must be."""
    with short_folder() as folder:
        yield f"ipc://{folder}/link.sock"


@contextmanager
def routing(address: str) -> Iterator[ZmqEnd]:
    """The other end, of libzmq; what it hears begins with the peer's routing id."""
    with libzmq() as make:
        router = make(zmq.ROUTER)
        router.socket.bind(address)
        yield router


@pytest.mark.parametrize("size", [0, 255, 256, INLINE_BYTES, 5_000_000])
async def test_parts_of_any_size_cross_whole_both_ways_in_order(address: str, size: int) -> None:
    """Results beyond the socket's buffer would be cut, hold up the loop until they are read, or be overtaken."""
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    end = WorkersEnd(address)
    with routing(address) as router:
        end.dealer.send([b"head", body])
        end.dealer.send([b"next"])
        heard = await router.hear(2)
        assert [parts[1:] for parts in heard] == [[b"head", body], [b"next"]]
        router.send(heard[0][0], b"head", body)
        router.send(heard[0][0], b"next")
        assert await end.hear(2) == [[b"head", body], [b"next"]]
        end.dealer.close()


async def test_it_waits_for_a_listener(address: str) -> None:
    """A worker that is faster than its supervisor would give up."""
    end = WorkersEnd(address)
    end.dealer.send([b"early"])
    end.dealer.drain()
    await anyio.lowlevel.checkpoint()
    assert end.ends == []
    with routing(address) as router:
        await router.hear(1)
        end.dealer.close()


async def test_one_that_was_closed_before_it_connected_stays_away(address: str) -> None:
    """A worker that was given up would still say its token to whoever listens."""
    end = WorkersEnd(address)
    end.dealer.close()
    end.dealer._connect()
    assert end.ends == []


async def test_the_end_of_the_supervisor_is_told_once(address: str) -> None:
    """A worker without a zygote would outlive its owner by its patience."""
    end = WorkersEnd(address)
    end.dealer.send([b"hello"])
    with routing(address) as router:
        await router.hear(1)
    await until(lambda: end.ends)
    end.dealer.send([b"late"])
    end.dealer.drain()
    end.dealer.close()
    assert len(end.ends) == 1


async def test_a_stranger_in_the_supervisors_place_is_left(address: str) -> None:
    """A worker would wait for ever for what is no ROUTER."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address.removeprefix("ipc://"))
        listener.listen()
        end = WorkersEnd(address)
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4)
            await until(lambda: end.ends)
    assert "ZMTP" in str(end.ends[0])
