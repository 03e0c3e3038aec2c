"""The official conformance suite's scenarios for servers, run against an address; and where two servers differ."""

import fcntl
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import anyio

from support.servers.real_servers import Installed

REVISIONS: Final = ("2025-11-25", "2026-07-28")
"""Each has scenarios of its own, and those that it shares are run in its way."""

SUITE_S: Final = 120.0
"""All scenarios of a revision take ten seconds; a scenario that hangs, thirty."""

Outcomes = Mapping[str, Mapping[str, Counter[str]]]
"""Scenario -> check -> how often it ended how."""

Differences = dict[str, set[str]]
"""Scenario -> its checks that ended otherwise."""

_FOLDER: Final = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT.*")


async def run_suite(suite: Installed, url: str, revision: str, folder: Path, scenario: str = "") -> Outcomes:
    """Run every scenario of a revision, the optional ones too, or a single one.

    Args:
        suite: what `install_conformance` gave.
        url: of the server.
        revision: one of `REVISIONS`.
        folder: where the suite may write.
        scenario: the one.

    Raises:
        TimeoutError: it did not end.
    """
    place = Path(mkdtemp(dir=folder))
    which = (
        ["--scenario", scenario, "--spec-version", revision, "--force"] if scenario else ["--requirements", revision]
    )
    words = ["server", "--url", url, *which, "--output-dir", str(place)]
    with anyio.fail_after(SUITE_S):
        done = await anyio.run_process([*suite.argv, *words], check=False)
    outcomes = _read(place)
    assert outcomes, (done.stdout + done.stderr).decode()
    return outcomes


def _read(folder: Path) -> Outcomes:
    outcomes: dict[str, dict[str, Counter[str]]] = {}
    for place in folder.iterdir():
        named = _FOLDER.fullmatch(place.name)
        assert named is not None, place
        checks = outcomes.setdefault(named["scenario"], {})
        for check in json.loads((place / "checks.json").read_text()):
            if check["status"] != "INFO":  # what was seen on the way, as often as it was seen
                checks.setdefault(check["id"], Counter())[check["status"]] += 1
    return outcomes


class Shared:
    """Outcomes that one process of the run finds, for all of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def outcomes(self, name: str, find: Callable[[], Awaitable[Outcomes]]) -> Outcomes:
        place = self._folder / f"outcomes-{name}.json"
        with place.with_suffix(".lock").open("w") as lock:
            await anyio.to_thread.run_sync(fcntl.flock, lock, fcntl.LOCK_EX)
            if not place.exists():
                found = await find()
                place.write_text(json.dumps(found))
                return found
        kept = json.loads(place.read_text())
        return {scenario: {check: Counter(ends) for check, ends in checks.items()} for scenario, checks in kept.items()}


def failing(outcomes: Outcomes) -> Differences:
    found = {name: {check for check, ends in checks.items() if ends["FAILURE"]} for name, checks in outcomes.items()}
    return {name: checks for name, checks in found.items() if checks}


def differing(one: Outcomes, other: Outcomes) -> Differences:
    """The checks that did not end the same, those included that only one has."""
    found = {
        name: {
            check
            for check in {*one.get(name, {}), *other.get(name, {})}
            if one.get(name, {}).get(check) != other.get(name, {}).get(check)
        }
        for name in {*one, *other}
    }
    return {name: checks for name, checks in found.items() if checks}


def without(differences: Differences, others: Differences) -> Differences:
    """Those that are not among the others."""
    left = {name: checks - others.get(name, set()) for name, checks in differences.items()}
    return {name: checks for name, checks in left.items() if checks}
