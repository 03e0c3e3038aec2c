"""Signal a whole tree of processes; ask it to end; end our own descendants.

`ask_to_end` is the polite way; `ConfinedProcess.end` follows, which reaches only the program's group, and then kills.
A confined tree dies with its program.  Where that is a shell which only waits for others, it would be the first to
heed TERM, and they would be killed before they have heeded it; so it is stopped until they are gone.

What is no coroutine blocks, for milliseconds: call it in a thread.
"""

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable
from typing import Final

import anyio
import anyio.to_thread

from quarterdeck_sandbox.policy.limits import ProcessTree, below, family, members

from .processes import read_proc, scan, state_of

_REAP_POLL_S: Final = 0.01  # between looks at descendants that were killed and are not gone yet

_POLL_S: Final = 0.02
"""Between looks at those that a waiting shell waits for; nobody tells us, they are not our children."""

_ENDED: Final = frozenset({b"", b"Z", b"X"})  # states of what is gone, or only waits to be reaped
_SHELLS: Final = frozenset({"sh", "dash", "bash", "ash", "busybox"})
"""What `/bin/sh` calls itself.  One that was replaced by its command, as shells do with a last one, does not."""

_CHILDREN_BYTES: Final = 256 * 1024  # the pids of thirty thousand children; those beyond come with the next look
_MOST_BELOW: Final = 32_768  # descendants of one look: a chain of processes can fork as fast as it is followed


def signal_tree(tree: ProcessTree, number: int) -> None:
    """Send `number` to the program and to all that it started; what has ended meanwhile is left out.  Blocks for ms."""
    _send(members(scan(), tree), number)


async def ask_to_end(tree: ProcessTree, grace_s: float) -> None:
    """Send TERM to all of `tree`; return at once, or after at most `grace_s` if its program is a shell that waits."""
    found = await anyio.to_thread.run_sync(lambda: members(scan(), tree))
    others = [pid for pid in found if pid != tree.pid]
    if not others or _name_of(tree.pid) not in _SHELLS:
        _send(found, signal.SIGTERM)
        return
    until = time.monotonic() + grace_s
    _send([tree.pid], signal.SIGSTOP)
    try:
        _send(others, signal.SIGTERM)
        while time.monotonic() < until and any(state_of(pid) not in _ENDED for pid in others):  # noqa: ASYNC110 - nobody tells
            await anyio.sleep(_POLL_S)
    finally:
        # Not before: one that is on its way to be stopped would die of it at once (`wants_signal` in Linux).
        _send([tree.pid], signal.SIGTERM)
        _send([tree.pid], signal.SIGCONT)


def descendants(besides: Collection[int] = ()) -> list[int]:
    """Return every process below this one, parents first, except these children and what is below them.

    The kernel tells a process's children if built so (CONFIG_PROC_CHILDREN), as in distributions; else all processes of
    the machine are looked at.  Our own children are complete: only we reap them.  Theirs may come a look later.
    """
    ours = _told_children(os.getpid())
    if ours is None:
        children = family(scan())
        found = below([pid for pid in children.get(os.getpid(), ()) if pid not in besides], children)
    else:
        found = [pid for pid in ours if pid not in besides]
        for pid in found:
            if len(found) >= _MOST_BELOW:
                break
            found += _told_children(pid) or ()
    return found


async def kill_descendants(grace_s: float, spare: Callable[[int], bool] = lambda _: False) -> None:
    """Kill and reap every descendant of this process except the spared ones, for at most `grace_s` seconds."""
    with anyio.move_on_after(grace_s):
        while True:
            alive = [pid for pid in descendants() if not spare(pid)]
            if not alive:
                return
            for pid in alive:
                try:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - does not block
                except (ProcessLookupError, PermissionError, ChildProcessError):
                    continue  # gone, or a grandchild: its own parent reaps it, or leaves it to us next round
            await anyio.sleep(_REAP_POLL_S)


def _told_children(pid: int) -> list[int] | None:
    """Return a process's children as the kernel tells; None if it does not, or the process is gone."""
    try:
        found: list[int] = []
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                # Each number has a blank behind it: one that is cut off has none.
                found += map(int, file.read(_CHILDREN_BYTES).rpartition(b" ")[0].split())
    except OSError:
        return None
    return found


def _send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # gone already


def _name_of(pid: int) -> str:
    try:
        return read_proc(pid, "comm").decode(errors="replace").strip()
    except OSError:
        return ""
