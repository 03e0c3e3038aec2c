"""One look for all trees: who is told what, and when nobody is."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from support.processes.running import python_child
from support.waiting import eventually_async

from quarterdeck_protocol.policy_values import LimitValues
from quarterdeck_sandbox.policy.limits import DiskUse, Excess, Pages, Process, ProcessTree
from quarterdeck_sandbox.run import monitor as monitor_module
from quarterdeck_sandbox.run.monitor import KEPT_TICK_S, MONITOR_TICK_S, TMPFS_S, WALK_S, WALK_SHARE, TreeMonitor

MIB = 1 << 20
REAPER = Process(10, 1, 1.0, MIB, 1, 0.0, 0.0)
PROGRAM = Process(11, 10, 1.0, MIB, 1, 0.0, 0.0)
NO_PAGES, EMPTY = Pages(), DiskUse()
TREE = ProcessTree(pid=11, top=10, root_pid=11, scratch=("/scratch",), tmpfs=("/tmp",))


class BadMomentError(Exception):
    """A look that fails, and says so to the test."""

    def __init__(self, told: Callable[[], object]) -> None:
        super().__init__("a bad moment")
        self.told = told


@dataclass
class Scene:
    """A machine that a test shows, and what was looked at."""

    processes: list[Process] = field(default_factory=lambda: [REAPER, PROGRAM])
    pages: Pages = NO_PAGES
    tmpfs: DiskUse = EMPTY
    disk: DiskUse = EMPTY
    now: float = 0.0
    looked: list[str] = field(default_factory=list)
    disk_takes_s: float = 0.0
    error: "BadMomentError | None" = None

    def scan(self) -> dict[int, Process]:
        self.looked.append("scan")
        if self.error is not None:
            self.error.told()
            raise self.error
        return {process.pid: process for process in self.processes}

    def exact_memory(self, pids: Iterable[int]) -> Pages:
        self.looked.append(f"exact {list(pids)}")
        return self.pages

    def tmpfs_use(self, root_pid: int, mounts: Iterable[str]) -> DiskUse:
        self.looked.append(f"tmpfs {root_pid} {list(mounts)}")
        return self.tmpfs

    def disk_use(self, directories: Iterable[str]) -> DiskUse:
        self.looked.append(f"disk {list(directories)}")
        self.now += self.disk_takes_s
        return self.disk


class Stage:
    """A monitor on a scene; `told` is what watchers heard."""

    def __init__(self) -> None:
        self.scene = Scene()
        self.monitor = TreeMonitor(self.scene, lambda: self.scene.now)
        self.told: list[Excess] = []

    def watch(self, limits: LimitValues, tree: ProcessTree = TREE) -> Any:
        return self.monitor.watch(tree, limits, self.told.append)


async def test_whoever_watches_a_tree_is_told_once_of_its_excess() -> None:
    """A worker would be told at each look until its server is dead."""
    stage = Stage()
    watch = stage.watch(LimitValues(wall_s=5))
    assert (watch.present, watch.peak) == (None, None)
    await stage.monitor.tick()
    assert stage.told == []
    stage.scene.now = 6.0
    await stage.monitor.tick()
    await stage.monitor.tick()
    assert [excess.limit for excess in stage.told] == ["wall_s"]
    assert watch.peak.processes == 1


async def test_an_ended_watch_is_heard_of_no_more() -> None:
    """A dead server's successor would be condemned for it."""
    stage = Stage()
    watch = stage.watch(LimitValues(wall_s=5))
    watch()
    watch()
    stage.scene.now = 6.0
    await stage.monitor.tick()
    assert (stage.told, stage.scene.looked) == ([], [])


async def test_a_watch_that_ends_during_a_look_is_not_told_of_it() -> None:
    """A server that was just closed would be condemned."""
    stage = Stage()
    watch = stage.watch(LimitValues(wall_s=5))
    stage.scene.now = 6.0
    looking = asyncio.ensure_future(stage.monitor.tick())
    await asyncio.sleep(0)
    watch()
    await looking
    assert stage.told == []


async def test_all_trees_cost_one_scan() -> None:
    """Fifty servers would cost fifty walks through all processes."""
    stage = Stage()
    for _ in range(50):
        stage.watch(LimitValues(), replace(TREE, scratch=(), tmpfs=()))
    await stage.monitor.tick()
    assert stage.scene.looked == ["scan"]


KEPT = replace(TREE, enforced=("memory_bytes", "processes"))


@pytest.mark.parametrize(
    ("tree", "limits", "often"),
    [
        (KEPT, LimitValues(), False),
        (TREE, LimitValues(), True),
        (replace(TREE, enforced=("memory_bytes",)), LimitValues(), True),
        (TREE, LimitValues(memory_bytes=None, processes=None), False),
        (KEPT, LimitValues(wall_s=1.0), True),
        (KEPT, LimitValues(cpu_s=1.0), True),
    ],
)
async def test_what_the_kernel_keeps_is_looked_at_less_often(
    tree: ProcessTree, limits: LimitValues, often: bool
) -> None:
    """Forty idle servers would cost four times as much; or a tree that only we keep would grow for seconds."""
    stage = Stage()
    stage.monitor.watch(tree, limits, stage.told.append)
    assert stage.monitor.is_due  # it is new
    await stage.monitor.tick()
    stage.scene.now += MONITOR_TICK_S
    assert stage.monitor.is_due is often
    stage.monitor.watch(KEPT, LimitValues(), stage.told.append)
    assert stage.monitor.is_due
    await stage.monitor.tick()
    stage.scene.now += KEPT_TICK_S
    assert stage.monitor.is_due


