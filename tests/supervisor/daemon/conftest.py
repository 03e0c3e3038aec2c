"""What the tests of the daemon share: places of their own, the signals that a door sets, and a session's memory."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.config.places import short_folder, use_places

from quarterdeck.daemon import wait
from quarterdeck.daemon.session_memory import make_memory


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The user's directories, in a folder whose path is short enough for a socket."""
    with short_folder() as folder:
        use_places(monkeypatch, folder)
        yield


@pytest.fixture
def signals() -> Iterator[None]:
    """Take back what `wait` sets."""
    before = {number: signal.getsignal(number) for number in (*wait.ENDING, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    """The memory of a session."""
    made = make_memory(tmp_path)
    yield made
    os.close(made)
