"""Calls through `quarterdeck serve --http`, against other programs that offer the same echo server over HTTP.

All of them are called by one client that costs little, in the legacy era, which they all speak; the peers come from
their registries, and a line is left out where one cannot be had.
"""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import anyio
from support.config.places import row, short_folder, write_config
from support.processes.commands import command
from support.processes.line_child import LineChild

from quarterdeck.cli.configure.secret import read_token, token_path

from .finding import Finding, NotMeasuredError, Target
from .http_load import http_load
from .http_peers import fetch_fastmcp, fetch_mcp_proxy, running_peer
from .peers import ECHO, ECHO_NAME, TEXT
from .rounds import Effort, Table, alternate, repeat

LATENCY: Final = Target(required=0.6, goal=0.35)

RATE: Final = Target(required=2.0, goal=3.0, more_is_better=True)

RATE_OF_FASTMCP: Final = Target(required=8.0, more_is_better=True)

CALLS: Final = 100
"""One after the other, in one sample."""

MANY: Final = 100
"""Calls under way at once."""

CALLS_AT_ONCE: Final = 2000

START_S: Final = 60.0


async def measure(effort: Effort) -> list[Finding]:
    """One call at a time, and a hundred."""
    findings: list[Finding] = []
    lacking = []
    with short_folder() as kept:
        for name, fetch, targets in (
            ("mcp-proxy", fetch_mcp_proxy, (LATENCY, RATE)),
            ("FastMCP", fetch_fastmcp, (None, RATE_OF_FASTMCP)),
        ):
            try:
                findings += await _beside(name, fetch, kept / name, targets, effort)
            except NotMeasuredError as error:
                lacking.append(str(error))
    if not findings:
        raise NotMeasuredError("; ".join(lacking))
    return findings


async def _beside(
    name: str,
    fetch: Callable[[Path], list[str]],
    folder: Path,
    targets: tuple[Target | None, Target],
    effort: Effort,
) -> list[Finding]:
    await anyio.Path(folder).mkdir()
    argv = fetch(folder)
    p50, other_p50, rate, other_rate = await repeat(effort.repeats, lambda: _alternated(argv, folder, effort.rounds))
    latency, rates = targets
    found = [Finding.of_rounds(f"calls a second over HTTP, {MANY} at once, {name}'s", "/s", rates, rate, other_rate)]
    if latency is not None:
        found.append(Finding.of_rounds(f"call over HTTP, p50, {name}'s", "ms", latency, p50, other_p50))
    return found


async def _alternated(argv: list[str], kept: Path, rounds: int) -> Table:
    with short_folder() as folder, ExitStack() as stack:
        config = write_config(folder / "servers.json", **{ECHO: row(ECHO)})
        words = command("serve", "--config", str(config), "--http", "127.0.0.1:0", "--json")
        child = stack.enter_context(LineChild(words, cwd=folder, deadline_s=START_S))
        peer = stack.enter_context(running_peer(argv, kept))
        url = json.loads(child.read_line())["url"]
        token = read_token(token_path())
        async with (
            http_load(url, ECHO_NAME, connections=MANY, token=token) as ours,
            http_load(peer, ECHO, connections=MANY) as theirs,
        ):
            return await alternate(
                rounds,
                ours.p50(ECHO_NAME, TEXT, CALLS),
                theirs.p50(ECHO, TEXT, CALLS),
                ours.rate(ECHO_NAME, TEXT, CALLS_AT_ONCE),
                theirs.rate(ECHO, TEXT, CALLS_AT_ONCE),
            )
