"""Time `true` by the `bash` tool and by a bare shell, by turns; run as the user who is to be measured.

    bash_child.py ROUNDS

Prints one JSON object: for each way the milliseconds of every round, and how commands were confined.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from quarterdeck.tools.commands.bash import bash_tool
from quarterdeck.tools.commands.command_policy import CommandPolicy
from quarterdeck.tools.commands.shell import SandboxedShell
from quarterdeck.tools.files.local_files import make_local_context
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import NetworkMode
from quarterdeck_protocol.tools import CancelToken, ToolCall

COMMAND = "true"

MODES = {"standard": None, "none": NetworkMode.NONE}


async def main(rounds: int) -> None:
    """Bare and each network, one after another in every round; the first round of each only warms up."""
    folder = Path.cwd()
    workspace, user = folder / "workspace", folder / "user"
    for place in (workspace, user):
        place.mkdir()
    if os.geteuid() == 0:
        os.chown(workspace, 12345, 12345)
    async with AsyncExitStack() as shells:
        ways: dict[str, Callable[[], Awaitable[None]]] = {"bare": bare}
        told: dict[str, str] = {}
        for name, network in MODES.items():
            bench = CommandPolicy(
                str(workspace),
                folder / "home",
                folder / "tmp",
                policy=SandboxPolicy(network=network),
                environ={"PATH": "/usr/local/bin:/usr/bin:/bin"},
                user_home=user,
            )
            shell = await shells.enter_async_context(SandboxedShell.open(bench.setup, bench.workspace))
            ctx = make_local_context(workspace, shell=shell)
            ways[name] = lambda ctx=ctx: called(ctx)
            receipt = (await shell.spawn(COMMAND)).process.receipt
            told[name] = f"{receipt.tier}, network {receipt.network}"
        times: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(rounds + 1):
            for name, way in ways.items():
                began = time.perf_counter()
                await way()
                if turn:
                    times[name].append((time.perf_counter() - began) * 1000)
    print(json.dumps({"told": told, "times": times}))


async def bare() -> None:
    child = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        COMMAND,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    await child.communicate()


async def called(ctx) -> None:
    request = ToolCall("1", "bash", {"command": COMMAND})
    outcome = await BASH.invoke(request, ctx.with_cancel(CancelToken(), request.report))
    assert not outcome.is_error, outcome.output


BASH = bash_tool()

if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]))
