"""How much memory process trees hold."""

from collections import defaultdict
from collections.abc import Iterable

import psutil


def tree_memory(roots: Iterable[int]) -> dict[int, int]:
    """Resident bytes of each root and everything below it; a root that is gone is missing.  Blocks for milliseconds."""
    wanted = tuple(roots)
    if not wanted:
        return {}
    children: dict[int, list[psutil.Process]] = defaultdict(list)
    for process in psutil.process_iter():
        try:
            children[process.ppid()].append(process)
        except psutil.Error:
            continue
    found = {}
    for root in wanted:
        try:
            total, below = _resident(psutil.Process(root)), list(children[root])
        except psutil.Error:
            continue
        while below:
            process = below.pop()
            below += children[process.pid]
            try:
                total += _resident(process)
            except psutil.Error:
                continue
        found[root] = total
    return found


def _resident(process: psutil.Process) -> int:
    resident: int = process.memory_info().rss
    return resident
