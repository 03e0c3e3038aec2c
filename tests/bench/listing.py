"""How long `tools/list` of 500 tools takes while three servers of ten are dead: by a door, by `serve --own`, by HTTP.

What is measured is the time until the whole answer has come; the client reads nothing of it meanwhile.
"""

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
from support.config.places import row, short_folder, write_config
from support.processes.commands import command
from support.processes.line_child import LineChild

from quarterdeck.cli.configure.secret import read_token, token_path

from .doors import stdio_client
from .finding import Finding, Target
from .http_load import http_load
from .rounds import Effort

LIST: Final = Target(required=10.0)

ALIVE: Final = 7
DEAD: Final = 3

TOOLS: Final = 500

NAMES: Final = 60
"""Of tools that each server has beside those of `echo.py`."""

LISTS: Final = 300
"""Of which three may be slower."""

START_S: Final = 60.0

REQUEST: Final = b'{"jsonrpc":"2.0","id":"%d","method":"tools/list","params":{}}\n'

Ask = Callable[[], Awaitable[bytes]]
"""Asks for the list; its answer, whole."""


async def measure(effort: Effort) -> list[Finding]:
    findings = []
    for name, way, options in (("a door", _stdio, ()), ("serve --own", _stdio, ("--own",)), ("HTTP", _http, ())):
        times: list[float] = []
        size = 0
        for _ in range(effort.repeats):
            with short_folder() as folder:
                async with way(folder, *options) as ask:
                    size = len(await _settled(ask))
                    for _ in range(LISTS):
                        started = time.perf_counter()
                        await ask()
                        times.append((time.perf_counter() - started) * 1000)
        times.sort()
        p99, median = times[-len(times) // 100 - 1], times[len(times) // 2]
        note = f"p50 {median:.2f} ms, {size // 1024} KiB, {DEAD} of {ALIVE + DEAD} servers dead"
        findings.append(Finding(f"tools/list of {TOOLS} tools by {name}, p99", "ms", LIST, p99, note=note))
    return findings


async def _settled(ask: Ask) -> bytes:
    """The list once it has the tools of every server that lives."""
    with anyio.fail_after(START_S):
        while (listed := await ask()).count(b'"inputSchema"') < TOOLS:  # noqa: ASYNC110 - nobody tells
            await anyio.sleep(0.1)
    return listed


def _configuration(folder: Path) -> Path:
    names = [f"tool_{number}" for number in range(NAMES)]
    rows = {f"alive{number}": row("named", *names) for number in range(ALIVE)}
    rows |= {f"dead{number}": row("hostile", "exits_at_once") for number in range(DEAD)}
    return write_config(folder / "servers.json", **rows)


@asynccontextmanager
async def _stdio(folder: Path, *options: str) -> AsyncIterator[Ask]:
    with stdio_client(folder, _configuration(folder), *options) as client:
        client.initialize()
        asked = 0

        async def ask() -> bytes:
            nonlocal asked
            asked += 1
            client.write(REQUEST % asked)
            wanted = b'"id":"%d"' % asked
            while wanted not in (line := client.read_line())[:100]:
                pass
            return line

        yield ask


@asynccontextmanager
async def _http(folder: Path) -> AsyncIterator[Ask]:
    words = command("serve", "--config", str(_configuration(folder)), "--http", "127.0.0.1:0", "--json")
    with LineChild(words, cwd=folder, deadline_s=START_S) as child:
        url = json.loads(child.read_line())["url"]
        async with http_load(url, "tool_0", connections=1, token=read_token(token_path())) as load:
            yield load.list_tools
