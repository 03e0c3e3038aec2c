"""Fifty clients of one daemon at once, half through doors, half over HTTP, on twenty servers: is every answer right?

Each client asks for as long as the bench lasts, with several questions under way, whose texts nobody else asks.  What
serves them is looked at from a third of that time on, when all of it has been used.
"""

import asyncio
import itertools
import json
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

import httpx2
import psutil
import pytest
from support.clients.raw_client import CLIENT_INFO, LEGACY_VERSION
from support.config.places import row, short_folder, write_config
from support.processes.commands import command, quarterdeck_json
from support.processes.leftovers import assert_gone

from quarterdeck.cli.configure.secret import read_token, token_path

from .finding import Finding, Target
from .rounds import Effort

NONE: Final = Target(required=0.0)

SLOWEST_MS: Final = Target(required=5000.0, goal=1000.0)

GROWTH_MIB: Final = Target(required=16.0, goal=4.0)
"""Required: the ledger's cache, which fills with the first 100,000 calls."""

CLIENTS: Final = 25
"""Of each kind."""

SERVERS: Final = 20

CROWD: Final = f"{2 * CLIENTS} clients of one daemon"

UNDER_WAY: Final = 4
"""Questions of one client at a time."""

FULL_S: Final = 60.0
QUICK_S: Final = 10.0

MANY_ROUNDS: Final = 5
"""An effort of fewer is a quick one."""

SETTLE_S: Final = 120.0
"""For a start of all servers on a busy machine, and for the last answers."""

LOOK_S: Final = 1.0

GREETING: Final = {"protocolVersion": LEGACY_VERSION, "capabilities": {}, "clientInfo": CLIENT_INFO}

HEADERS: Final = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}

_MIB: Final = 1 << 20


@dataclass
class Tally:
    """What became of the questions of one kind of client."""

    times_ms: list[float] = field(default_factory=list)
    wrong: int = 0
    lost: int = 0
    doubled: int = 0

    def judge(self, question: str, reply: dict[str, Any], asked_at: float) -> None:
        self.times_ms.append((time.perf_counter() - asked_at) * 1000)
        if reply.get("result", {}).get("content") != [{"type": "text", "text": question}]:
            self.wrong += 1


