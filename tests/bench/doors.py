"""A door against a serve of its own: a call through each, how soon a door's client is greeted, what a door takes.

One daemon serves the door, and another process of ours the client of `serve --own`, each with an echo server; a
second state directory keeps the two apart.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import psutil
from support.clients.raw_client import RawStdioClient
from support.config.places import row, short_folder, write_config
from support.processes.commands import command
from support.waiting import eventually

from .finding import Finding, Target
from .peers import ECHO, ECHO_NAME, TEXT
from .rounds import Call, Effort, Table, alternate, p50_of, repeat

CALL: Final = Target(required=1.1, goal=1.0)

START: Final = Target(required=150.0, goal=80.0)

MEMORY: Final = Target(required=12.0, goal=6.0)

CALLS: Final = 100
"""In one sample."""

START_S: Final = 60.0

MIB: Final = 1024 * 1024


async def measure(effort: Effort) -> list[Finding]:
    through, own = await repeat(effort.repeats, lambda: _calls(effort.rounds))
    starts, memory = await asyncio.to_thread(_starts, effort.rounds * effort.repeats)
    return [
        Finding.of_rounds("call through a door, p50", "ms", CALL, through, own, "reference: serve --own"),
        Finding("a door's client greeted, the daemon up", "ms", START, median(starts)),
        Finding("a door's own memory", "MiB", MEMORY, median(memory)),
    ]


async def _calls(rounds: int) -> Table:
    with _client() as door, _client("--own") as own:
        return await alternate(rounds, p50_of(_echo(door), CALLS), p50_of(_echo(own), CALLS))


def _starts(count: int) -> tuple[list[float], list[float]]:
    """Milliseconds to the answer to `initialize`, and MiB that nobody else has, of so many doors."""
    times, sizes = [], []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(short_folder()))
        config = _configuration(folder)
        _see_tools(stack.enter_context(stdio_client(folder, config)))
        for _ in range(count):
            started = time.perf_counter()
            with stdio_client(folder, config) as client:
                client.initialize()
                times.append((time.perf_counter() - started) * 1000)
                process = psutil.Process(client.pid)
                eventually(lambda process=process: "wait.py" in " ".join(process.cmdline()), START_S)
                sizes.append(process.memory_full_info().uss / MIB)
    return times, sizes


@contextmanager
def _client(*options: str) -> Iterator[RawStdioClient]:
    with short_folder() as folder, stdio_client(folder, _configuration(folder), *options) as client:
        _see_tools(client)
        yield client


def _configuration(folder: Path) -> Path:
    return write_config(folder / "servers.json", **{ECHO: row(ECHO)})


def stdio_client(folder: Path, config: Path, *options: str) -> RawStdioClient:
    """Start a client's `serve`, by default a door, with its own state in `folder`."""
    environ = {name: value for name, value in os.environ.items() if name != "QUARTERDECK_OWN"}
    places = {"QUARTERDECK_STATE_DIR": str(folder / "state"), "QUARTERDECK_RUNTIME_DIR": str(folder / "run")}
    argv = command("serve", "--config", str(config), *options)
    return RawStdioClient(argv, env={**environ, **places, "QUARTERDECK_LINGER": "0"}, cwd=folder, deadline_s=START_S)


def _see_tools(client: RawStdioClient) -> None:
    client.initialize()
    listed: Callable[[], bool] = lambda: ECHO_NAME in [tool["name"] for tool in client.list_tools()]  # noqa: E731
    eventually(listed, START_S, "the echo server's tools")


def _echo(client: RawStdioClient) -> Call:
    async def call() -> None:
        client.call(ECHO_NAME, text=TEXT)

    return call
