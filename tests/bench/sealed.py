"""What sealed and sleeping servers cost, beside programs that seal nothing: `start.py --sealed [PART …]`.

sleeping      echo servers that nobody calls, and all of them awake; beside `mcp-hub` and `mcp-hangar`
filesystem    the first call of a sealed server that sleeps, beside its program started by itself
crash         a call right after a server's first crash, beside `mcp-hangar`
npm           ten public servers at once from their seals, beside their package runners
check         a seal checked at a start
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from typing import Final

from support.clients.raw_client import RawStdioClient
from support.config.places import short_folder
from support.seals import sealed

from quarterdeck.config.places.paths import seals_dir
from quarterdeck.seals.launch import launch_of
from quarterdeck.seals.request import PackageRequest, request_of
from quarterdeck.seals.store import SealStore

from .finding import Finding, NotMeasuredError, Target
from .peers import ECHO, TEXT
from .process_tree import Cost, Costs, Role, cost_of_trees
from .rounds import Effort
from .sealed_servers import SERVERS, Server, row_of
from .sleep_peers import IDLE_S, REST_S, PeerCosts, fetch_hangar, hangar, hangar_call_s, hangar_costs, hub_costs
from .started import PATIENCE_S, Daemon, Rows, echoes, serving

LIST_S: Final = Target(0.05)
"""From a client's question at the door to its answer, the daemon up and every server asleep."""

START_S: Final = Target(0.5)
"""From the command's start to that answer, with nothing running."""

WOKEN_S: Final = Target(0.25)

FILESYSTEM_S: Final = Target(0.6)

OF_NODE: Final = Target(1.1)

ASLEEP_MIB: Final = Target(80.0)

AWAKE_MIB: Final = Target(280.0)

IDLE_PERCENT: Final = Target(0.1)

CRASHED_S: Final = Target(0.15)

NPM_CPU: Final = Target(0.6)

NPM_MEMORY: Final = Target(0.5)

CHECKED_MS: Final = Target(5.0)

MANY: Final = 40

CALLS: Final = 8
"""Servers whose first call is timed, one after the other, or that crash."""

CALM_MS: Final = 500.0
"""Of CPU in `REST_S`: what a fleet that rests stays below."""

CHECKED_FILES: Final = 5_000

CHECKS: Final = 20

NPM_SERVERS: Final = tuple(each for each in SERVERS if each.line.startswith("npx") and "puppeteer" not in each.line)[
    :10
]
"""Without the one whose runner fetches a browser first."""

FILESYSTEM: Final = next(each for each in SERVERS if "server-filesystem" in each.line)

PARTS: Final = ("sleeping", "filesystem", "crash", "npm", "check")

Show = Callable[[object], None]


async def measure(effort: Effort) -> list[Finding]:
    return await asyncio.to_thread(lambda: [*sealed_findings(MANY, effort.repeats, PARTS, lambda _: None)])


def sealed_findings(many: int, rounds: int, parts: Sequence[str], show: Show) -> Iterator[Finding]:
    """Measure these parts, of so many echo servers; `show` what cannot be measured."""
    with short_folder() as kept:
        program = None
        try:
            program = fetch_hangar(kept / "hangar") if {"sleeping", "crash"} & {*parts} else None
        except NotMeasuredError as reason:
            show(f"beside mcp-hangar: not measured: {reason}")
        if "sleeping" in parts:
            yield from _sleeping(many, rounds, _peers(program, kept, many, show))
        if "filesystem" in parts:
            yield from _filesystem()
        if "crash" in parts:
            yield _crash(program)
        if "npm" in parts:
            yield from _npm(rounds)
        if "check" in parts:
            yield _check()


def _peers(program: Path | None, kept: Path, many: int, show: Show) -> dict[str, PeerCosts]:
    found = {}
    with short_folder() as folder:
        if program is not None:
            found["mcp-hangar"] = hangar_costs(program, folder, echoes(many))
        try:
            found["mcp-hub"] = hub_costs(folder, echoes(many))
        except NotMeasuredError as reason:
            show(f"beside mcp-hub: not measured: {reason}")
    return found


