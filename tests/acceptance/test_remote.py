"""Servers behind a URL: streamable HTTP, legacy SSE, and a bare URL that may be either."""

import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from support.processes.http_servers import forked_http_server
from support.servers.real_endpoints import BACKSTOP_S, assert_fault, fault_at_open, fault_of, opened, say, text_of
from support.waiting import eventually_async

from quarterdeck.fleet.workers.runtime import Runtime
from quarterdeck.interop import (
    BridgeConfig,
    ServerEndpointImpl,
    SseServerConfig,
    StreamableHttpServerConfig,
    start_server_fleet,
)
from quarterdeck_protocol.configs import RestartPolicy, Revision
from quarterdeck_protocol.spawn_orders import WorkerKind
from quarterdeck_protocol.tools import ProgressNote

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("undisturbed")]

SOON = RestartPolicy(backoff_s=0.05)

Config = type[SseServerConfig] | type[StreamableHttpServerConfig]

KINDS: dict[str, tuple[Config, tuple[str, ...]]] = {
    "streamable": (StreamableHttpServerConfig, ()),
    "streamable-legacy": (StreamableHttpServerConfig, ("--legacy",)),
    "sse": (SseServerConfig, ("--transport", "sse")),
    "bare-url": (SseServerConfig, ()),
}
"""What is configured, and what the server is."""


def config_of(kind: str, url: str, **settings: Any) -> SseServerConfig | StreamableHttpServerConfig:
    return KINDS[kind][0](id=kind, url=url, **settings)


@pytest.fixture(scope="module", autouse=True)
async def zygote(neighbour: ServerEndpointImpl) -> AsyncIterator[None]:
    """That of remote servers, which no test leaves: it is the runtime's, like the neighbour's own."""
    runtime = await Runtime.acquire()
    runtime.warm_up(WorkerKind.REMOTE)
    yield
    await runtime.release()


@pytest.fixture(scope="module", params=KINDS)
async def server(request: pytest.FixtureRequest, neighbour: ServerEndpointImpl) -> AsyncIterator[ServerEndpointImpl]:
    """One good server of each kind, shared by the tests that leave it as it was."""
    with forked_http_server(*KINDS[request.param][1]) as url:
        async with opened(config_of(request.param, url)) as endpoint:
            yield endpoint


def unused_url() -> str:
    """A URL at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"


async def test_a_remote_server_lists_and_answers(server: ServerEndpointImpl) -> None:
    """A bare URL is what most people have; it must work for either transport."""
    with anyio.fail_after(BACKSTOP_S):
        assert [tool.ref.name for tool in await server.list_tools()] == ["echo", "add", "slow", "progress"]
        assert (await server.invoke("add", {"a": 1, "b": 2})).structured_content == {"sum": 3}
    await say(server)
    status = server.status()
    assert status.era == "2025-11-25", "where it speaks both eras, too"
    assert status.pid is None


async def test_a_remote_servers_progress_reaches_who_asked(server: ServerEndpointImpl) -> None:
    """Long remote calls need it most."""
    notes: list[ProgressNote] = []
    with anyio.fail_after(BACKSTOP_S):
        await server.call("progress", b'{"n": 3}', on_progress=notes.append)
    assert [note.progress for note in notes] == [1, 2, 3]


async def test_a_late_remote_call_ends_at_its_deadline(server: ServerEndpointImpl) -> None:
    """And the endpoint stays."""
    fault = await fault_of(server.call("slow", b'{"seconds": 60}', timeout_s=0.2))
    assert_fault(fault, "timeout", "call_timeout", "unknown", "within 0.2 s")
    await say(server)


async def test_a_tools_own_error_is_a_result_from_afar_too(server: ServerEndpointImpl) -> None:
    """As on stdio."""
    with anyio.fail_after(BACKSTOP_S):
        result = await server.invoke("no_such_tool")
    assert result.is_error
    assert "no_such_tool" in text_of(result)


async def test_calls_to_a_remote_server_run_side_by_side(server: ServerEndpointImpl) -> None:
    """A slow one must not hold up the quick ones."""
    with anyio.fail_after(BACKSTOP_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.invoke, "slow", {"seconds": 60})
            for n in range(10):
                await say(server, str(n))
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_url_where_nobody_listens_fails_the_open(kind: str) -> None:
    """A wrong port is the commonest mistake."""
    fault = await fault_at_open(config_of(kind, url := unused_url()))
    assert_fault(fault, "transport", "connect_failed", "not_sent", url.removesuffix("/mcp"))


@pytest.mark.parametrize("kind", ["streamable", "streamable-legacy", "sse"])
async def test_a_server_that_wants_credentials_gets_the_configured_ones_or_says_so(kind: str) -> None:
    """Only the status tells a missing token from a broken server."""
    with forked_http_server(*KINDS[kind][1], "--require-token", "s3cret") as url:
        fault = await fault_at_open(config_of(kind, url))
        assert_fault(fault, "transport", "auth_needed", "not_sent", "401")
        async with opened(config_of(kind, url, headers={"Authorization": "Bearer s3cret"})) as endpoint:
            await say(endpoint)


@pytest.mark.parametrize("kind", ["streamable", "bare-url"])
async def test_a_url_that_is_no_mcp_server_says_so(kind: str) -> None:
    """A wrong path, as when `/mcp` is forgotten."""
    with forked_http_server() as url:
        fault = await fault_at_open(config_of(kind, url + "/wrong"))
    assert_fault(fault, "transport", "connect_failed", "not_sent", "answered 404")


async def test_a_server_configured_as_legacy_sse_is_dialled_so_alone() -> None:
    """Probing would cost a request that some gateways punish."""
    with forked_http_server("--transport", "sse") as url:
        async with opened(SseServerConfig(id="only", url=url, legacy_only=True)) as endpoint:
            await say(endpoint)
    with forked_http_server() as url:
        fault = await fault_at_open(SseServerConfig(id="only", url=url, legacy_only=True))
    assert_fault(fault, "transport", "connect_failed", "not_sent", url.removesuffix("/mcp"))


async def test_a_host_that_never_answers_is_given_up_at_the_deadline() -> None:
    """A firewall that swallows packets must not hang the start."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        fault = await fault_at_open(StreamableHttpServerConfig(id="silent", url=url, connect_timeout_s=0.5))
    assert_fault(fault, "timeout", "handshake_timeout", "not_sent", "within 0.5 s")


