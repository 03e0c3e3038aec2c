"""What a start costs: `python tests/bench/start.py [--servers 1 40 …] [--only PART] [--sealed [PART]] [--rounds N]`.

By step, by process and in all; with a daemon and without; over HTTP; beside FastMCP's proxy and `mcp-hub` where those
can be installed; and what a fleet costs that runs: idle, after its zygote was lost, and at an event of one server among
few and among many.  With `--sealed` instead: what sealed and sleeping servers cost, see `sealed.py`.
"""

import argparse
import asyncio
import compileall
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final

import pytest
from rich import box
from rich.console import Console
from rich.table import Table

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.config.places import short_folder, use_places, write_config
from support.processes.commands import command
from support.processes.leftovers import no_leftovers
from support.processes.line_child import LineChild
from support.processes.programs import SERVERS

from bench.finding import Finding, NotMeasuredError, Target
from bench.findings_table import WIDTH, findings_table
from bench.http_load import SseLoad, http_load
from bench.http_peers import mcp_hub, running_peer
from bench.peers import ECHO, ECHO_NAME
from bench.process_tree import Cost, Costs, Role, costs_of
from bench.rounds import Effort
from bench.sealed import PARTS as SEALED_PARTS
from bench.sealed import sealed_findings
from bench.start_peer import fastmcp_listed, fetch_fastmcp
from bench.start_steps import Step, steps
from bench.started import PATIENCE_S, Daemon, Serving, echoes, server_id, serving
from quarterdeck.cli.configure.secret import read_token, token_path

LISTED_S: Final = {1: Target(0.6, 0.4), 40: Target(1.4, 1.0), 200: Target(6.0, 4.5)}
"""From the command's start to a list of all tools, by servers."""

WITH_DAEMON_S: Final = {1: Target(0.25), 40: Target(0.9)}

OF_FASTMCP: Final = Target(0.45)

ZYGOTE_S: Final = Target(1.5, 1.0)

IDLE_PERCENT: Final = Target(1.5, 0.5)

OURS_MIB: Final = Target(7.0, 5.0)

OF_OWN: Final = Target(1.05)

OF_HUB: Final = Target(1.0)

SAME_WORK: Final = Target(1.2)
"""Of an event among many servers, as a part of one among few."""

MANY: Final = 40
FEW: Final = 10
CROWD: Final = 200

IDLE_S: Final = 20.0

REST_S: Final = 10.0
"""Until every worker has given back what it can."""

EVENTS: Final = 5
"""Changes of one server's tools; it is asked for them once a second at most."""

EVENT_S: Final = 1.5

STARTS: Final = 15
"""Of one server, for its steps."""

PARTS: Final = ("steps", "listed", "daemon", "fastmcp", "http", "zygote", "idle", "events")

SOME_ROUNDS: Final = 3


async def measure(effort: Effort) -> list[Finding]:
    _compile_servers()
    rounds = min(SOME_ROUNDS, effort.repeats)
    return await asyncio.to_thread(lambda: [*_findings((1, MANY, CROWD), rounds, PARTS[1:], _say_nothing)])


def main() -> None:
    options = _parse(sys.argv[1:])
    _compile_servers()
    console = Console(width=WIDTH)
    console.print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    findings: list[Finding] = []
    with short_folder() as root, pytest.MonkeyPatch.context() as patch, no_leftovers():
        use_places(patch, root)
        try:
            findings.extend(_wanted(options, console.print))
        finally:
            console.print(findings_table(findings))


def _wanted(options: argparse.Namespace, show: Callable[[object], None]) -> Iterator[Finding]:
    if options.sealed is not None:
        return sealed_findings(options.servers[-1], options.rounds, options.sealed or SEALED_PARTS, show)
    if "steps" in options.only:
        show(_steps_table(asyncio.run(steps(STARTS))))
    return _findings(tuple(options.servers), options.rounds, options.only, show)


def _compile_servers() -> None:
    """As an installation does: a confined server cannot keep what it compiles, and would compile it at each start."""
    compileall.compile_dir(SERVERS, maxlevels=0, quiet=1)


