"""What other programs cost over servers that nobody calls: `mcp-hub`, which starts them all, and `mcp-hangar`, which
starts a server at its first call.  Neither isolates them.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.clients.raw_client import RawStdioClient
from support.config.places import write_document

from .http_load import SseLoad, http_load
from .http_peers import mcp_hub, running_peer
from .peers import ECHO, TEXT
from .process_tree import Cost, costs_of
from .start_peer import fetch_programs
from .started import PATIENCE_S, Rows

REST_S: Final = 10.0

IDLE_S: Final = 20.0


HANGAR_AT_ONCE: Final = 10
"""Servers that `mcp-hangar` starts at once: its limits, in calls and starts, are 20 at once and 10 a second."""

HANGAR_PAUSE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class PeerCosts:
    """One program's own costs, without its servers'.

    Attributes:
        listed_s: seconds from its start to its first list of tools.
        unused: at rest, no server called yet.
        awake: every server running, right after their start.
        idle_percent: CPU while `unused`, of one core.
    """

    listed_s: float
    unused: Cost
    awake: Cost
    idle_percent: float


def hub_costs(folder: Path, rows: Rows) -> PeerCosts:
    """Measure `mcp-hub`.  Raise `NotMeasuredError` if it cannot be had here."""
    argv = mcp_hub(folder, rows)
    began = time.perf_counter()
    with running_peer(argv, folder) as (url, pid):
        asyncio.run(_listed_by_hub(url, rows))
        listed_s = time.perf_counter() - began
        awake = _cost(pid)
        unused, idle_percent = _at_rest(pid)
        return PeerCosts(listed_s, unused, awake, idle_percent)


def hangar_costs(program: Path, folder: Path, rows: Rows) -> PeerCosts:
    began = time.perf_counter()
    with hangar(program, folder, rows) as client:
        listed_s = time.perf_counter() - began
        unused, idle_percent = _at_rest(client.pid)
        servers = list(rows)
        for first in range(0, len(servers), HANGAR_AT_ONCE):
            hangar_call_s(client, *servers[first : first + HANGAR_AT_ONCE])
            time.sleep(HANGAR_PAUSE_S)
        return PeerCosts(listed_s, unused, _cost(client.pid), idle_percent)


def fetch_hangar(folder: Path) -> Path:
    """The program `mcp-hangar`.  Raise `NotMeasuredError` if it cannot be had here."""
    return fetch_programs(folder, "mcp-hangar") / "mcp-hangar"


@contextmanager
def hangar(program: Path, folder: Path, rows: Rows) -> Iterator[RawStdioClient]:
    """A client that `mcp-hangar` has listed its own tools to; no server runs yet."""
    servers = {name: {"mode": "subprocess", "command": [each["command"], *each["args"]]} for name, each in rows.items()}
    config = write_document(folder / "hangar.yaml", mcp_servers=servers)
    words = [str(program), "serve", "--config", str(config)]
    environ = os.environ | {"HOME": str(folder)}
    with RawStdioClient(words, env=environ, cwd=folder, deadline_s=PATIENCE_S) as client:
        client.initialize()
        client.list_tools()
        yield client


def hangar_call_s(client: RawStdioClient, *servers: str, tool: str = ECHO, is_answered: bool = True) -> float:
    """Seconds of one call of each server, made at once."""
    calls = [{"mcp_server": server, "tool": tool, "arguments": {"text": TEXT}} for server in servers]
    began = time.perf_counter()
    found = client.call("hangar_call", calls=calls, timeout=PATIENCE_S)
    assert found["structuredContent"]["success"] is is_answered, found
    return time.perf_counter() - began


async def _listed_by_hub(url: str, rows: Rows) -> None:
    async with http_load(url, *(f"{each}__{ECHO}" for each in rows), connections=1, kind=SseLoad):
        pass


def _at_rest(pid: int) -> tuple[Cost, float]:
    time.sleep(REST_S)
    before = _cost(pid)
    time.sleep(IDLE_S)
    after = _cost(pid)
    return after, (after.cpu_ms - before.cpu_ms) / IDLE_S / 10


def _cost(pid: int) -> Cost:
    return costs_of(pid, with_memory=True).ours
