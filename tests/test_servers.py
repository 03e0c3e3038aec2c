"""The pretend servers are what they pretend to be; without that, the acceptance tests prove nothing."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp.client.client import Client
from mcp.client.sse import sse_client
from support.clients.direct_client import open_direct, without_envelope
from support.clients.raw_client import PeerClosedError, RawStdioClient, RpcError
from support.processes.http_servers import forked_http_server
from support.processes.leftovers import assert_gone, is_running, no_leftovers
from support.processes.programs import server_argv
from support.waiting import eventually

pytestmark = pytest.mark.process

ERAS = {"echo": "2025-11-25", "modern": "2026-07-28"}

GOOD_UNTIL_CALLED = [
    *("closes_stdout", "half_line", "long_line", "slow_drip", "stderr_flood", "deep_json", "invalid_utf8"),
    *("smuggle_whitespace", "smuggle_behind", "notification_flood", "ping_flood", "smuggle"),
    *("a_million_resources", "huge_answers", "update_flood", "asks_a_thousand_times"),
]


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    with no_leftovers():
        yield


def connected(server: str, *arguments: str, **options: float) -> RawStdioClient:
    client = RawStdioClient(server_argv(server, *arguments), **options)
    try:
        client.discover() if server == "modern" else client.initialize()
    except BaseException:
        client.close()
        raise
    return client


@pytest.mark.parametrize("server", ERAS)
async def test_the_stock_client_speaks_the_era_that_a_server_pretends_to_have(server: str) -> None:
    """Else the acceptance tests would try one era twice and the other never."""
    command, *args = server_argv(server)
    async with open_direct(command, args) as direct:
        assert direct.version == ERAS[server]
        assert {tool["name"] for tool in await direct.list_tools()} >= {"echo", "add", "slow", "progress", "change"}
        assert without_envelope(await direct.call("add", {"a": 1, "b": 2})) == {
            "content": [{"type": "text", "text": "3"}],
            "structuredContent": {"sum": 3},
        }


@pytest.mark.parametrize("server", ERAS)
def test_a_cancelled_call_is_noted_on_stderr_and_never_answered(server: str) -> None:
    """Else nobody could tell whether a client's cancellation reached the server."""
    with connected(server) as client:
        request_id = client.send("tools/call", {"name": "slow", "arguments": {"seconds": 3600}})
        client.cancel(request_id)
        client.call("echo", text="after")
        assert client.stderr_text() == f"cancelled {request_id}\n"


def test_the_modern_server_refuses_the_old_handshake_and_asks_for_input() -> None:
    """Else era bridging would be tried against a server that is lenient."""
    with RawStdioClient(server_argv("modern")) as client:
        with pytest.raises(RpcError, match="-32022"):
            client.initialize()
        client.discover()
        assert client.call("input_required")["resultType"] == "input_required"


@pytest.mark.parametrize(("how", "code"), [({"code": 7}, 7), ({"signal": int(signal.SIGKILL)}, -signal.SIGKILL)])
def test_crash_dies_the_way_it_was_asked_to(how: dict[str, int], code: int) -> None:
    """Else a dossier could name a wrong death and still pass."""
    with connected("echo") as client:
        with pytest.raises(PeerClosedError):
            client.call("crash", **how)
        assert client.process.wait(10) == code


@pytest.mark.parametrize("server", ERAS)
def test_a_server_ends_with_its_stdin_even_while_calls_wait(server: str) -> None:
    """Else every test that loses a worker would leave a server behind."""
    with connected(server) as client:
        client.send("tools/call", {"name": "slow", "arguments": {"seconds": 3600}})
        client.send("tools/call", {"name": "hang", "arguments": {}})
        client.close_stdin()
        assert client.process.wait(10) == 0


@pytest.mark.parametrize("mode", GOOD_UNTIL_CALLED)
def test_a_hostile_server_shakes_hands_and_lets_other_tools_work(mode: str) -> None:
    """Else a fault would come from the handshake and not from the misbehaviour under test."""
    with connected("hostile", mode) as client:
        assert client.call("pid")["structuredContent"]["pid"] == client.pid


def test_a_server_that_ignores_term_needs_a_kill() -> None:
    """Else the last step of a shutdown would never be tried."""
    with connected("hostile", "ignores_term", grace_s=0.1) as client:
        client.close()
        assert client.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("mode", "children"), [("daemonise", 1), ("fork_children", 2)])
def test_a_server_that_forks_leaves_processes_that_can_be_found(mode: str, children: int, tmp_path: Path) -> None:
    """Else a test for orphans would look for processes that never were."""
    pid_file = tmp_path / "pids"
    pid_file.touch()
    with connected("hostile", mode, "--pid-file", str(pid_file)) as client:
        client.send("tools/call", {"name": "echo", "arguments": {"text": "now"}})
        eventually(lambda: pid_file.read_text().count("\n") == children)
        client.close()
    pids = [int(line) for line in pid_file.read_text().split()]
    assert all(map(is_running, pids))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert_gone(pids)


@pytest.mark.parametrize("transport", ["streamable", "sse"])
async def test_the_stock_client_reaches_the_http_server(transport: str) -> None:
    """Else remote transports would be tried against nothing."""
    with forked_http_server("--transport", transport) as url:
        legacy = transport == "sse"
        server = sse_client(url) if legacy else url
        async with Client(server, mode="legacy" if legacy else "auto", cache=None, read_timeout_seconds=30) as client:
            assert client.protocol_version == ERAS["echo" if legacy else "modern"]
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"sum": 3}
