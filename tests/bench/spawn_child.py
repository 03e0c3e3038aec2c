"""Time starts of `true`, bare and confined, by turns; run as the user who is to be measured: `spawn_child.py ROUNDS`.

Prints one JSON object: for each way the milliseconds of every round, from spawn to the end of the program.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import NetworkMode
from quarterdeck_sandbox.doctor.probe import known_machine
from quarterdeck_sandbox.policy.mounts import Places
from quarterdeck_sandbox.program.launch import plan_launch
from quarterdeck_sandbox.run.confine import Requester, confine
from quarterdeck_sandbox.run.start import start

PROGRAM = "/bin/true"


async def main(rounds: int) -> None:
    """Bare and each confined way, one after another in every round."""
    machine = known_machine()
    folder = Path.cwd()
    for name in ("home", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    requester = Requester(Places(folder / "home", folder / "tmp", folder / "user"), {}, machine)
    modes = [NetworkMode.NONE, NetworkMode.FULL, *([NetworkMode.INTERNET] if machine.gives_internet else [])]
    ways: dict[str, Callable[[], Awaitable[None]]] = {"bare": bare}
    for mode in modes:
        ways[str(mode)] = confined(SandboxPolicy(network=mode), requester)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            began = time.perf_counter()
            await way()
            times[name].append((time.perf_counter() - began) * 1000)
    print(json.dumps({"tier": machine.tier, "times": times}))


async def bare() -> None:
    child = subprocess.Popen(  # noqa: ASYNC220 - what is measured
        [PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with child:
        fd = os.pidfd_open(child.pid)
        try:
            await anyio.wait_readable(fd)
        finally:
            os.close(fd)


def confined(policy: SandboxPolicy, requester: Requester) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        plan = plan_launch(PROGRAM, (), {"PATH": "/usr/bin:/bin"}, str(requester.places.home))
        process = await start(confine(plan, policy, requester))
        await process.wait()
        await process.stop(1.0)
        process.close_fds()

    return run


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]))
