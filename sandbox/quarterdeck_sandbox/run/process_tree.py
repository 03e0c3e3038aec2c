"""Signal a whole tree of processes, wherever what it started went; end all descendants of this process.

`ask_to_end` is the polite way; `ConfinedProcess.end` follows, which reaches only the program's group, and then kills.
A confined tree dies with its program.  Where that is a shell which only waits for others, it would be the first to
heed TERM, and they would be killed before they have heeded it; so it is stopped until they are gone.
"""

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import psutil

from quarterdeck_sandbox.policy.limits import Process, family

from .monitor import ProcessTree
from .process_scan import scan

_REAP_POLL_S: Final = 0.01
"""Between looks at descendants that were killed and are not gone yet."""

_POLL_S: Final = 0.02
"""Between looks at those that a waiting shell waits for; nobody tells us, they are not our children."""

_SHELLS: Final = frozenset({"sh", "dash", "bash", "ash", "busybox"})
"""What `/bin/sh` calls itself.  One that was replaced by its command, as shells do with a last one, does not."""

_COMM_BYTES: Final = 64


def signal_tree(tree: ProcessTree, number: int) -> None:
    """Send `number` to the program and to all that it started; what has ended meanwhile is left out.  Blocks for ms."""
    _send(members(scan(), tree), number)


async def ask_to_end(tree: ProcessTree, grace_s: float) -> None:
    """TERM for all of `tree`; returns at once, or after at most `grace_s` when its program is a shell that waits."""
    found = await anyio.to_thread.run_sync(lambda: members(scan(), tree))
    others = [pid for pid in found if pid != tree.pid]
    if not others or _name_of(tree.pid) not in _SHELLS:
        _send(found, signal.SIGTERM)
        return
    until = time.monotonic() + grace_s
    _send([tree.pid], signal.SIGSTOP)
    try:
        _send(others, signal.SIGTERM)
        while time.monotonic() < until and any(map(_is_alive, others)):  # noqa: ASYNC110 - nobody tells
            await anyio.sleep(_POLL_S)
    finally:
        # Not before: one that is on its way to be stopped would die of it at once (`wants_signal` in Linux).
        _send([tree.pid], signal.SIGTERM)
        _send([tree.pid], signal.SIGCONT)


def members(processes: "dict[int, Process]", tree: ProcessTree) -> tuple[int, ...]:
    """The program of `tree` and all that it started, orphans too; what of us stands above it is left out."""
    if tree.top not in processes or tree.pid not in processes:
        return ()
    ours = _above(processes, tree)
    if tree.pid != tree.top and tree.top not in ours:
        return ()
    children = family(processes)
    found, seen = [tree.top], {tree.top}
    for pid in found:
        new = [child for child in children.get(pid, ()) if child not in seen]
        found += new
        seen.update(new)
    return tuple(pid for pid in found if pid not in ours)


async def kill_descendants(grace_s: float, spare: Callable[[int], bool] = lambda _: False) -> None:
    """KILL and reap every descendant of this process but the spared ones, for at most `grace_s` seconds."""
    with anyio.move_on_after(grace_s):
        while True:
            alive = [child for child in psutil.Process().children(recursive=True) if not spare(child.pid)]
            if not alive:
                return
            for child in alive:
                try:
                    child.kill()
                    os.waitpid(child.pid, os.WNOHANG)  # noqa: ASYNC222 - does not block
                except (psutil.NoSuchProcess, ChildProcessError):
                    continue  # gone, or a grandchild: its own parent reaps it, or leaves it to us next round
            await anyio.sleep(_REAP_POLL_S)


def _above(processes: "dict[int, Process]", tree: ProcessTree) -> Collection[int]:
    """The processes from the program's parent up to the topmost one."""
    above: set[int] = set()
    pid = tree.pid
    while pid != tree.top and pid in processes and processes[pid].parent not in above:
        pid = processes[pid].parent
        above.add(pid)
    return above


def _send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # gone already


def _is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return line[line.rindex(b")") + 2 : line.rindex(b")") + 3] not in (b"Z", b"X")


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_bytes()[:_COMM_BYTES].decode(errors="replace").strip()
    except OSError:
        return ""
