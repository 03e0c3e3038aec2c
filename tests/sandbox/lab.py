"""Scenes for `test_process.py` that need a process of their own: `lab.py SCENE`, the outcome as JSON on stdout.

Adopting orphans and killing all descendants concern a whole process; inside the test runner they would hit others.
"""

import asyncio
import json
import os
import sys
from typing import Any

import anyio
import psutil

from quarterdeck_sandbox.launch import LaunchPlan
from quarterdeck_sandbox.process import ConfinedProcess, adopt_orphans, kill_descendants, start

DAEMON = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
if os.fork():
    os.wait()
    if LEAVES:
        os._exit(3)
    sys.stdin.read()
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
print(os.getpid(), flush=True)
os.close(0), os.close(1), os.close(2)
signal.pause()
"""
"""A server that double-forks a daemon which ignores TERM, then waits for EOF or leaves at once."""


async def server(*, leaves: bool) -> tuple[ConfinedProcess, int]:
    """The server, and its daemon's pid."""
    code = DAEMON.replace("LEAVES", str(leaves))
    process = await start(LaunchPlan(sys.executable, ("python", "-I", "-S", "-c", code), {}, "/"))
    await anyio.wait_readable(process.stdout_fd)
    return process, int(os.read(process.stdout_fd, 100))


def alive(*pids: int) -> list[int]:
    """Those of `pids` that still run or wait to be reaped."""
    return [pid for pid in pids if psutil.pid_exists(pid)]


async def stop_a_server_with_a_daemon() -> dict[str, Any]:
    """The server ends at EOF; its daemon would not."""
    process, daemon = await server(leaves=False)
    await process.stop(1.0)
    process.close_fds()
    return {"returncode": process.returncode, "alive": alive(process.pid, daemon)}


async def stop_a_server_that_left_its_daemon() -> dict[str, Any]:
    """The server is gone already; its daemon holds nothing that would tell of it."""
    process, daemon = await server(leaves=True)
    returncode = await process.wait()
    before = alive(daemon)
    await process.stop(1.0)
    process.close_fds()
    return {"returncode": returncode, "before": len(before), "alive": alive(daemon)}


async def spare_one() -> dict[str, Any]:
    """All descendants die but the spared."""
    kept, kept_daemon = await server(leaves=False)
    doomed, doomed_daemon = await server(leaves=False)
    await kill_descendants(5.0, lambda pid: pid in (kept.pid, kept_daemon))
    outcome = {"kept": alive(kept.pid, kept_daemon) == [kept.pid, kept_daemon], "alive": alive(doomed_daemon)}
    for process in (kept, doomed):
        await process.stop(1.0)
        process.close_fds()
    return outcome | {"left": alive(kept.pid, kept_daemon, doomed.pid)}


if __name__ == "__main__":
    adopt_orphans()
    print(json.dumps(asyncio.run(globals()[sys.argv[1]]())))