def _findings(
    counts: Sequence[int], rounds: int, parts: Sequence[str], show: Callable[[object], None]
) -> Iterator[Finding]:
    if "listed" in parts:
        for count in counts:
            yield from _listed(count, rounds if count <= MANY else 1, show)
    if "daemon" in parts:
        for count in counts:
            if count in WITH_DAEMON_S:
                listed = [_start(count, Daemon.UP) for _ in range(rounds)]
                yield Finding(_measure(count, "the daemon up"), "s", WITH_DAEMON_S[count], median(listed))
    for part, beside in (("fastmcp", _beside_fastmcp), ("http", _http)):
        if part in parts:
            try:
                yield from beside(rounds)
            except NotMeasuredError as reason:
                show(f"{part}: not measured: {reason}")
    if "zygote" in parts or "idle" in parts:
        yield from _afterwards(parts, show)
    if "events" in parts:
        yield _events()


def _measure(count: int, what: str) -> str:
    return f"{count} sandboxed server{'s' * (count > 1)} listed, {what}"


def _start(count: int, daemon: Daemon = Daemon.NONE) -> float:
    with short_folder() as folder, serving(folder, echoes(count), daemon) as running:
        return running.start.listed_s


def _listed(count: int, rounds: int, show: Callable[[object], None]) -> Iterator[Finding]:
    starts = []
    for _ in range(rounds):
        with short_folder() as folder, serving(folder, echoes(count)) as running:
            starts.append(running.start)
            if count == MANY:
                running.rest(REST_S)
                costs = running.costs()
                mib = costs.ours.private_mib - _fixed(costs)
    last = starts[-1]
    show(_costs_table(f"{count} servers, at the moment in which all are listed", last.costs, count))
    target = LISTED_S.get(count, Target(float("inf")))
    note = f"greeted after {median(start.greeted_s for start in starts):.2f} s"
    if count <= MANY:
        note += f"; a second start {_again(count):.2f} s"
    listed_s = median(start.listed_s for start in starts)
    yield Finding(_measure(count, "the first start"), "s", target, listed_s, note=note)
    if count == MANY:
        yield Finding("private memory of ours for one sandboxed server, at rest", "MiB", OURS_MIB, mib / count)


def _again(count: int) -> float:
    """Seconds of a second start, of a state directory that knows all servers."""
    with short_folder() as folder:
        with serving(folder, echoes(count)):
            pass
        with serving(folder, echoes(count)) as running:
            return running.start.listed_s


def _fixed(costs: Costs) -> float:
    return costs.of[Role.SUPERVISOR].private_mib + costs.of[Role.ZYGOTE].private_mib


def _beside_fastmcp(rounds: int) -> Iterator[Finding]:
    with short_folder() as kept:
        words = fetch_fastmcp(kept / "fastmcp")
        for count in (1, MANY):
            ours, theirs = [], []
            for _ in range(rounds):
                with short_folder() as folder:
                    theirs.append(fastmcp_listed(words, folder, count))
                ours.append(_start(count))
            target = OF_FASTMCP if count == MANY else Target(1.0)
            yield Finding.of_rounds(_measure(count, "against FastMCP's proxy"), "s", target, ours, theirs)


def _http(rounds: int) -> Iterator[Finding]:
    """From the start to a client's list over HTTP, beside `serve --own` on stdio and `mcp-hub`."""
    http, own, hub = [], [], []
    with short_folder() as kept:
        argv = mcp_hub(kept)
        for _ in range(rounds):
            with short_folder() as folder:
                http.append(asyncio.run(_listed_over_http(folder)))
            own.append(_start(1))
            hub.append(asyncio.run(_listed_by_hub(argv, kept)))
    yield Finding.of_rounds("1 server listed over HTTP, against serve --own", "s", OF_OWN, http, own)
    yield Finding.of_rounds("1 server listed by serve --own, against mcp-hub", "s", OF_HUB, own, hub)


