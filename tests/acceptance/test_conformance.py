"""The official conformance suite against a server directly, and through us: scenario by scenario the same.

What ends otherwise is in `conformance_differences.toml`, with the reason; what no longer does has to leave it.
"""

import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
import pytest
from support.processes.commands import DEADLINE_S, popen_forked
from support.processes.leftovers import no_leftovers
from support.processes.line_child import LineChild
from support.processes.programs import SERVERS, running_http_server, server_argv
from support.servers.conformance_suite import REVISIONS, Differences, Outcomes, differing, failing, run_suite, without
from support.servers.real_servers import Installed, install_conformance

pytestmark = pytest.mark.anyio

KNOWN: Final = tomllib.loads(Path(__file__).with_name("conformance_differences.toml").read_text())

ERAS: Final = {"both": (), "legacy": ("--legacy",)}
"""What our server speaks: the newer era with us, or the older one alone, whichever the suite speaks."""

AGAIN: Final = 2
"""Scenarios that wait for less than a second are tried alone, too, before their end is believed: others are at work."""

Ends = dict[str, dict[str, Differences]]
"""By kind and revision."""


@contextmanager
def through_us(*arguments: str) -> Iterator[str]:
    """A `run` of the server; its URL."""
    http = ["--http", "127.0.0.1:0", "--no-token", "--json"]
    # Open: it changes what it offers, which would be held.
    wish = ["--trust", "open", "--network", "none", "--read", str(SERVERS)]
    argv = ["run", *http, *wish, "--", *server_argv("conformance", *arguments)]
    with no_leftovers(DEADLINE_S), LineChild(argv, deadline_s=DEADLINE_S, popen=popen_forked) as child:
        yield json.loads(child.read_line())["url"]


def written(kind: str, **where: str) -> Differences:
    """What is written down of this kind, for this revision and server."""
    found: Differences = {}
    for row in KNOWN[kind]:
        assert row["why"], row
        if all(value in row[name] for name, value in where.items()):
            found.setdefault(row["scenario"], set()).update(row["checks"])
    return found


class Runs:
    """How the scenarios ended, directly and through us; `outcomes` is by revision, then that of each."""

    def __init__(self, suite: Installed, era: str, folder: Path) -> None:
        """Nothing was run yet."""
        self._suite = suite
        self._era = era
        self._folder = folder
        self.outcomes: dict[str, tuple[Outcomes, Outcomes]] = {}

    async def run(self, revision: str, scenario: str = "") -> None:
        """Run all scenarios of a revision, or one of them; on new servers, for some leave questions open."""
        direct, ours = self.outcomes.get(revision, ({}, {}))
        found: list[Outcomes] = [{}, {}]

        async def one(at: int, url: str) -> None:
            found[at] = await run_suite(self._suite, url, revision, self._folder, scenario)

        with running_http_server("--http", name="conformance") as alone, through_us(*ERAS[self._era]) as behind:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one, 0, alone)
                tasks.start_soon(one, 1, behind)
        self.outcomes[revision] = {**direct, **found[0]}, {**ours, **found[1]}

    def ends(self) -> Ends:
        """What failed, and what differs."""
        found: Ends = {"failing": {}, "difference": {}}
        for revision, (direct, ours) in self.outcomes.items():
            varying = written("varying", revision=revision, server=self._era)
            found["failing"][revision] = failing(direct)
            found["difference"][revision] = without(differing(direct, ours), varying)
        return found


@pytest.mark.parametrize("era", ERAS)
async def test_every_scenario_ends_as_it_does_without_us(
    era: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A feature that we pass on in our own way is one that some client cannot use."""
    suite = install_conformance(tmp_path_factory.getbasetemp())
    if suite.missing:
        pytest.skip(suite.missing)
    known = {
        kind: {revision: written(kind, revision=revision, server=era) for revision in REVISIONS}
        for kind in ("failing", "difference")
    }
    runs = Runs(suite, era, tmp_path)
    for revision in REVISIONS:
        await runs.run(revision)
    for _ in range(AGAIN):
        for revision, scenario in unexpected(runs.ends(), known):
            await runs.run(revision, scenario)
    assert runs.ends() == known


def unexpected(found: Ends, known: Ends) -> list[tuple[str, str]]:
    """The scenarios, behind their revision, that ended otherwise than is written down."""
    return sorted(
        {
            (revision, scenario)
            for kind, by_revision in found.items()
            for revision, differences in by_revision.items()
            for scenario in {*differences, *known[kind][revision]}
            if differences.get(scenario) != known[kind][revision].get(scenario)
        }
    )
