"""Scenes of `test_process_trees.py`, each in a process of its own, for each tier: `lab.py TIER…`.

Adopting orphans and killing all descendants concern a whole process; inside the test runner they would hit others.
On stdout, as lines of JSON: scene, tier and outcome, then scene, tier and how its process ended.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Coroutine
from itertools import product
from pathlib import Path
from typing import Any, Final

import anyio
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from support.processes.identities import plain_python
from support.sandbox.confinements import TierHome, tier_home_of
from support.waiting import eventually_async

from quarterdeck_protocol.policy_values import Tier
from quarterdeck_sandbox.program.launch import LaunchPlan
from quarterdeck_sandbox.run.process import ConfinedProcess
from quarterdeck_sandbox.run.process_settings import adopt_orphans
from quarterdeck_sandbox.run.process_signals import kill_descendants
from quarterdeck_sandbox.run.start import start

GRACE_S: Final = 30.0  # a busy machine takes a while; each step of a stop ends as soon as it can
DAEMON = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
if os.fork():
    os.wait()
    sys.stdin.readline()
    os._exit(LEAVES)
os.setsid()
if os.fork():
    os._exit(0)
print("ready", flush=True)
os.close(0), os.close(1), os.close(2)
signal.pause()
"""
"""A server that double-forks a daemon which ignores TERM, and leaves without it when it is told to, or at EOF."""


def parent_of(pid: int) -> int | None:
    """The parent of a process, None when it has just ended."""
    try:
        return psutil.Process(pid).ppid()
    except psutil.NoSuchProcess:
        return None


async def server(place: TierHome, *, leaves: int = 0) -> tuple[ConfinedProcess, list[int]]:
    python = plain_python() or sys.executable
    code = DAEMON.replace("LEAVES", str(leaves))
    process = await start(place.confine(LaunchPlan(python, ("python", "-I", "-S", "-c", code), {}, "/")))
    await anyio.wait_readable(process.stdout_fd)
    assert os.read(process.stdout_fd, 100) == b"ready\n"
    daemon: list[int] = []

    def is_alone() -> bool:
        # Its parent goes first; then it has left the server for whoever adopts.
        daemon[:] = [pid for pid in below(process) if parent_of(pid) not in (None, process.pid)]
        return len(daemon) == 1 and psutil.Process(process.pid).children() == []

    await eventually_async(is_alone)
    return process, daemon


def tree(process: ConfinedProcess) -> list[int]:
    top = psutil.Process(process.tree(()).top)
    return [top.pid, *(child.pid for child in top.children(recursive=True))]


def below(process: ConfinedProcess) -> list[int]:
    """What the server has started: neither itself nor what stands above it."""
    above = {process.pid, *(parent.pid for parent in psutil.Process(process.pid).parents())}
    return [pid for pid in tree(process) if pid not in above]


def alive(*pids: int) -> list[int]:
    """Those of `pids` that still run or wait to be reaped."""
    return [pid for pid in pids if psutil.pid_exists(pid)]


async def stop_a_server_with_a_daemon(place: TierHome) -> dict[str, Any]:
    """The server ends at EOF; its daemon would not."""
    process, daemon = await server(place)
    whole = tree(process)
    await process.stop(GRACE_S)
    process.close_fds()
    return {"returncode": process.returncode, "daemons": len(daemon), "alive": alive(*whole)}


async def stop_a_server_that_left_its_daemon(place: TierHome) -> dict[str, Any]:
    """The server goes by itself; its daemon holds nothing that would tell of it."""
    process, _ = await server(place, leaves=3)
    whole = tree(process)
    os.write(process.stdin_fd, b"\n")
    returncode = await process.wait()
    await process.stop(GRACE_S)
    process.close_fds()
    return {"returncode": returncode, "alive": alive(*whole)}


async def spare_one(place: TierHome) -> dict[str, Any]:
    kept, _ = await server(place)
    doomed, _ = await server(place)
    spared, rest = tree(kept), tree(doomed)
    await kill_descendants(GRACE_S, lambda pid: pid in spared)
    outcome = {"kept": alive(*spared) == spared, "alive": alive(*rest)}
    for process in (kept, doomed):
        await process.stop(GRACE_S)
        process.close_fds()
    return outcome | {"left": alive(*spared, *rest)}


async def be_killed(place: TierHome) -> dict[str, Any]:
    """Nothing can be done any more for what runs: whoever plays it is killed afterwards."""
    process, _ = await server(place)
    return {"pids": tree(process)}


SCENES: Final = (stop_a_server_with_a_daemon, stop_a_server_that_left_its_daemon, spare_one, be_killed)


async def play(scene: Callable[[TierHome], Coroutine[None, None, dict[str, Any]]], tier: str) -> None:
    with tier_home_of(Tier(tier), tempfile.gettempdir()) as place:
        print(json.dumps([scene.__name__, tier, await scene(place)]), flush=True)
        if scene is be_killed:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    for scene, tier in product(SCENES, sys.argv[1:]):
        if pid := os.fork():
            ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            print(json.dumps([scene.__name__, tier, ended]), flush=True)
            continue
        status = 1
        try:
            adopt_orphans()
            asyncio.run(play(scene, tier))
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)


if __name__ == "__main__":
    main()
