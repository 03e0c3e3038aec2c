"""Old and new clients before old and new servers: each feature is what it is without us, or is said not to be there.

The server has one of everything; a client sees it directly in its own era, and through us whichever era the server has.
The table of `docs/clients.md` says what is there.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from support.clients.era_client import Era, EraClient
from support.clients.features import FEATURES, Feature, tried
from support.config.places import short_folder, use_places
from support.processes.commands import DEADLINE_S, popen_forked, quarterdeck_forked
from support.processes.leftovers import no_leftovers
from support.processes.programs import SERVERS, server_argv
from support.waiting import eventually

PAGE: Final = Path(__file__).parents[2] / "docs" / "clients.md"


WAIT_S: Final = 20.0
"""For one message: what is missing is waited for as long."""

ROW: Final = re.compile(r"^\| ([^|]+?) \| ((?:yes|no)(?: \| (?:yes|no)){3}) \|$", re.MULTILINE)
"""Of the table: the feature, and its cells."""


class Cell(NamedTuple):
    """Who speaks what."""

    client: Era
    server: Era


CELLS: Final = [Cell(client, server) for client in Era for server in Era]

ACROSS: Final = tuple(cell for cell in CELLS if cell.client is not cell.server)

MISSING: Final[dict[str, tuple[Cell, ...]]] = {
    "tasks: begun, watched, listed, cancelled, their results": ACROSS,
    "a task that asks": ACROSS,
}
"""By feature, the cells in which it is not there: across eras a call is answered, and becomes no task."""


class Bench:
    """The clients of one cell, started when they are needed."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._clients: dict[str, EraClient] = {}

    def direct(self, server: str) -> EraClient:
        return self._client(f"direct {server}", [server], popen=partial(popen_forked, program="server"))

    def ours(self, server: str) -> EraClient:
        """One that has us between, and is not the first: a server that only starts cannot be heard in the greeting."""
        # Open: the server changes what it offers, which would be held.
        wish = ["--trust", "open", "--network", "none", "--read", str(SERVERS)]
        # One of both eras whose calls can be tasks would be spoken to in the older one.
        newer = ["--modern"] if server == "tasking" else []
        argv = server_argv(server, *(["--legacy"] if self._cell.server is Era.OLD else newer))
        words = ["run", *wish, "--", *argv]
        first = self._client(f"first {server}", words, popen=popen_forked)
        eventually(lambda: first.pages("tools/list", "tools"))
        return self._client(f"ours {server}", words, popen=popen_forked)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def forget(self) -> None:
        self.close()
        self._clients.clear()

    def _client(self, name: str, argv: list[str], **options: object) -> EraClient:
        if name not in self._clients:
            self._clients[name] = EraClient(argv, self._cell.client, deadline_s=WAIT_S, **options)
        return self._clients[name]


@pytest.fixture(
    scope="module",
    params=[pytest.param(cell, marks=pytest.mark.nightly) if cell in ACROSS else cell for cell in CELLS],
    ids=lambda cell: f"{cell.client.name}-to-{cell.server.name}".lower(),
)
def bench(request: pytest.FixtureRequest) -> Iterator[tuple[Cell, Bench]]:
    with short_folder() as root, pytest.MonkeyPatch.context() as patch, no_leftovers(DEADLINE_S):
        use_places(patch, root)
        patch.delenv("QUARTERDECK_OWN", raising=False)
        bench = Bench(request.param)
        try:
            yield request.param, bench
        finally:
            bench.close()
            quarterdeck_forked("down")


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
def test_a_feature_is_what_it_is_without_us(bench: tuple[Cell, Bench], feature: Feature) -> None:
    """A server would have it, a client would use it, and between them it would be lost, or be another."""
    cell, clients = bench
    expected = feature.see(clients.direct(feature.server))
    seen = tried(feature.see, clients.ours(feature.server))
    if isinstance(seen, TimeoutError):
        clients.forget()  # something is left open in these
    if cell in MISSING.get(feature.name, ()):
        assert seen != expected, "it is there: take it out of MISSING"
    else:
        assert seen == expected


def test_the_documentation_says_which_features_are_there() -> None:
    """Its table would promise what is lost, or hide what is there."""
    told = dict(ROW.findall(PAGE.read_text()))
    assert told == {
        feature.name: " | ".join("no" if cell in MISSING.get(feature.name, ()) else "yes" for cell in CELLS)
        for feature in FEATURES
    }
