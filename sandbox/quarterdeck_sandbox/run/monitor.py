"""Hold trees of processes to the limits that no kernel holds for us: one look at the machine a tick, for all of them.

It judges nothing itself (`policy.limits` does) and kills nothing: the watcher is told once, and ends the tree.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

import anyio

from quarterdeck_protocol.policy_values import LimitValues
from quarterdeck_sandbox.policy.limits import (
    DiskUse,
    Excess,
    Pages,
    Process,
    ProcessTree,
    Suspicion,
    Usage,
    UsageMeter,
    family,
)

from . import processes

MONITOR_TICK_S: Final = 0.5
"""Between two looks. Allocating runs at a GiB a second and more, so each doubling of the rate halves what is grabbed
beyond a limit; a look at the processes of 50 trees costs some five milliseconds, so that 2 Hz is a hundredth of a core.
"""

KEPT_TICK_S: Final = 4.0
"""The same while the kernel itself keeps the limits on the processes of all trees: then a look is for their files in
memory, and for who wants to know.  Forty idle servers cost an eighth so."""

TMPFS_S: Final = 2.0
"""Between two looks at one tree's filesystems in memory; their mounts have a size, only their inodes have none."""

WALK_S: Final = 5.0
"""Between two walks through one tree's scratch directories, at least: files accumulate slower than memory."""

WALK_SHARE: Final = 0.005  # of one core, for all walks together: many files make them rarer, not dearer

_log = logging.getLogger("quarterdeck.sandbox")


class MachineReader(Protocol):
    """How the machine is looked at: by `processes`, or a test's own."""

    def scan(self) -> dict[int, Process]:
        """See `processes.scan`."""

    def exact_memory(self, pids: Iterable[int]) -> Pages:
        """See `processes.exact_memory`."""

    def tmpfs_use(self, root_pid: int, mounts: Iterable[str]) -> DiskUse:
        """See `processes.tmpfs_use`."""

    def disk_use(self, directories: Iterable[str]) -> DiskUse:
        """See `processes.disk_use`."""


@dataclass(eq=False)
class Watch:
    """One watched tree; call it to end the watch.  `tmpfs_at` and `walk_at` are the next looks at its files."""

    tree: ProcessTree
    meter: UsageMeter
    on_excess: Callable[[Excess], None] | None
    _among: "list[Watch]"
    tmpfs_at: float = 0.0
    walk_at: float = 0.0

    def __call__(self) -> None:
        """End the watch; repeatable."""
        if self in self._among:
            self._among.remove(self)

    @property
    def present(self) -> Usage | None:
        """The use at the last look; None before the first."""
        return self.meter.present

    @property
    def peak(self) -> Usage | None:
        """The largest of each that any look has seen; None before the first."""
        return self.meter.peak


class TreeMonitor:
    """Watches trees while `run` runs."""

    def __init__(self, reader: MachineReader = processes, clock: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._clock = clock
        self._watches: list[Watch] = []
        self._may_walk_at = 0.0
        self._looked_at = 0.0
        self._is_watched = asyncio.Event()

    def watch(self, tree: ProcessTree, limits: LimitValues, on_excess: Callable[[Excess], None]) -> Watch:
        """Hold `tree` to `limits` from now on; `on_excess` is called in the loop, once, and the watch goes on."""
        watch = Watch(tree, UsageMeter(tree, limits, self._clock()), on_excess, self._watches)
        self._watches.append(watch)
        self._is_watched.set()
        return watch

    async def run(self) -> None:
        """Look at all trees at each tick, until cancelled."""
        while True:
            if not self._looks_often:
                self._is_watched.clear()
                with anyio.move_on_after(KEPT_TICK_S - MONITOR_TICK_S):
                    await self._is_watched.wait()
            await asyncio.sleep(MONITOR_TICK_S)
            if not self.is_due:
                continue
            try:
                await self.tick()
            except Exception:
                _log.exception("the monitor of limits failed to look")

    @property
    def is_due(self) -> bool:
        """Whether to look now."""
        return self._looks_often or self._clock() - self._looked_at >= KEPT_TICK_S

    @property
    def _looks_often(self) -> bool:
        """Whether a tree is new, or kept within its limits by looks alone."""
        return any(watch.present is None or watch.meter.relies_on_looks for watch in self._watches)

    async def tick(self) -> None:
        """Look once at all trees."""
        if not self._watches:
            return
        self._looked_at = self._clock()
        for watch, excess in await asyncio.to_thread(self._look, list(self._watches)):
            # It may have been ended meanwhile.
            if watch in self._watches and (tell := watch.on_excess) is not None:
                watch.on_excess = None
                tell(excess)

    def _look(self, watches: list[Watch]) -> list[tuple[Watch, Excess]]:
        processes = self._reader.scan()
        children = family(processes)
        now = self._clock()
        self._look_at_files(watches, now)
        verdicts = []
        for watch in watches:
            verdict = watch.meter.look(processes, children, now)
            if isinstance(verdict, Suspicion):
                verdict = watch.meter.confirm(self._reader.exact_memory(verdict.pids), now)
            if verdict is not None:
                verdicts.append((watch, verdict))
        return verdicts

    def _look_at_files(self, watches: list[Watch], now: float) -> None:
        for watch in watches:
            if watch.tree.root_pid and watch.tree.tmpfs and watch.tmpfs_at <= now:
                watch.tmpfs_at = now + TMPFS_S
                watch.meter.tmpfs = self._reader.tmpfs_use(watch.tree.root_pid, watch.tree.tmpfs)
        for watch in sorted(watches, key=lambda each: each.walk_at):
            started = self._clock()
            if watch.walk_at > now or self._may_walk_at > started:
                return
            if watch.tree.scratch:
                watch.meter.walked = self._reader.disk_use(watch.tree.scratch)
            watch.walk_at = now + WALK_S
            # What was not used of one tick's share is lost: after a quiet hour no burst is due.
            spent_s = self._clock() - started
            self._may_walk_at = max(self._may_walk_at, started - MONITOR_TICK_S) + spent_s / WALK_SHARE
