"""A run's place: it is there for nothing, and leaves nothing, when no test uses a server."""

import tempfile
from pathlib import Path

import pytest

from quarterdeck_pytest.activation import Run, RunAddress


def test_a_run_that_nobody_uses_starts_nothing_and_leaves_nothing() -> None:
    """Whoever has the product installed would pay for a process in each run of xdist."""
    run = Run()
    folder = Path(run.address.folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert RunAddress(**run.address.to_workerinput()) == run.address
    assert run.close() == []
    assert run.close() == []
    assert not run.was_used
    assert not folder.exists()


def test_a_run_has_a_place_where_the_usual_one_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run of xdist would end in an error of ours, MCP or not."""
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    run = Run()
    run.close()
    assert len(run.address.socket) < 100
