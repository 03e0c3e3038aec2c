"""A server that never stops: notifications, requests, stderr, pages, tools; or that takes in nothing at all."""

import logging
from collections import Counter
from pathlib import Path

import anyio
import pytest
from support.servers.real_endpoints import BACKSTOP_S, assert_fault, fault_of, hostile, opened, pretend, say
from support.waiting import eventually_async

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


async def test_junk_in_the_middle_of_a_call_is_skipped() -> None:
    """A server that prints while it works still works."""
    async with opened(pretend("echo")) as endpoint:
        with anyio.fail_after(BACKSTOP_S):
            await endpoint.invoke("flood", {"n": 300_000})
        await say(endpoint)


async def test_a_flood_on_stderr_is_read_and_kept_within_bounds(own_directories: Path) -> None:
    """Unread it would block the server; kept whole it would fill the disk."""
    async with opened(hostile("stderr_flood")) as endpoint:
        await say(endpoint)
    sizes = sizes_of_logs(own_directories, "stderr-flood")
    assert len(sizes) == 2
    assert 0 < sum(sizes) < 2 * LOG_FILE_BYTES


@pytest.mark.parametrize(
    ("mode", "code", "words"),
    [
        ("pages_forever", "too_many_pages", "more than 500 pages"),
        ("same_cursor", "too_many_pages", "comes back to a page"),
        ("huge_tools", "too_many_tools", "more than 5,000 tools"),
    ],
)
async def test_a_list_without_end_is_refused_to_whoever_asked(mode: str, code: str, words: str) -> None:
    """The connection is fine and calls still work."""
    async with opened(hostile(mode)) as endpoint:
        fault = await fault_of(endpoint.list_tools())
        assert_fault(fault, "protocol", code, "answered", words)
        assert endpoint.phase == "ready"
        await say(endpoint)


async def test_a_list_that_does_not_come_is_given_up_at_the_deadline() -> None:
    """A start that waits for lists would hang."""
    async with opened(hostile("half_line", "--at", "tools/list", list_timeout_s=0.5)) as endpoint:
        fault = await fault_of(endpoint.list_tools())
        assert_fault(fault, "timeout", "list_timeout", "unknown", "within 0.5 s")
        assert endpoint.phase == "ready"


async def test_tools_that_cannot_be_shown_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """One bad tool must not hide the good ones."""
    async with opened(hostile("bad_tools")) as endpoint:
        names = await names_of(endpoint)
        await say(endpoint)
    assert names == ["echo", "pid", "add", "no_schema", "schema_text"]
    at_warning = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    warnings = [message for message in at_warning if "is confined less than its policy wants" not in message]
    assert len(warnings) == 14
    assert all("of bad-tools is left out: " in warning for warning in warnings)


async def test_a_storm_of_changes_ends_in_the_last_list() -> None:
    """Fifty changes must not cost fifty lists, nor lose the last change."""
    async with opened(pretend("echo")) as endpoint:
        assert len(await names_of(endpoint)) == 15
        changes = 0

        def count() -> None:
            nonlocal changes
            changes += 1

        endpoint.watch(count)
        for _ in range(50):
            await endpoint.invoke("change")
        await eventually_async(lambda: len(endpoint.tools()) == 65, what="the last list")
        assert changes <= 10


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
