"""The tiers of the suite: when a test runs, and what one without a mark may not do.

core       without a mark: pure and in memory; one that forks, executes or connects fails
process    marked so: each edge of the product once, with real processes and sockets
journeys   everything in `tests/acceptance`: one for each promise that a user reads in the documentation
nightly    marked so: long ones, which only `--nightly PART` runs, and a third of them at a time

pytest -n auto              core, process and journeys
pytest -n auto -m core      one tier alone
pytest -n auto --nightly 0  the first third of the nightly ones, and of the generated examples many more
"""

import os
import sys
import traceback
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import pytest
from hypothesis import settings

OPTION: Final = "--nightly"

PARTS: Final = 3

FORBIDDEN: Final = frozenset(
    {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "socket.connect", "subprocess.Popen"}
    | {"quarterdeck.tests.fork"}  # has a fork made by another process: see `support.processes.forks`
)
"""Audit events that a test of the core causes none of."""

JOURNEYS: Final = "tests/acceptance/"

FRAMES: Final = 12
"""Innermost callers that a failure names."""

# A shared machine makes any deadline of an example a coin toss; the examples themselves are bounded.
settings.register_profile("ordinary", deadline=None, max_examples=15)
settings.register_profile("nightly", deadline=None, max_examples=300)


def is_in_part(path: str, part: str) -> bool:
    """Whether the tests of a file belong to a part: "0", "1", "2", or "all".  A file is not divided."""
    return part == "all" or crc32(path.encode()) % PARTS == int(part)


def is_core_alone(config: pytest.Config) -> bool:
    return config.option.markexpr == "core"


class Tiers:
    """A plugin that gives each test its tier, and holds those of the core to it."""

    def __init__(self, config: pytest.Config) -> None:
        self._part: str | None = config.getoption(OPTION)
        self._pid = os.getpid()
        self._item: pytest.Item | None = None
        self._fixtures: list[pytest.FixtureDef[Any]] = []
        self._shared: dict[tuple[str, str], str] = {}
        self._found = ""
        settings.load_profile("ordinary" if self._part is None else "nightly")
        sys.addaudithook(self._audit)

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """Leave the journeys' files unread where the core alone is asked for, and those of other parts of the night."""
        if is_core_alone(config) and collection_path == config.rootpath / JOURNEYS:
            return True
        if self._part is None or collection_path.is_dir():
            return None
        return None if is_in_part(collection_path.relative_to(config.rootpath).as_posix(), self._part) else True

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        if not any(item.get_closest_marker(tier) for tier in ("nightly", "process")):
            item.add_marker("journeys" if item.nodeid.startswith(JOURNEYS) else "core")

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        runs = [self._runs(item) for item in items]
        config.hook.pytest_deselected(items=[item for item, does in zip(items, runs, strict=True) if not does])
        items[:] = [item for item, does in zip(items, runs, strict=True) if does]

    def _runs(self, item: pytest.Item) -> bool:
        is_nightly = item.get_closest_marker("nightly") is not None
        if self._part is None:
            return not is_nightly
        return is_nightly or getattr(getattr(item, "obj", None), "is_hypothesis_test", False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Watch the fixtures, and look for one that another test has started a process with."""
        for (name, base), event in self._shared.items():
            if name in getattr(item, "fixturenames", ()) and item.nodeid.startswith(base):
                self._found = f"the fixture {name} causes {event}\n"
        return (yield from self._watched(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from self._watched(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        self._fixtures.append(fixturedef)
        try:
            return (yield)
        finally:
            self._fixtures.pop()

    def _watched(self, item: pytest.Item) -> Generator[None, object, object]:
        is_core = item.get_closest_marker("core") is not None
        self._item = item
        try:
            return (yield)
        finally:
            self._item, found, self._found = None, self._found, ""
            if is_core and found:
                pytest.fail(f"{found}A test of the core does not: mark this one `process`.", pytrace=False)

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if event not in FORBIDDEN or self._item is None or os.getpid() != self._pid:
            return
        if self._fixtures and (fixture := self._fixtures[-1]).scope != "function":
            self._shared[fixture.argname, fixture.baseid] = event
        if self._item.get_closest_marker("core") is not None:
            self._found = self._found or f"{event}{arguments[:2]!r:.200}\n{''.join(traceback.format_stack()[-FRAMES:])}"
            raise PermissionError(f"{event} in a test that is not marked `process`")
