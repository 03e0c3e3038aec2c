"""What holding 50 servers to their limits costs: processor time of the looks, as a share of one core."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Final

from support.config.places import short_folder

from quarterdeck_protocol.policy import Limits
from quarterdeck_sandbox.policy.limits import ProcessTree
from quarterdeck_sandbox.run.monitor import MONITOR_TICK_S, WALK_S, TreeMonitor

from .finding import Finding, NotMeasuredError, Target
from .rounds import Effort

SHARE: Final = Target(required=2.0)

TREES: Final = 50

TREE: Final = ("sh", "-c", "sleep 600 & sleep 600 & wait")
"""Three processes, as many as a confined program has with what is above it."""

FILES: Final = 200
"""Temporary files of each tree, looked at in the slower round."""


async def measure(effort: Effort) -> list[Finding]:
    """Rounds as long as it takes until each tree's files are due again."""
    if sys.platform != "linux":
        raise NotMeasuredError("the looks read /proc")
    with short_folder() as scratch, trees() as pids:
        for number in range(FILES):
            (scratch / str(number)).touch()
        monitor = TreeMonitor()
        for pid in pids:
            tree = ProcessTree(pid, pid, root_pid=pid, scratch=(str(scratch),), tmpfs=("/tmp", "/dev/shm"))
            monitor.watch(tree, Limits(), lambda _: None)
        shares = [await _share_of_a_round(monitor) for _ in range(effort.rounds)]
    seen = f"{1 / MONITOR_TICK_S:g} looks a second, {TREES * 3} processes, {FILES} files each"
    return [Finding(f"monitor of {TREES} trees, of one core", "%", SHARE, median(shares), note=seen)]


async def _share_of_a_round(monitor: TreeMonitor) -> float:
    """Its own pace is kept, for what is due depends on the time."""
    before, started = time.process_time(), time.monotonic()
    while (passed := time.monotonic() - started) < WALK_S:
        await asyncio.sleep(MONITOR_TICK_S)
        await monitor.tick()
    return (time.process_time() - before) / passed * 100


@contextmanager
def trees() -> Iterator[list[int]]:
    """The trees' topmost processes, each in a session of its own; they are killed at the end."""
    started = [subprocess.Popen(TREE, start_new_session=True, stdin=subprocess.DEVNULL) for _ in range(TREES)]
    try:
        yield [child.pid for child in started]
    finally:
        for child in started:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
