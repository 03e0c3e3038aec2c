"""The tests that another machine could change, tried again on the same one with less installed, and with more.

pytest -n auto                          every test; those that were skipped are remembered
pytest -n auto --by-tier                all that start processes and depend on how these are confined, for a run
                                        without bubblewrap
pytest -n auto --on-a-better-machine    those that were skipped, and all that depend on a sandbox's network
"""

from pathlib import Path
from typing import Final

import pytest

from support.suite.tiers import OPTION as NIGHTLY

OPTION: Final = "--on-a-better-machine"

BY_TIER_OPTION: Final = "--by-tier"

SKIPPED: Final = "quarterdeck/skipped"
"""Where pytest's cache keeps the ids of the tests that were skipped."""

BY_TIER: Final = (
    *(f"tests/sandbox/{room}/" for room in ("doctor", "native", "network", "policy", "program", "run", "view")),
    "tests/supervisor/tools/",
    *(
        f"tests/acceptance/test_{name}.py"
        for name in (
            *("agents_day", "allow", "attacks", "deaths", "demo", "endings", "exposed_configuration"),
            *("greedy_servers", "handshake", "limits", "native_calls", "odd_starts", "owners"),
            *("programs_people_have", "quarantine", "real_servers", "real_work", "run", "sandbox_pitfalls"),
            *("sandbox_run", "secrets", "serve_native", "users_word"),
        )
    ),
)
"""Tests of these depend on how a process is confined.  All others are about clients, protocols, tokens and records: a
server is one to them in either tier."""

TIER: Final = frozenset({"tier", "tier_home"})
"""Parameters that name a tier."""

BY_NETWORK: Final = (
    *("tests/sandbox/doctor/", "tests/sandbox/network/"),
    *(f"tests/acceptance/test_{name}.py" for name in ("attacks", "demo", "real_work", "sandbox_network")),
)
"""Tests of these differ where a sandbox has a network helper, or the system a bubblewrap of its own."""


class BetterMachine:
    """A plugin."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._cache: pytest.Cache | None = getattr(config, "cache", None)  # which `-p no:cacheprovider` leaves out
        self._skipped: list[str] = []
        is_better = config.getoption(OPTION)
        self._before = frozenset(self._cache.get(SKIPPED, [])) if self._cache and is_better else frozenset()
        self._is_wanted = is_by_network if is_better else is_by_tier

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave files unread of which nothing would be run."""
        if not self._is_partial or collection_path.is_dir():
            return None
        path = collection_path.relative_to(self._config.rootpath)
        had_skipped = path.as_posix() in {nodeid.partition("::")[0] for nodeid in self._before}
        return None if had_skipped or self._is_wanted(path) else True

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if not self._is_partial:
            return
        kept = [item for item in items if self._runs(item)]
        self._config.hook.pytest_deselected(items=[item for item in items if item not in frozenset(kept)])
        items[:] = kept

    def _runs(self, item: pytest.Item) -> bool:
        if item.nodeid in self._before:
            return True
        if not self._is_wanted(item.path.relative_to(self._config.rootpath)):
            return False
        # One of the core starts nothing; and one that names its tier was tried in that, whatever else is there.
        params = getattr(getattr(item, "callspec", None), "params", {})
        names_tier = self._is_wanted is is_by_tier and not TIER.isdisjoint(params)
        return not names_tier and item.get_closest_marker("core") is None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write them down, where the whole suite was run; a worker of xdist leaves that to whoever started it."""
        is_worker = hasattr(self._config, "workerinput")
        is_whole = not self._is_partial and self._config.getoption(NIGHTLY) is None
        if not is_worker and is_whole and self._cache is not None:
            self._cache.set(SKIPPED, self._skipped)

    @property
    def _is_partial(self) -> bool:
        return bool(self._config.getoption(OPTION) or self._config.getoption(BY_TIER_OPTION))


def is_by_tier(path: Path) -> bool:
    return path.as_posix().startswith(BY_TIER)


def is_by_network(path: Path) -> bool:
    """Return whether the tests of a file, relative to the root, depend on a network helper."""
    return path.as_posix().startswith(BY_NETWORK)