async def _listed_over_http(folder: Path) -> float:
    config = write_config(folder / "servers.json", **echoes(1))
    words = command("serve", "--config", str(config), "--http", "127.0.0.1:0", "--json")
    with pytest.MonkeyPatch.context() as patch:
        use_places(patch, folder)
        began = time.perf_counter()
        with LineChild(words, cwd=folder, deadline_s=PATIENCE_S) as child:
            url = json.loads(child.read_line())["url"]
            token = read_token(token_path())
            async with http_load(url, f"{server_id(0)}__{ECHO}", connections=1, token=token):
                return time.perf_counter() - began


async def _listed_by_hub(argv: Sequence[str], folder: Path) -> float:
    began = time.perf_counter()
    with running_peer(argv, folder) as (url, _):
        async with http_load(url, ECHO_NAME, connections=1, kind=SseLoad):
            return time.perf_counter() - began


def _afterwards(parts: Sequence[str], show: Callable[[object], None]) -> Iterator[Finding]:
    with short_folder() as folder, serving(folder, echoes(MANY)) as running:
        if "idle" in parts:
            costs = running.idle(IDLE_S)
            show(_costs_table(f"{MANY} idle servers, in {IDLE_S:.0f} s", costs, MANY))
            percent = costs.ours.cpu_ms / IDLE_S / 10
            yield Finding(f"CPU of {MANY} idle servers, of one core", "%", IDLE_PERCENT, percent)
        if "zygote" in parts:
            taken_s = running.lose_zygote()
            yield Finding(f"zygote lost to all of {MANY} servers ready again", "s", ZYGOTE_S, taken_s)


def _events() -> Finding:
    few, many = (_event_ms(count) for count in (FEW, CROWD))
    note = f"of the supervisor, at {CROWD} servers against {FEW}"
    return Finding("CPU of one server's change of tools", "ms", SAME_WORK, many, few, many / few, note)


def _event_ms(count: int) -> float:
    with short_folder() as folder, serving(folder, echoes(count)) as running:
        idle_ms = _of_supervisor(running.idle(EVENT_S * EVENTS))
        before = costs_of(running.supervisor)
        for _ in range(EVENTS):
            _change(running)
        return max(0.1, _of_supervisor(costs_of(running.supervisor).since(before)) - idle_ms) / EVENTS


def _change(running: Serving) -> None:
    running.change_tools()
    running.rest(EVENT_S)


def _of_supervisor(costs: Costs) -> float:
    return costs.of[Role.SUPERVISOR].cpu_ms


def _costs_table(title: str, costs: Costs, count: int) -> Table:
    table = Table(box=box.MARKDOWN, title=title, title_justify="left")
    for column in ("process", "count", "CPU ms", "CPU ms a server", "private MiB", "MiB a server"):
        table.add_column(column, justify="left" if column == "process" else "right")
    rows: list[tuple[str, Cost]] = [(str(role), cost) for role, cost in costs.of.items()]
    for name, cost in [*rows, ("all but the servers", costs.ours)]:
        figures = (cost.cpu_ms, cost.cpu_ms / count, cost.private_mib, cost.private_mib / count)
        table.add_row(name, str(cost.processes), *(f"{figure:,.1f}" for figure in figures))
    return table


def _steps_table(taken: Sequence[Step]) -> Table:
    table = Table(box=box.MARKDOWN, title="one server's start, ms (the gate is in `server`)", title_justify="left")
    table.add_column("step")
    for column in ("wall", "CPU", *Role):
        table.add_column(str(column), justify="right")
    for step in taken:
        each = [f"{step.cpu_ms[role]:.1f}" if step.cpu_ms[role] else "" for role in Role]
        table.add_row(step.name, f"{step.wall_ms:.1f}", f"{sum(step.cpu_ms.values()):.1f}", *each)
    return table


def _say_nothing(_: object) -> None:
    """Only findings are wanted."""


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 100, 200, 40], metavar="N", help="how many")
    parser.add_argument("--rounds", type=int, default=SOME_ROUNDS, help="starts for each figure")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help="some parts")
    parser.add_argument("--sealed", nargs="*", choices=SEALED_PARTS, metavar="PART", help="of the last of --servers")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
