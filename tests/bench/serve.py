"""Calls through `quarterdeck serve`, against the plain SDK client's to an echo server itself.

Over stdio a raw client makes ours.  Over HTTP the SDK's client makes both: to a server of the SDK on the one side; on
the other, the echo server is one more process away, on stdio.
"""

import importlib.util
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from support.clients.raw_client import RawStdioClient
from support.config.places import row, short_folder, write_config
from support.processes.commands import command
from support.processes.http_servers import forked_http_server
from support.processes.line_child import LineChild
from support.waiting import POLL_S, eventually

from quarterdeck.cli.configure.secret import read_token, token_path

from .finding import Finding, NotMeasuredError, Target
from .peers import ECHO, ECHO_NAME, TEXT, plain_client, sdk_call
from .rounds import Call, Effort, Table, alternate, p50_of, repeat

LATENCY: Final = Target(required=1.3, goal=1.0)
"""What holds ours is Python: 160 short functions of the supervisor and 80 of the worker, none of which takes 3 %.  The
six system calls of each are the fewest for two wakes.  The ratio is the machine's, too: 1.05 to 1.71 were measured.
"""

HTTP_LATENCY: Final = Target(required=1.5, goal=1.0)

CALLS: Final = 60
"""In one sample."""

START_S: Final = 60.0
"""For serve and its servers to be there."""


async def measure(effort: Effort) -> list[Finding]:
    if importlib.util.find_spec("quarterdeck.cli") is None:
        raise NotMeasuredError("quarterdeck.cli is not there")
    ours, sdk = await repeat(effort.repeats, lambda: _over_stdio(effort.rounds))
    stdio = Finding.of_rounds("call through serve on stdio, p50", "ms", LATENCY, ours, sdk)
    ours, sdk = await repeat(effort.repeats, lambda: _over_http(effort.rounds))
    return [stdio, Finding.of_rounds("call through serve on HTTP, p50", "ms", HTTP_LATENCY, ours, sdk)]


async def _over_stdio(rounds: int) -> Table:
    """The raw client blocks the loop, on which nothing else has work meanwhile."""
    with short_folder() as folder, _serving(folder) as raw:
        raw.initialize()
        eventually(lambda: ECHO_NAME in [tool["name"] for tool in raw.list_tools()], START_S, "the echo server's tools")

        async def call() -> None:
            raw.call(ECHO_NAME, text=TEXT)

        async with plain_client() as client:
            return await alternate(rounds, p50_of(call, CALLS), p50_of(sdk_call(client), CALLS))


async def _over_http(rounds: int) -> Table:
    with short_folder() as folder:
        argv = [*_serve(folder), "--http", "127.0.0.1:0", "--json"]
        with LineChild(argv, cwd=folder, deadline_s=START_S) as child, forked_http_server("--legacy") as direct:
            url = json.loads(child.read_line())["url"]
            token = read_token(token_path())
            async with _http_client(url, token, ECHO_NAME) as ours, _http_client(direct, token, ECHO) as sdk:
                return await alternate(rounds, p50_of(ours, CALLS), p50_of(sdk, CALLS))


@asynccontextmanager
async def _http_client(url: str, token: str, tool: str) -> AsyncIterator[Call]:
    """A call of `tool` by the SDK's client, which has listed it."""
    async with (
        create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as http,
        Client(streamable_http_client(url, http_client=http), mode="legacy", cache=None) as client,
    ):
        listed: list[str] = []
        while tool not in listed:
            await anyio.sleep(POLL_S)
            listed = [one.name for one in (await client.list_tools()).tools]

        async def call() -> None:
            await client.call_tool(tool, {"text": TEXT})

        yield call


def _serving(folder: Path) -> RawStdioClient:
    return RawStdioClient([*_serve(folder), "--own"], env=dict(os.environ), cwd=folder, deadline_s=START_S)


def _serve(folder: Path) -> list[str]:
    return command("serve", "--config", str(write_config(folder / "servers.json", **{ECHO: row(ECHO)})))
