"""What a machine could not give the last run, tried again on the same machine with more installed.

pytest -n auto                          every test; those that were skipped are remembered
pytest -n auto --on-a-better-machine    those, and all that depend on how processes are confined
"""

from pathlib import Path
from typing import Final

import pytest

OPTION: Final = "--on-a-better-machine"

SKIPPED: Final = "quarterdeck/skipped"
"""Where pytest's cache keeps the ids of the tests that were skipped."""

BY_TIER: Final = ("tests/acceptance", "tests/sandbox", "tests/supervisor/tools")
"""Tests of these start confined processes by the strongest means that there is."""

APART: Final = frozenset(
    f"tests/acceptance/test_{name}.py"
    for name in (
        *("conformance", "daemon_http", "daemon_life", "door_clients", "door_trouble", "doors", "everything"),
        *("found_calls", "http_strangers", "login", "many_decks", "peoples_clients", "peoples_tasks"),
        *("programs_of_one_token", "pytest_runs", "sample_project", "socket_peer", "tokens", "tool_search"),
    )
)
"""But these, which are long: they are about clients, protocols, tokens and windows, and a server is one to them however
it is confined."""


class BetterMachine:
    """A plugin."""

    def __init__(self, config: pytest.Config) -> None:
        """Nothing was skipped yet."""
        self._config = config
        self._cache: pytest.Cache | None = getattr(config, "cache", None)  # which `-p no:cacheprovider` leaves out
        self._skipped: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep what was skipped, and what depends on the tier, when that is asked for."""
        if not self._config.getoption(OPTION):
            return
        before = frozenset(self._cache.get(SKIPPED, [])) if self._cache else frozenset()
        root = self._config.rootpath
        kept = [item for item in items if item.nodeid in before or is_by_tier(item.path.relative_to(root))]
        self._config.hook.pytest_deselected(items=[item for item in items if item not in frozenset(kept)])
        items[:] = kept

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a test that was skipped."""
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write them down, where the whole suite was run; a worker of xdist leaves that to whoever started it."""
        is_worker = hasattr(self._config, "workerinput")
        if not is_worker and not self._config.getoption(OPTION) and self._cache is not None:
            self._cache.set(SKIPPED, self._skipped)


def is_by_tier(path: Path) -> bool:
    """Whether the tests of a file, relative to the root, depend on the tier."""
    name = path.as_posix()
    return name.startswith(tuple(f"{folder}/" for folder in BY_TIER)) and name not in APART
