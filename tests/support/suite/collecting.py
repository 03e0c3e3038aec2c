"""Workers that collect the same tests in turns: what one has compiled, the others only load.

Compiling with pytest's assertions is most of what the first collection in a checkout costs.
"""

import os
from collections.abc import Generator
from typing import Final

import pytest


class Turns:
    """A plugin by which each worker begins somewhere else, and all find the same."""

    def __init__(self) -> None:
        """Find out which worker this is; without any, nothing changes."""
        worker, workers = os.environ.get("PYTEST_XDIST_WORKER", "gw0"), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
        self._share: Final = int(worker.removeprefix("gw")) / int(workers)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Begin each directory in its own place."""
        report = yield
        if isinstance(collector, pytest.Directory):
            first = int(self._share * len(report.result))
            report.result = [*report.result[first:], *report.result[:first]]
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put all in one order."""
        if "PYTEST_XDIST_WORKER" in os.environ:
            items.sort(key=lambda item: item.path.parts)