@dataclass
class Use:
    """What one supervisor holds, look by look: private memory, and descriptors."""

    process: psutil.Process
    mib: list[float] = field(default_factory=list)
    fds: list[int] = field(default_factory=list)

    def look(self) -> None:
        self.mib.append(self.process.memory_full_info().uss / _MIB)
        self.fds.append(self.process.num_fds())

    @property
    def growth_mib(self) -> float:
        few = max(1, len(self.mib) // 5)
        return sum(self.mib[-few:]) / few - sum(self.mib[:few]) / few

    @property
    def growth_fds(self) -> int:
        few = max(1, len(self.fds) // 5)
        return max(self.fds[-few:]) - max(self.fds[:few])


Ask = Callable[[str, str], Awaitable[None]]
"""Asks a tool, by name, to echo a text, and has the reply judged."""


async def measure(effort: Effort) -> list[Finding]:
    lasting_s = FULL_S if effort.rounds > MANY_ROUNDS else QUICK_S
    with short_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.delenv("QUARTERDECK_OWN", raising=False)
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        own_file = folder / "config" / "quarterdeck" / "mcp.json"
        write_config(own_file, **{f"s{number}": row("echo") for number in range(SERVERS)})
        async with AsyncExitStack() as stack:
            daemon, url = await stack.enter_async_context(_daemon())
            doors, posts = Tally(), Tally()
            asks = [
                # First: their first lists wait for all servers.
                *await asyncio.gather(*(stack.enter_async_context(_door(folder, doors)) for _ in range(CLIENTS))),
                *await asyncio.gather(*(stack.enter_async_context(_session(url, posts)) for _ in range(CLIENTS))),
            ]
            use = Use(psutil.Process(daemon))
            started = time.monotonic()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_watch(use, started + lasting_s / 3, started + lasting_s))
                for number, ask in enumerate(asks):
                    for lane in range(UNDER_WAY):
                        tasks.create_task(_keep_asking(ask, f"client {number} lane {lane}", started + lasting_s))
            await asyncio.sleep(LOOK_S)  # in which an answer that is doubled would come
    return [
        *_findings("doors", doors, lasting_s),
        *_findings("HTTP", posts, lasting_s),
        Finding(
            f"{CROWD}: memory gained after warm-up", "MiB", GROWTH_MIB, use.growth_mib, note=f"{use.mib[-1]:.0f} MiB"
        ),
        Finding(
            f"{CROWD}: descriptors gained after warm-up", "", NONE, float(use.growth_fds), note=f"{use.fds[-1]} open"
        ),
    ]


def _findings(kind: str, tally: Tally, lasting_s: float) -> list[Finding]:
    p50, p99 = (quantiles(tally.times_ms, n=100)[at] for at in (49, 98))
    rate = len(tally.times_ms) / lasting_s
    crowd = f"{CLIENTS} clients by {kind}"
    failures = float(tally.wrong + tally.lost + tally.doubled)
    said = f"{tally.wrong} wrong, {tally.lost} lost, {tally.doubled} doubled, of {len(tally.times_ms):,}"
    return [
        Finding(f"{crowd}: answers wrong, lost or doubled", "", NONE, failures, note=said),
        Finding(f"{crowd}: slowest answer", "ms", SLOWEST_MS, max(tally.times_ms), note=_spread(rate, p50, p99)),
    ]


def _spread(rate: float, p50: float, p99: float) -> str:
    return f"{rate:,.0f} calls/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms"


async def _watch(use: Use, begin: float, end: float) -> None:
    await asyncio.sleep(begin - time.monotonic())
    while time.monotonic() < end:
        use.look()
        await asyncio.sleep(LOOK_S)


async def _keep_asking(ask: Ask, who: str, until: float) -> None:
    for number in itertools.count():
        if time.monotonic() > until:
            return
        await ask(f"s{number % SERVERS}__echo", f"{who} question {number}")


@asynccontextmanager
async def _daemon() -> AsyncIterator[tuple[int, str]]:
    """The daemon's process, with which nothing of it is left, and its URL."""
    told = await asyncio.to_thread(quarterdeck_json, "up", "--http", "127.0.0.1:0")
    pid: int = told["pid"]
    below: list[psutil.Process] = []
    try:
        yield pid, told["http"]["url"]
    finally:
        below = psutil.Process(pid).children(recursive=True)
        await asyncio.to_thread(quarterdeck_json, "down")
        assert_gone([pid, *(process.pid for process in below)])


@asynccontextmanager
async def _door(folder: Path, tally: Tally) -> AsyncIterator[Ask]:
    """A client through a door; whatever comes that was not asked for is counted."""
    process = await asyncio.create_subprocess_exec(
        *command("serve", "--settle", str(SETTLE_S)),
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        limit=_MIB,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    pipe, lines = process.stdin, process.stdout
    ids = itertools.count(1)
    asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
    answered: Counter[int] = Counter()

    async def read() -> None:
        async for line in lines:
            message = json.loads(line)
            if "method" in message:
                continue
            answered[message["id"]] += 1
            waiting = asked.pop(message["id"], None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)

    async def request(method: str, params: dict[str, Any]) -> dict[str, Any]:
        number = next(ids)
        waiting = asked[number] = asyncio.get_running_loop().create_future()
        pipe.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n")
        return await asyncio.wait_for(waiting, SETTLE_S)

    async def ask(tool: str, text: str) -> None:
        asked_at = time.perf_counter()
        try:
            reply = await request("tools/call", {"name": tool, "arguments": {"text": text}})
        except TimeoutError:
            tally.lost += 1
        else:
            tally.judge(text, reply, asked_at)

    reading = asyncio.create_task(read())
    try:
        await request("initialize", GREETING)
        pipe.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        assert len((await request("tools/list", {}))["result"]["tools"]) >= SERVERS
        yield ask
    finally:
        pipe.close()
        await process.wait()
        await reading
        tally.doubled += sum(times - 1 for times in answered.values())


@asynccontextmanager
async def _session(url: str, tally: Tally) -> AsyncIterator[Ask]:
    ids = itertools.count(1)
    limits = httpx2.Limits(max_connections=UNDER_WAY, max_keepalive_connections=UNDER_WAY)
    headers = {**HEADERS, "Authorization": f"Bearer {read_token(token_path())}"}
    async with httpx2.AsyncClient(headers=headers, limits=limits, timeout=SETTLE_S, trust_env=False) as http:

        async def request(method: str, params: dict[str, Any]) -> dict[str, Any]:
            number = next(ids)
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            response = await http.post(url, content=json.dumps(message))
            if "mcp-session-id" in response.headers:
                http.headers["Mcp-Session-Id"] = response.headers["mcp-session-id"]
            replies = [reply for reply in _messages(response) if reply.get("id") == number]
            tally.doubled += max(0, len(replies) - 1)
            if not replies:
                raise TimeoutError(f"{response.status_code}: {response.text[:200]}")
            return replies[0]

        async def ask(tool: str, text: str) -> None:
            asked_at = time.perf_counter()
            try:
                reply = await request("tools/call", {"name": tool, "arguments": {"text": text}})
            except (TimeoutError, httpx2.HTTPError):
                tally.lost += 1
            else:
                tally.judge(text, reply, asked_at)

        await request("initialize", GREETING)
        http.headers["Mcp-Protocol-Version"] = LEGACY_VERSION
        await http.post(url, content='{"jsonrpc":"2.0","method":"notifications/initialized"}')
        assert len((await request("tools/list", {}))["result"]["tools"]) >= SERVERS
        yield ask
        await http.delete(url)


def _messages(response: httpx2.Response) -> list[dict[str, Any]]:
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        lines = [line[5:].strip() for line in response.text.splitlines() if line.startswith("data:")]
        return [json.loads(line) for line in lines if line]
    return [json.loads(response.content)] if response.content else []
