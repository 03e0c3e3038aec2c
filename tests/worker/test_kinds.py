"""The two kinds of workers: each loads what it needs, and nothing of the other's."""

import pytest
from support.processes.running import loaded_by

from quarterdeck_protocol.spawn_orders import WorkerKind

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("kind", "without"),
    [
        (
            WorkerKind.STDIO,
            {"mcp", "mcp_types", "pydantic", "pydantic_core", "httpx2", "quarterdeck_worker.remote.run"},
        ),
        (WorkerKind.REMOTE, {"quarterdeck_worker.stdio.run", "quarterdeck_worker.stdio.launch"}),
    ],
)
def test_a_kind_loads_nothing_of_the_others(kind: WorkerKind, without: set[str]) -> None:
    """Every start would pay for the SDK, and every worker for its memory."""
    code = f"from quarterdeck_worker.kinds import WorkerKind, load; load(WorkerKind({kind.value!r}))"
    assert loaded_by(code) & without == set()
