"""Calls through `quarterdeck serve --http`, against other programs that offer the same echo server over HTTP.

All of them are called by one client that costs little, in the legacy era, which they all speak.  The peers come from
their registries; a line is left out, and said to be, where one cannot be had.
"""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from support.config.places import row, short_folder, write_config
from support.processes.commands import command
from support.processes.line_child import LineChild

from quarterdeck.cli.configure.secret import read_token, token_path

from .finding import Finding, Target
from .http_load import HttpLoad, SseLoad, http_load
from .http_peers import fastmcp, mcp_hub, mcp_proxy, running_peer
from .peers import ECHO, ECHO_NAME, TEXT
from .rounds import Effort, Table, alternate, repeat

LATENCY: Final = Target(required=0.6, goal=0.35)

RATE: Final = Target(required=2.0, goal=3.0, more_is_better=True)

RATE_OF_HUB: Final = Target(required=2.5, more_is_better=True)

RATE_OF_FASTMCP: Final = Target(required=8.0, more_is_better=True)

CALLS: Final = 100
"""One after the other, in one sample."""

MANY: Final = 100
"""Calls under way at once."""

CALLS_AT_ONCE: Final = 2000

START_S: Final = 60.0


async def measure(effort: Effort) -> list[Finding]:
    """One call at a time, and a hundred, against npm's `mcp-proxy`."""
    p50, other_p50, rate, other_rate = await _beside(mcp_proxy, effort)
    return [
        Finding.of_rounds("call over HTTP, p50, against mcp-proxy", "ms", LATENCY, p50, other_p50),
        Finding.of_rounds(f"{MANY} at once over HTTP, against mcp-proxy", "calls/s", RATE, rate, other_rate),
    ]


async def measure_hub(effort: Effort) -> list[Finding]:
    """A hundred calls at once, against npm's `mcp-hub`, which brings all answers on one stream of events."""
    _, _, rate, other_rate = await _beside(mcp_hub, effort, SseLoad, ECHO_NAME)
    return [Finding.of_rounds(f"{MANY} at once over HTTP, against mcp-hub", "calls/s", RATE_OF_HUB, rate, other_rate)]


async def measure_fastmcp(effort: Effort) -> list[Finding]:
    """A hundred calls at once, against FastMCP's proxy."""
    _, _, rate, other_rate = await _beside(fastmcp, effort)
    what = f"{MANY} at once over HTTP, against FastMCP"
    return [Finding.of_rounds(what, "calls/s", RATE_OF_FASTMCP, rate, other_rate)]


async def _beside(
    fetch: Callable[[Path], list[str]], effort: Effort, kind: type[HttpLoad] = HttpLoad, tool: str = ECHO
) -> Table:
    with short_folder() as folder:
        argv = fetch(folder)
        return await repeat(effort.repeats, lambda: _alternated(argv, folder, effort.rounds, kind, tool))


async def _alternated(argv: list[str], kept: Path, rounds: int, kind: type[HttpLoad], tool: str) -> Table:
    with short_folder() as folder, ExitStack() as stack:
        config = write_config(folder / "servers.json", **{ECHO: row(ECHO)})
        words = command("serve", "--config", str(config), "--http", "127.0.0.1:0", "--json")
        child = stack.enter_context(LineChild(words, cwd=folder, deadline_s=START_S))
        peer, _ = stack.enter_context(running_peer(argv, kept))
        url = json.loads(child.read_line())["url"]
        token = read_token(token_path())
        async with (
            http_load(url, ECHO_NAME, connections=MANY, token=token) as ours,
            http_load(peer, tool, connections=MANY, kind=kind) as theirs,
        ):
            return await alternate(
                rounds,
                ours.p50(ECHO_NAME, TEXT, CALLS),
                theirs.p50(tool, TEXT, CALLS),
                ours.rate(ECHO_NAME, TEXT, CALLS_AT_ONCE),
                theirs.rate(tool, TEXT, CALLS_AT_ONCE),
            )