async def test_a_new_tree_ends_the_rest_between_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that only we keep would grow for seconds, when others were there before it."""
    monkeypatch.setattr(monitor_module, "MONITOR_TICK_S", 0.0)
    monkeypatch.setattr(monitor_module, "KEPT_TICK_S", 3600.0)
    stage = Stage()
    stage.monitor.watch(KEPT, LimitValues(), stage.told.append)
    running = asyncio.ensure_future(stage.monitor.run())
    await eventually_async(lambda: "scan" in stage.scene.looked)
    stage.scene.now = 6.0
    stage.monitor.watch(TREE, LimitValues(wall_s=5), stage.told.append)
    stage.scene.now = 12.0
    await eventually_async(lambda: bool(stage.told))
    running.cancel()
    await asyncio.wait([running])


async def test_memory_is_looked_at_exactly_only_on_suspicion() -> None:
    """Each exact look walks page tables: it would cost more than the server."""
    stage = Stage()
    stage.scene.pages = Pages(MIB)
    stage.watch(LimitValues(memory_bytes=2 * MIB), replace(TREE, scratch=(), tmpfs=()))
    await stage.monitor.tick()
    stage.scene.processes[1] = msgspec.structs.replace(PROGRAM, rss_bytes=3 * MIB)
    await stage.monitor.tick()
    assert stage.scene.looked == ["scan", "scan", "exact [11]"]
    assert stage.told == []
    stage.scene.pages = Pages(3 * MIB)
    stage.scene.now = 10.0
    await stage.monitor.tick()
    assert [excess.limit for excess in stage.told] == ["memory_bytes"]


async def test_files_in_memory_are_looked_at_each_time_and_those_on_disk_now_and_then() -> None:
    """A tmpfs fills within a second; a walk over a disk is dear."""
    stage = Stage()
    stage.watch(LimitValues())
    for _ in range(int(WALK_S / MONITOR_TICK_S) + 1):
        await stage.monitor.tick()
        stage.scene.now += MONITOR_TICK_S
    looked = stage.scene.looked
    assert looked.count("tmpfs 11 ['/tmp']") == int(WALK_S / TMPFS_S) + 1
    assert looked.count("disk ['/scratch']") == 2


async def test_walks_through_many_files_become_rarer_and_every_tree_has_its_turn() -> None:
    """One server with a hundred thousand temporary files would take a core, or hide the others' files."""
    stage = Stage()
    for number in range(3):
        stage.watch(LimitValues(), replace(TREE, scratch=(f"/{number}",), tmpfs=()))
    stage.scene.disk_takes_s = 0.25
    walked_at: list[float] = []
    walks: list[str] = []
    while len(walks) < 4:
        await stage.monitor.tick()
        stage.scene.now += MONITOR_TICK_S
        found = [word for word in stage.scene.looked if word.startswith("disk")]
        walked_at += [stage.scene.now] * (len(found) - len(walks))
        walks = found
    assert set(walks[:3]) == {"disk ['/0']", "disk ['/1']", "disk ['/2']"}
    pause_s = 0.25 / WALK_SHARE - 2 * MONITOR_TICK_S
    assert all(later - earlier >= pause_s for earlier, later in pairwise(walked_at))


async def test_scratch_on_disk_is_remembered_between_two_walks() -> None:
    """Its use would flicker between nothing and too much."""
    stage = Stage()
    stage.scene.disk = DiskUse(MIB, 4)
    watch = stage.watch(LimitValues())
    await stage.monitor.tick()
    await stage.monitor.tick()
    assert (watch.present.scratch_bytes, watch.present.scratch_inodes) == (MIB, 4)


async def test_a_look_that_fails_is_logged_and_the_next_one_is_made(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One bad moment would leave all servers without limits for ever."""
    monkeypatch.setattr(monitor_module, "MONITOR_TICK_S", 0.0)
    stage = Stage()
    seen = asyncio.Event()
    stage.monitor.watch(TREE, LimitValues(wall_s=5), lambda _: seen.set())
    failed = asyncio.Event()
    loop = asyncio.get_running_loop()
    stage.scene.error = BadMomentError(lambda: loop.call_soon_threadsafe(failed.set))
    stage.scene.now = 6.0
    with caplog.at_level(logging.ERROR):
        running = asyncio.ensure_future(stage.monitor.run())
        await failed.wait()
        stage.scene.error = None
        async with asyncio.timeout(10):
            await seen.wait()
        running.cancel()
        await asyncio.wait([running])
    assert "failed to look" in caplog.text


@pytest.mark.process
async def test_a_real_tree_that_grows_beyond_its_memory_is_found_out() -> None:
    """Where no control group can be written, nothing else holds a server's memory."""
    script = (
        "import os; r, w = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    held = bytearray(b'x' * (96 << 20)); os.write(w, b'x'); os.read(0, 1); os._exit(0)\n"
        "os.read(r, 1); print('ready', flush=True); os.read(0, 1)"
    )
    told: list[Excess] = []
    monitor = TreeMonitor()
    with python_child(script) as child:
        assert child.read_line() == b"ready"
        tree = ProcessTree(child.pid, child.pid)
        watch = monitor.watch(tree, LimitValues(memory_bytes=64 << 20), told.append)
        roomy = monitor.watch(tree, LimitValues(memory_bytes=1 << 30), told.append)
        await monitor.tick()
    assert [excess.limit for excess in told] == ["memory_bytes"]
    for each in (watch, roomy):
        assert each.peak is not None
        assert (each.peak.processes, each.peak.memory_bytes > 96 << 20) == (2, True)