def _sleeping(many: int, rounds: int, peers: Mapping[str, PeerCosts]) -> Iterator[Finding]:
    """Servers that were approved before, asleep, then woken; and as many that run."""

    def beside(figure: Callable[[PeerCosts], float]) -> str:
        return "".join(f"; {name} {figure(costs):.3g}" for name, costs in peers.items())

    rows = echoes(many, "on_call")
    with short_folder() as folder:
        with serving(folder, rows, Daemon.UP):
            pass  # the first start: all are asked, and what they list is approved
        with serving(folder, rows, Daemon.UP) as running:
            asked_s = running.start.listed_s - running.start.greeted_s
            note = _processes(running.start.costs)
            yield Finding(f"tools of {many} sleeping servers listed, at the door", "s", LIST_S, asked_s, note=note)
            idle = running.idle(IDLE_S)  # the zygote ends meanwhile
            percent = sum(idle.of[role].cpu_ms for role in (Role.SUPERVISOR, Role.DOOR)) / IDLE_S / 10
            note = f"all servers run for hub{beside(lambda costs: costs.idle_percent)}"
            yield Finding(f"CPU with {many} sleeping servers, of one core", "%", IDLE_PERCENT, percent, note=note)
            resting = running.costs()
            note = _processes(resting) + beside(lambda costs: costs.unused.pss_mib)
            yield Finding(f"PSS of ours, {many} asleep", "MiB", ASLEEP_MIB, resting.ours.pss_mib, note=note)
            woken = [running.call_s(each, text=TEXT) for each in [*rows][:CALLS]]
            note = f"the first one {woken[0]:.2f} s, with a zygote"
            yield Finding("first call of a sleeping server", "s", WOKEN_S, median(woken[1:]), note=note)
        started, own = (_listed_s(folder, rows, way, rounds) for way in (Daemon.STARTED, Daemon.NONE))
        note = f"serve --own {own:.3g}{beside(lambda costs: costs.listed_s)}, hangar its own tools"
        yield Finding(f"tools of {many} sleeping servers listed, nothing running", "s", START_S, started, note=note)
    with short_folder() as folder, serving(folder, echoes(many), Daemon.UP) as running:
        costs = running.start.costs
        note = _processes(costs) + beside(lambda costs: costs.awake.pss_mib)
        yield Finding(f"PSS of ours, {many} awake, at their list", "MiB", AWAKE_MIB, costs.ours.pss_mib, note=note)


def _listed_s(folder: Path, rows: Rows, way: Daemon, rounds: int) -> float:
    listed = []
    for _ in range(rounds):
        with serving(folder, rows, way) as running:
            listed.append(running.start.listed_s)
    return median(listed)


def _processes(costs: Costs) -> str:
    return f"{costs.ours.processes} processes, {costs.of[Role.SERVER].processes} servers"


def _filesystem() -> Iterator[Finding]:
    """By turns: a row's first call, and the program that it starts, by itself."""
    rows = {f"s{number}": row_of(FILESYSTEM, start="on_call") for number in range(CALLS)}
    ours, alone = [], []
    with short_folder() as folder:
        with serving(folder, rows, Daemon.UP):
            pass
        row = rows["s0"]
        request = request_of(row["command"], row["args"])
        assert isinstance(request, PackageRequest)
        found = SealStore(seals_dir()).find(request.words)
        assert found is not None
        launch = launch_of(found, request, os.environ["PATH"])
        with serving(folder, rows, Daemon.UP) as running:
            for server in rows:
                ours.append(running.call_s(server, FILESYSTEM.call))
                alone.append(_called_alone_s([launch.command, *launch.args], folder))
    note = f"the first one {ours[0]:.2f} s, with a zygote"
    del ours[0], alone[0]
    yield Finding("first call of a sealed server-filesystem that sleeps", "s", FILESYSTEM_S, median(ours), note=note)
    yield Finding.of_rounds("the same, against node alone", "s", OF_NODE, ours, alone)


def _called_alone_s(words: Sequence[str], folder: Path) -> float:
    began = time.perf_counter()
    with RawStdioClient(words, cwd=folder, deadline_s=PATIENCE_S) as client:
        client.initialize()
        client.call(FILESYSTEM.call)
        return time.perf_counter() - began


