"""Measure, and print one table: `python tests/bench/run.py [--quick] [--only NAME] [--json FILE]`.

Every figure is a ratio within this run, or has an absolute target; a shared machine changes the milliseconds, so
read the ratios.  The table is Markdown.  Nothing is left behind; a missed target is a verdict, not a failure.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.config.places import short_folder, use_places
from support.processes.leftovers import no_leftovers

from bench import (
    bash,
    calls,
    crowd,
    doors,
    fairness,
    faults,
    http_face,
    large,
    ledger,
    listing,
    monitor,
    provision,
    pytest_runs,
    reading,
    sealed,
    search,
    serve,
    spawn,
    start,
    telemetry,
    workers,
)
from bench.finding import Finding, NotMeasuredError
from bench.findings_table import WIDTH, findings_table
from bench.rounds import Effort
from quarterdeck.daemon.client import ask_daemon, wait_until_gone
from quarterdeck.daemon.messages import Order
from quarterdeck.daemon.place import NoDaemonError, daemon_dir

BENCHES: Final[dict[str, Callable[[Effort], Awaitable[list[Finding]]]]] = {
    "calls": calls.measure,
    "serve": serve.measure,
    "http": http_face.measure,
    "http-hub": http_face.measure_hub,
    "http-fastmcp": http_face.measure_fastmcp,
    "doors": doors.measure,
    "listing": listing.measure,
    "workers": workers.measure,
    "start": start.measure,
    "telemetry": telemetry.measure,
    "sealed": sealed.measure,
    "fairness": fairness.measure,
    "faults": faults.measure,
    "large": large.measure,
    "crowd": crowd.measure,
    "monitor": monitor.measure,
    "spawn": spawn.measure,
    "bash": bash.measure,
    "provision": provision.measure,
    "pytest": pytest_runs.measure,
    "search": search.measure,
    "reading": reading.measure,
    "ledger": ledger.measure,
}

FULL: Final = Effort(rounds=9, repeats=5)
QUICK: Final = Effort(rounds=3, repeats=2)


def main() -> None:
    options = _parse(sys.argv[1:])
    console = Console(width=WIDTH)
    findings: list[Finding] = []
    console.print(_machine())
    with short_folder() as root, pytest.MonkeyPatch.context() as patch, no_leftovers():
        use_places(patch, root)
        for name in options.only or BENCHES:
            Console(stderr=True).print(f"[dim]{name} …[/dim]")
            try:
                findings += asyncio.run(_run(name, QUICK if options.quick else FULL))
            except NotMeasuredError as reason:
                console.print(f"{name}: not measured: {reason}")
            finally:
                _end_daemon()
    console.print(findings_table(findings))
    if options.json:
        _write(options.json, findings)


def _end_daemon() -> None:
    """End what a client on stdio has started: it would outlive the bench's directories."""
    with suppress(NoDaemonError):
        found = ask_daemon(daemon_dir(), Order.END)
        wait_until_gone(found.pid)


async def _run(name: str, effort: Effort) -> list[Finding]:
    return await BENCHES[name](effort)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: to see that it works")
    parser.add_argument("--only", action="append", choices=BENCHES, metavar="NAME", help="one bench; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    return parser.parse_args(arguments)


def _machine() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("mcp", "msgspec"))
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, load {load:.1f} at the start; Python {platform.python_version()}, {packages}"


def _write(path: Path, findings: Sequence[Finding]) -> None:
    rows = [asdict(finding) | {"verdict": finding.verdict} for finding in findings]
    path.write_text(json.dumps({"machine": _machine(), "findings": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