@pytest.mark.parametrize("kind", ["streamable", "streamable-legacy", "sse"])
async def test_a_remote_server_that_dies_in_a_call_is_lost(kind: str) -> None:
    """The caller is told at once, and the fleet knows."""
    with forked_http_server(*KINDS[kind][1], "--die-on-call") as url:
        async with opened(config_of(kind, url)) as endpoint:
            fault = await fault_of(endpoint.invoke("echo", {"text": "hello"}))
            assert_fault(fault, "tool_error", "server_lost", "unknown")
            await eventually_async(lambda: endpoint.phase == "faulted")
            loss = endpoint.status().fault
            assert loss is not None
            assert_fault(loss, "transport", "server_lost", "unknown")


@pytest.mark.parametrize("kind", ["streamable-legacy", "sse"])
async def test_the_fleet_connects_again_to_a_server_that_was_restarted(kind: str) -> None:
    """Its owner updated it, and our session went with the old process."""
    with ExitStack() as first:
        url = first.enter_context(forked_http_server(*KINDS[kind][1]))
        with anyio.fail_after(BACKSTOP_S):
            fleet = await start_server_fleet(BridgeConfig(servers=(config_of(kind, url, restart=SOON),)))
        try:
            (endpoint,) = fleet.endpoints()
            await say(endpoint)
            first.close()
            with forked_http_server(*KINDS[kind][1], "--port", str(urlsplit(url).port)):
                if endpoint.phase == "ready":  # without a standing stream, only use shows that the session is gone
                    fault = await fault_of(endpoint.invoke("echo", {"text": "hello"}))
                    assert fault.code in {"server_lost", "session_gone"}, fault
                await eventually_async(lambda: fleet.endpoints()[0] is not endpoint)
                await eventually_async(lambda: fleet.status()[kind].phase == "ready")
                await say(fleet.endpoints()[0])
        finally:
            with anyio.fail_after(BACKSTOP_S):
                await fleet.tear_down()


async def test_a_server_without_sessions_may_be_restarted_unnoticed() -> None:
    """The modern era keeps no state between requests: who is there answers."""
    with ExitStack() as first:
        url = first.enter_context(forked_http_server())
        modern = config_of("streamable", url).model_copy(update={"protocol": Revision.R2026_07_28})
        async with opened(modern) as endpoint:
            await say(endpoint)
            first.close()
            with forked_http_server("--port", str(urlsplit(url).port)):
                await say(endpoint)
