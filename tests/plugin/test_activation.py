"""A run's place: it is there for nothing, and leaves nothing, when no test uses a server."""

from pathlib import Path

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
