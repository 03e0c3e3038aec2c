"""`read` of 2,000 lines from the middle of a file of 1 GB: how much memory it takes, and how long.

In a process of its own each time, so that its peak is that of one call: `python tests/bench/reading.py FILE OFFSET`.
"""

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.tools.file_tools import call, context_in

from bench.finding import Finding, Target
from bench.rounds import Effort
from quarterdeck.tools.files.read import read_tool

MEMORY: Final = Target(required=64.0, goal=16.0)
"""MiB: of the file's 954 next to nothing."""

LINE: Final = b"the quick brown fox jumps over the lazy dog, once more.\n"

FILE_BYTES: Final = 1_000_000_000

WINDOW: Final = 2_000


async def measure(effort: Effort) -> list[Finding]:
    """The median of the peaks, each beyond what the process held before the call."""
    lines = FILE_BYTES // len(LINE)
    with tempfile.TemporaryDirectory(prefix="qd-", dir="/tmp") as folder:
        path = Path(folder) / "large.txt"
        await asyncio.to_thread(_plant, path, lines)
        command = [sys.executable, __file__, str(path), str(lines // 2)]
        found = [json.loads(await asyncio.to_thread(subprocess.check_output, command)) for _ in range(effort.rounds)]
    grown_mib, taken_ms = (median(each) for each in zip(*found, strict=True))
    note = f"{WINDOW:,} lines from line {lines // 2:,}; {taken_ms:.0f} ms"
    return [Finding("peak memory of a read in the middle of 1 GB", "MiB", MEMORY, grown_mib, note=note)]


def _plant(path: Path, lines: int) -> None:
    block = LINE * 10_000
    with path.open("wb") as file:
        for _ in range(lines // 10_000):
            file.write(block)
        file.write(LINE * (lines % 10_000))


async def _read_once(path: Path, offset: int) -> None:
    ctx = context_in(path.parent)
    await call(read_tool(), ctx, path=path.name, limit=1)  # what is imported and made once
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    answer = await call(read_tool(), ctx, path=path.name, offset=offset, limit=WINDOW)
    taken_ms = (time.perf_counter() - started) * 1000
    assert not answer.is_error, answer.text
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    sys.stdout.write(json.dumps([grown_mib, taken_ms]))


if __name__ == "__main__":
    asyncio.run(_read_once(Path(sys.argv[1]), int(sys.argv[2])))