def _crash(program: Path | None) -> Finding:
    rows = echoes(CALLS)
    ours, theirs, refused = [], [], 0
    with short_folder() as folder, ExitStack() as stack:
        running = stack.enter_context(serving(folder, rows, Daemon.UP))
        peer = stack.enter_context(hangar(program, folder, rows)) if program is not None else None
        for server in rows:
            running.client.call(f"{server}__crash")
            began = time.perf_counter()
            while running.client.call(f"{server}__{ECHO}", text=TEXT).get("isError"):
                refused += 1
            ours.append(time.perf_counter() - began)
            if peer is not None:
                hangar_call_s(peer, server)
                hangar_call_s(peer, server, tool="crash", is_answered=False)
                theirs.append(hangar_call_s(peer, server))
    reference = median(theirs) if theirs else None
    note = f"slowest {max(ours):.2f} s, {refused} calls failed meanwhile; reference: mcp-hangar"
    return Finding("a call right after a first crash", "s", CRASHED_S, median(ours), reference, note=note)


def _npm(rounds: int) -> Iterator[Finding]:
    """By turns, after one start of each kind that installs."""
    taken: dict[str, list[Cost]] = {"seals": [], "runners": [], "npx": []}
    with short_folder() as kept:
        for number in range(rounds + 1):
            for kind, costs in taken.items():
                cost = _runners_cost(kept) if kind == "npx" else _rows_cost(kept / kind, is_sealed=kind == "seals")
                if number:
                    costs.append(cost)
    ours = taken.pop("seals")
    for kind, theirs in taken.items():
        what = "npx in sandboxes" if kind == "runners" else "npx alone"
        processes = f"{ours[-1].processes} processes, {theirs[-1].processes}"
        mine, other = ([each.cpu_ms / 1000 for each in side] for side in (ours, theirs))
        yield Finding.of_rounds(f"CPU of ten npm servers' start, against {what}", "s", NPM_CPU, mine, other, processes)
        mine, other = ([each.private_mib for each in side] for side in (ours, theirs))
        note = "PSS " + ", ".join(f"{median(each.pss_mib for each in side):.0f} MiB" for side in (ours, theirs))
        yield Finding.of_rounds(f"their private memory, against {what}", "MiB", NPM_MEMORY, mine, other, note)


def _rows_cost(folder: Path, *, is_sealed: bool) -> Cost:
    fields = {"start": "at_once", "seal": is_sealed, "connect_timeout_s": PATIENCE_S}
    rows = {f"s{number}": row_of(server, **fields) for number, server in enumerate(NPM_SERVERS)}
    folder.mkdir(exist_ok=True)
    with serving(folder, rows) as running:
        return _cost_at_rest(running.client.pid)


def _runners_cost(folder: Path) -> Cost:
    """The runners started by a client by itself, their ten servers' tools listed."""
    with ExitStack() as stack:
        clients = [stack.enter_context(_runner(server, folder, stack)) for server in NPM_SERVERS]
        for client in clients:
            client.initialize()
            client.list_tools()
        return _cost_at_rest(*(client.pid for client in clients))


def _runner(server: Server, folder: Path, stack: ExitStack) -> RawStdioClient:
    row = row_of(server)
    environ = {**os.environ, "HOME": str(folder), **row["env"]}
    words = [row["command"], *row["args"]]
    client = RawStdioClient(words, env=environ, cwd=folder, deadline_s=PATIENCE_S, start_new_session=True)
    stack.callback(_end_group, client.pid)  # a runner's server may outlive it
    return client


def _end_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _cost_at_rest(*roots: int) -> Cost:
    """Wait until nothing of a start goes on: a list of known servers does not wait for them."""
    cost = cost_of_trees(*roots)
    while True:
        before_ms = cost.cpu_ms
        time.sleep(REST_S)
        cost = cost_of_trees(*roots)
        if cost.cpu_ms - before_ms < CALM_MS:
            return cost


def _check() -> Finding:
    files = {f"node_modules/p{number // 50}/{number}.js": b"x" for number in range(CHECKED_FILES)}
    times = []
    with short_folder() as folder:
        store = SealStore(folder / "seals")
        found = sealed(store, files)
        for _ in range(CHECKS):
            began = time.perf_counter()
            store.check(found)
            times.append((time.perf_counter() - began) * 1000)
    return Finding(f"a seal of {CHECKED_FILES:,} files checked at a start", "ms", CHECKED_MS, median(times))
