"""What a run's workers do the same, done once: what one has compiled, the others only load.

Compiling with pytest's assertions is most of what the first collection in a checkout costs.
"""

import os
from collections.abc import Callable, Generator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pytest

LONG: Final = ("tests/acceptance", "tests/docs")
"""Folders of tests that start processes and wait for them, in files that share what is dear to start."""


class Turns:
    """A plugin by which each worker begins somewhere else, and all find the same."""

    def __init__(self) -> None:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "")
        self._workers: Final = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) if worker else 0
        self._share: Final = int(worker.removeprefix("gw")) / self._workers if worker else 0

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if isinstance(collector, pytest.Directory):
            first = int(self._share * len(report.result))
            report.result = [*report.result[first:], *report.result[:first]]
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        """Put all in one order; deal them once others have left out what shall not run."""
        if self._workers:
            items.sort(key=lambda item: item.path.parts)
        yield
        if self._workers:
            items[:] = dealt(items, self._workers, [config.rootpath / folder for folder in LONG])


class FewReports:
    """A plugin by which a worker reports a test that passes in one message in place of five.

    Packing, sending and reading the other four costs a quick test as much as running it.  They say when it began and
    ended, and how long its fixtures took; whoever asks for that is told all.
    """

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        options = session.config.option
        if options.durations is not None or options.xmlpath or options.verbose > 0:
            return
        for plugin in session.config.pluginmanager.get_plugins():
            if type(plugin).__name__ == "WorkerInteractor":
                plugin.sendevent = _without_the_expected(plugin.sendevent)


def _without_the_expected(send: Callable[..., None]) -> Callable[..., None]:
    def send_event(name: str, **values: Any) -> None:
        if name in {"logstart", "logfinish"}:
            return
        if name == "testreport" and values["data"]["when"] != "call" and values["data"]["outcome"] == "passed":
            return
        send(name, **values)

    return send_event


def dealt(items: Sequence[pytest.Item], workers: int, long: Sequence[Path]) -> list[pytest.Item]:
    """The same tests, such that each worker's share begins with as many long files as another's.

    xdist gives each worker as many tests in a row, and takes the last ones of a share for who has none any more: those
    are short then.  With the files of one folder in one share, all waited for it in the end.
    """
    files = [(path, [*found]) for path, found in groupby(items, key=lambda item: item.path)]
    is_long = [any(path.is_relative_to(folder) for folder in long) for path, _ in files]
    long_files = [found for (_, found), each in zip(files, is_long, strict=True) if each]
    short = [item for (_, found), each in zip(files, is_long, strict=True) if not each for item in found]
    order: list[pytest.Item] = []
    for worker in range(workers):
        first = [item for found in long_files[worker::workers] for item in found]
        size = (len(items) - len(order)) // (workers - worker)
        rest = max(0, size - len(first))
        order += [*first, *short[:rest]]
        del short[:rest]
    return [*order, *short]
