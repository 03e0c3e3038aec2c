"""What the tests of checkpoints share: a directory of a session, and a store beside it."""

from pathlib import Path

import pytest

from quarterdeck.tools.checkpoint.store import FileCheckpointStore


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path.resolve() / "work"
    work.mkdir()
    return work


@pytest.fixture
def store(tmp_path: Path) -> FileCheckpointStore:
    return FileCheckpointStore(tmp_path / "checkpoints")
