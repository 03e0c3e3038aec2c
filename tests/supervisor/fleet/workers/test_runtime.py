"""What endpoints share: made once, kept while it is used, gone with the last user."""

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest
from support.config.places import short_folder
from support.waiting import PATIENCE_S, turns, until

from quarterdeck.config.places.paths import UnsafePathError, UnusableDirectoryError
from quarterdeck.fleet.workers import runtime as runtime_module
from quarterdeck.fleet.workers.interpreters import SPAWN_VARIABLE
from quarterdeck.fleet.workers.placement import SpawnedWorker
from quarterdeck.fleet.workers.runtime import Runtime
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.identity import CLIENT_VERSION
from quarterdeck_protocol.io import LinkDriver
from quarterdeck_protocol.link.events import LinkTerms, Side
from quarterdeck_protocol.link.session import Link
from quarterdeck_protocol.spawn_orders import SpawnOrder
from quarterdeck_sandbox.policy.machine import Cgroups
from quarterdeck_worker.main import Dealer

from .handles import Owner

pytestmark = pytest.mark.process


class PlayedPlacement:
    """Starts no process: its workers are peers on the real socket, in this very process."""

    made: list["PlayedPlacement"]
    greets = True
    pid = 0
    machine = None
    is_idle = True

    def __init__(self, on_lost: Callable[[int], None] = lambda _: None) -> None:
        self.on_lost = on_lost
        self.orders: list[SpawnOrder] = []
        self.exits: list[Callable[[int | None], None]] = []
        self.killed = 0
        self.closed = 0
        self.failures: list[OSError] = []
        self._ends: list[tuple[Dealer, LinkDriver]] = []
        type(self).made.append(self)

    async def spawn(self, order: SpawnOrder, on_exit: Callable[[int | None], None]) -> SpawnedWorker:
        """See `Placement`."""
        self.orders.append(order)
        if self.failures:
            raise self.failures.pop(0)
        self.exits.append(on_exit)
        if self.greets:
            self._greet(order)
        return SpawnedWorker(self.pid, self._on_kill)

    def _on_kill(self) -> None:
        self.killed += 1

    async def close(self) -> None:
        """See `Placement`."""
        self.closed += 1
        for dealer, driver in self._ends:
            driver.close()
            dealer.close()
        self._ends.clear()

    def _greet(self, order: SpawnOrder) -> None:
        now = asyncio.get_running_loop().time()
        link = Link(Side.WORKER, token=bytes.fromhex(order.token), version=CLIENT_VERSION, now=now, pid=self.pid)
        dealer = Dealer(order.address, lambda parts: driver.receive(parts), lambda _: None)  # noqa: PLW0108 - made next
        driver = LinkDriver(link, dealer, lambda _: None)
        self._ends.append((dealer, driver))


@pytest.fixture
def placements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[PlayedPlacement]]:
    """Every placement that is made, in a runtime root of this test's own with a name short enough for sockets."""
    made: list[PlayedPlacement] = []
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    with child:
        try:
            with short_folder() as root:
                monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", str(root))
                monkeypatch.delenv(SPAWN_VARIABLE, raising=False)
                monkeypatch.setattr(PlayedPlacement, "made", made, raising=False)
                monkeypatch.setattr(PlayedPlacement, "pid", child.pid)
                monkeypatch.setattr(runtime_module, "ZygotePlacement", PlayedPlacement)
                yield made
                assert os.listdir(root) == []
        finally:
            child.kill()


async def hired(runtime: Runtime, owner: Owner) -> runtime_module.WorkerHandle:
    with anyio.fail_after(PATIENCE_S):
        return await runtime.start_worker("a", owner)


async def test_a_loop_has_one_runtime_until_its_last_user_leaves(placements: list[PlayedPlacement]) -> None:
    """Each server would start a zygote, or the first to close would end the others."""
    first, second = await asyncio.gather(Runtime.acquire("abcdefabcdef"), Runtime.acquire())
    assert first is second
    path = first.directory.path
    assert first.directory.digest == "abcdefabcdef"
    first.warm_up()
    first.warm_up()
    await second.release()
    assert path.is_dir()
    assert len(placements) == 1
    await first.release()
    assert not path.exists()
    assert placements[0].closed == 1
    third = await Runtime.acquire()
    assert third is not first
    await third.release()


async def test_a_runtime_without_workers_starts_none(placements: list[PlayedPlacement]) -> None:
    """An empty configuration would cost a zygote."""
    runtime = await Runtime.acquire()
    await runtime.release()
    assert placements == []


