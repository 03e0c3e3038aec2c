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
from support.processes.http_servers import forked_http_server
from support.processes.leftovers import no_leftovers
from support.processes.line_child import LineChild
from support.processes.programs import SERVERS, server_argv
from support.servers.conformance_suite import (
    REVISIONS,
    Differences,
    Outcomes,
    Shared,
    differing,
    failing,
    run_suite,
    without,
)
from support.servers.real_servers import Installed, install_conformance, shared_folder

pytestmark = [pytest.mark.anyio, pytest.mark.nightly]

KNOWN: Final = tomllib.loads(Path(__file__).with_name("conformance_differences.toml").read_text())

ERAS: Final = {"both": (), "legacy": ("--legacy",)}
"""What our server speaks: the newer era with us, or the older one alone, whichever the suite speaks."""

AGAIN: Final = 2
"""Scenarios that wait for less than a second are tried alone, too, before their end is believed: others are at work."""

Ends = dict[str, Differences]
"""By kind: what fails in the server itself, and what differs behind us."""


@contextmanager
def through_us(*arguments: str) -> Iterator[str]:
    """A `run` of the server; its URL."""
    http = ["--http", "127.0.0.1:0", "--no-token", "--json"]
    # Open: it changes what it offers, which would be held.
    wish = ["--trust", "open", "--network", "none", "--read", str(SERVERS)]
    argv = ["run", *http, *wish, "--", *server_argv("conformance", *arguments)]
    with no_leftovers(DEADLINE_S), LineChild(argv, deadline_s=DEADLINE_S, popen=popen_forked) as child:
        yield json.loads(child.read_line())["url"]
        child.process.terminate()  # the end of its stdin is none of its own


def written(kind: str, **where: str) -> Differences:
    found: Differences = {}
    for row in KNOWN[kind]:
        assert row["why"], row
        if all(value in row[name] for name, value in where.items()):
            found.setdefault(row["scenario"], set()).update(row["checks"])
    return found


class Runs:
    """How the scenarios of a revision ended, directly and through us."""

    def __init__(self, suite: Installed, era: str, revision: str, shared: Shared) -> None:
        self._suite = suite
        self._where = {"revision": revision, "server": era}
        self._shared = shared
        self._direct: Outcomes = {}
        self._ours: Outcomes = {}

    async def run(self, folder: Path, scenario: str = "") -> None:
        """Run all scenarios, or one of them; on new servers, for some leave questions open."""

        async def run_at(url: str) -> Outcomes:
            return await run_suite(self._suite, url, self._where["revision"], folder, scenario)

        async def run_directly() -> None:
            async def run_alone() -> Outcomes:
                with forked_http_server("--http", name="conformance") as alone:
                    return await run_at(alone)

            # Directly they end the same beside either of our servers, of which another process may try the other.
            found = await (run_alone() if scenario else self._shared.outcomes(self._where["revision"], run_alone))
            self._direct = {**self._direct, **found}

        with through_us(*ERAS[self._where["server"]]) as behind:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run_directly)
                self._ours = {**self._ours, **await run_at(behind)}

    @property
    def ends(self) -> Ends:
        different = without(differing(self._direct, self._ours), written("varying", **self._where))
        return {"failing": failing(self._direct), "difference": different}

    @property
    def known(self) -> Ends:
        return {kind: written(kind, **self._where) for kind in ("failing", "difference")}

    @property
    def unexpected(self) -> list[str]:
        """The scenarios that ended otherwise than is written down."""
        return sorted(
            {
                scenario
                for kind, known in self.known.items()
                for scenario in {*known, *self.ends[kind]}
                if self.ends[kind].get(scenario) != known.get(scenario)
            }
        )


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_every_scenario_ends_as_it_does_without_us(
    era: str, revision: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A feature that we pass on in our own way is one that some client cannot use."""
    place = tmp_path_factory.getbasetemp()
    suite = install_conformance(place)
    if suite.missing:
        pytest.skip(suite.missing)
    runs = Runs(suite, era, revision, Shared(shared_folder(place)))
    await runs.run(tmp_path)
    for _ in range(AGAIN):
        for scenario in runs.unexpected:
            await runs.run(tmp_path, scenario)
    assert runs.ends == runs.known
