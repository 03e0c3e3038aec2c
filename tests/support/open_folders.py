"""Temporary folders that other users can walk to, as root: servers and commands of tests run as those.

Pytest's own are closed to others, and a second run of pytest closes what the first had opened: they get a place of
their own, which is removed when all has passed.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import pytest

PASSABLE: Final = 0o711


class OpenFolders:
    """A plugin: for root, and unless a place was named with --basetemp."""

    def __init__(self) -> None:
        """Nothing is made yet."""
        self._made: Path | None = None

    def configure(self, config: pytest.Config) -> None:
        """Name the place; the workers of xdist are told theirs by whoever started them."""
        if os.geteuid() == 0 and config.option.basetemp is None:
            self._made = Path(tempfile.mkdtemp(prefix="quarterdeck-tests-"))
            self._made.chmod(PASSABLE)
            config.option.basetemp = str(self._made / "base")

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Open it, and have all that is made in it by this process be open."""
        if os.geteuid() != 0:
            return
        factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
        factory.getbasetemp().chmod(PASSABLE)
        make = factory.mktemp

        def make_passable(basename: str, *, numbered: bool = True) -> Path:
            made = make(basename, numbered=numbered)
            made.chmod(PASSABLE)
            return made

        factory.mktemp = make_passable  # type: ignore[method-assign,assignment]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Remove it, unless somebody will want to look."""
        if self._made is not None and exitstatus == 0:
            shutil.rmtree(self._made, ignore_errors=True)
