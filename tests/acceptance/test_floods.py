"""A server that never stops: notifications, requests, stderr, pages, tools; or that takes in nothing at all."""

from collections import Counter
from pathlib import Path

import anyio
import pytest
from support.servers.real_endpoints import BACKSTOP_S, hostile, opened, say

from quarterdeck.interop import ProtocolFault, ServerEndpointImpl

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("undisturbed")]

LOG_FILE_BYTES = 5 * 1024 * 1024
"""What one log file may have, its last write included."""


def sizes_of_logs(root: Path, server: str) -> list[int]:
    """Bytes of each file that keeps the server's stderr."""
    return [path.stat().st_size for path in root.glob(f"state/servers/*/{server}/stderr.log*")]


async def names_of(endpoint: ServerEndpointImpl) -> list[str]:
    with anyio.fail_after(BACKSTOP_S):
        return [tool.ref.name for tool in await endpoint.list_tools()]


@pytest.mark.parametrize("mode", ["notification_flood", "ping_flood"])
async def test_a_server_that_talks_for_ever_still_answers(mode: str) -> None:
    """Its own answers must get through its own noise."""
    async with opened(hostile(mode)) as endpoint:
        assert "echo" in await names_of(endpoint)
        for n in range(20):
            await say(endpoint, f"call {n}")
        assert endpoint.phase == "ready"


async def test_a_flood_on_stderr_is_read_and_kept_within_bounds(own_directories: Path) -> None:
    """Unread it would block the server; kept whole it would fill the disk."""
    async with opened(hostile("stderr_flood")) as endpoint:
        await say(endpoint)
    sizes = sizes_of_logs(own_directories, "stderr-flood")
    assert len(sizes) == 2
    assert 0 < sum(sizes) < 2 * LOG_FILE_BYTES


@pytest.mark.nightly
async def test_calls_to_a_server_that_reads_nothing_end_and_are_bounded() -> None:
    """Each call gets its fault: by its deadline, or at once when too much waits already; memory does not grow."""
    ends: Counter[str] = Counter()
    async with opened(hostile("never_reads", call_timeout_s=1.0)) as endpoint:

        async def call() -> None:
            try:
                await endpoint.invoke("echo", {"text": "x" * 1_000_000})
            except ProtocolFault as fault:
                ends[f"{fault.kind} {fault.code} {fault.delivery}"] += 1

        with anyio.fail_after(BACKSTOP_S):
            async with anyio.create_task_group() as tasks:
                for _ in range(100):
                    tasks.start_soon(call)
        assert ends.total() == 100
        # How many the worker has room for in that second is the machine's business; what each ends with is not.
        assert set(ends) <= {"timeout call_timeout unknown", "tool_error busy not_sent"}
        assert endpoint.phase == "ready"