async def test_a_zygote_without_workers_is_ended_and_the_next_start_makes_another(
    placements: list[PlayedPlacement], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon whose servers all sleep would keep forty megabytes for a start that may never come."""
    monkeypatch.setattr(runtime_module, "IDLE_S", 0.01)
    runtime = await Runtime.acquire()
    runtime.warm_up()
    placements[0].is_idle = False
    await asyncio.sleep(0.05)
    assert placements[0].closed == 0
    handle = await hired(runtime, Owner())
    placements[0].is_idle = True
    placements[0].exits[0](0)
    await until(lambda: placements[0].closed == 1)
    other = await hired(runtime, Owner())
    assert len(placements) == 2
    await runtime.release()
    for gone in (handle, other):
        gone.driver.close()


async def test_a_hired_worker_has_proved_itself(placements: list[PlayedPlacement]) -> None:
    """Whoever connects first would be taken for the worker."""
    runtime = await Runtime.acquire()
    handle = await hired(runtime, Owner())
    [order] = placements[0].orders
    assert len(bytes.fromhex(order.token)) == 32
    assert handle.pid == PlayedPlacement.pid
    assert handle.driver.link.is_open
    other = await hired(runtime, Owner())
    assert other is not handle
    assert len({(order.generation, order.token) for order in placements[0].orders}) == 2
    await runtime.release()
    for gone in (handle, other):
        gone.driver.close()


async def test_the_death_of_a_worker_reaches_its_owner_and_frees_its_place(placements: list[PlayedPlacement]) -> None:
    """A crash would stay unseen, and the router remember the dead."""
    runtime = await Runtime.acquire()
    owner = Owner()
    handle = await hired(runtime, owner)
    placements[0].exits[0](-9)
    assert [loss.code for loss in owner.losses] == ["worker_lost"]
    assert handle.exited.is_set()
    await handle.dismiss(0.0)
    assert runtime._router._ways == set()
    await runtime.release()


async def test_a_worker_that_cannot_be_started_is_a_failed_spawn(placements: list[PlayedPlacement]) -> None:
    """A machine without room for a process would be a traceback."""
    runtime = await Runtime.acquire()
    runtime.warm_up()
    placements[0].failures = [OSError("no room"), OSError("still no room")]
    with pytest.raises(ProtocolFault, match="still no room") as caught:
        await hired(runtime, Owner())
    fault = caught.value
    assert (fault.kind, fault.code, fault.delivery) == (FaultKind.SPAWN_FAILED, "worker_lost", Delivery.NOT_SENT)
    assert runtime._router._expected == {}
    await runtime.release()


async def test_a_zygote_found_dead_is_replaced_for_the_same_order(placements: list[PlayedPlacement]) -> None:
    """The first server after a zygote's death would fail for nothing."""
    runtime = await Runtime.acquire()
    runtime.warm_up()
    placements[0].failures = [OSError("the zygote is gone")]
    placements[0].on_lost(0)
    handle = await hired(runtime, Owner())
    assert len(placements) == 2
    await turns()
    assert placements[0].closed == 1
    await runtime.release()
    assert placements[1].closed == 1
    handle.driver.close()


async def test_a_zygote_that_had_workers_is_replaced_at_once_and_one_that_had_none_when_one_is_needed(
    placements: list[PlayedPlacement],
) -> None:
    """Its servers would come back later by the imports; or one that cannot live would be started for ever."""
    runtime = await Runtime.acquire()
    runtime.warm_up()
    placements[0].on_lost(0)
    assert len(placements) == 1
    handle = await hired(runtime, Owner())
    placements[1].on_lost(1)
    assert len(placements) == 3
    await runtime.release()
    handle.driver.close()


async def test_a_worker_that_dies_before_it_spoke_is_lost_at_once(
    placements: list[PlayedPlacement], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An endpoint would wait for the greeting's deadline."""
    monkeypatch.setattr(PlayedPlacement, "greets", False)
    runtime = await Runtime.acquire()
    hiring = asyncio.ensure_future(hired(runtime, Owner()))
    await until(lambda: placements and placements[0].exits)
    await turns()
    placements[0].exits[0](1)
    handle = await hiring
    assert handle.lost.code == "worker_lost"
    await handle.dismiss(0.0)
    await runtime.release()


async def test_giving_up_a_worker_that_has_not_spoken_kills_it(
    placements: list[PlayedPlacement], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that was given up would leave its worker, with a token that still opens the socket."""
    monkeypatch.setattr(PlayedPlacement, "greets", False)
    runtime = await Runtime.acquire()
    hiring = asyncio.ensure_future(runtime.start_worker("a", Owner()))
    await until(lambda: placements and placements[0].exits)
    await turns()
    hiring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hiring
    assert placements[0].killed == 1
    assert runtime._router._expected == {}
    await runtime.release()


async def test_no_worker_is_called_silent_before_its_birth(
    placements: list[PlayedPlacement], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine each first server would be lost to `worker_unresponsive` while the zygote still starts."""

    class Slow(PlayedPlacement):
        async def spawn(self, order: SpawnOrder, on_exit: Callable[[int | None], None]) -> SpawnedWorker:
            await turns()
            raise OSError("nobody was born")

    monkeypatch.setattr(runtime_module, "ZygotePlacement", Slow)
    monkeypatch.setattr(runtime_module, "Link", partial(Link, terms=LinkTerms(greet_s=0.0)))
    runtime, owner = await Runtime.acquire(), Owner()
    with pytest.raises(ProtocolFault, match="nobody was born"):
        await hired(runtime, owner)
    assert owner.losses == []
    await runtime.release()


async def test_a_worker_that_was_born_and_says_nothing_is_given_up(
    placements: list[PlayedPlacement], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start would wait without end; or a worker that gets no processor would be taken for a dead one."""
    asked: list[int] = []

    def waited_s(pid: int) -> float:
        asked.append(pid)
        return 0.0

    monkeypatch.setattr(runtime_module, "waited_s", waited_s)
    monkeypatch.setattr(runtime_module, "Link", partial(Link, terms=LinkTerms(greet_s=0.0)))
    monkeypatch.setattr(PlayedPlacement, "greets", False)
    runtime = await Runtime.acquire()
    handle = await hired(runtime, Owner())
    assert handle.lost.code == "worker_unresponsive"
    assert set(asked) == {PlayedPlacement.pid}
    await runtime.release()


async def test_fresh_interpreters_are_used_when_the_environment_says_so(
    placements: list[PlayedPlacement], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where fork does not serve nothing would start."""

    class Fresh(PlayedPlacement):
        pass

    monkeypatch.setattr(runtime_module, "FreshPlacement", Fresh)
    monkeypatch.setenv(SPAWN_VARIABLE, "fresh")
    runtime = await Runtime.acquire()
    runtime.warm_up()
    assert isinstance(placements[0], Fresh)
    await runtime.release()


async def test_giving_up_while_the_directory_is_made_leaves_none(placements: list[PlayedPlacement]) -> None:
    """Each start that is given up early would leave a locked directory until our exit."""
    acquiring = asyncio.ensure_future(Runtime.acquire())
    await turns(2)
    acquiring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acquiring
    root = os.environ["QUARTERDECK_RUNTIME_DIR"]
    with anyio.fail_after(PATIENCE_S):
        # The thread may still be at it; whatever it makes must go.
        await asyncio.get_running_loop().shutdown_default_executor()
        while os.listdir(root):
            await turns(1)
    runtime = runtime_module._runtimes.get(asyncio.get_running_loop())
    assert runtime is None


async def test_a_socket_that_cannot_be_made_has_a_sentence_and_leaves_nothing(
    placements: list[PlayedPlacement], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk without inodes would be an error of ours with a number, and leave a locked directory."""

    def router(path: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(runtime_module, "Router", router)
    with pytest.raises(UnusableDirectoryError, match="there is no room in"):
        await Runtime.acquire()


async def test_a_root_that_others_may_enter_is_refused(placements: list[PlayedPlacement]) -> None:
    """Another user could open the link's socket."""
    root = os.environ["QUARTERDECK_RUNTIME_DIR"]
    os.chmod(root, 0o777)
    with pytest.raises(UnsafePathError):
        await Runtime.acquire()
    os.chmod(root, 0o700)


async def test_the_monitor_is_one_and_ends_with_its_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each server would cost a scan of its own, or the scans go on in a program that uses us no more."""
    before = asyncio.all_tasks()
    with short_folder() as root:
        monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", str(root))
        runtime = await Runtime.acquire()
        assert asyncio.all_tasks() == before
        assert runtime.monitor is runtime.monitor
        assert len(asyncio.all_tasks() - before) == 1
        await runtime.release()
    assert asyncio.all_tasks() == before


async def test_groups_that_dead_workers_left_are_removed_at_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each worker that is killed would leave its groups until the machine is started anew."""
    left = tmp_path / "qd-4194305-ab"
    left.mkdir()
    monkeypatch.setattr(runtime_module, "try_cgroups", lambda _: Cgroups(str(tmp_path)))
    with short_folder() as root:
        monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", str(root))
        await (await Runtime.acquire()).release()
    assert not left.exists()
