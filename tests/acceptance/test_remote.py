"""Servers behind a URL: streamable HTTP, legacy SSE, and a bare URL that may be either."""

import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from support.processes.http_servers import forked_http_server
from support.servers.real_endpoints import BACKSTOP_S, assert_fault, fault_at_open, fault_of, opened, say
from support.waiting import eventually_async

from quarterdeck.interop import (
    BridgeConfig,
    ServerEndpointImpl,
    SseServerConfig,
    StreamableHttpServerConfig,
    start_server_fleet,
)
from quarterdeck_protocol.configs import RestartPolicy

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


@pytest.mark.parametrize("kind", KINDS)
async def test_a_url_where_nobody_listens_fails_the_open(kind: str) -> None:
    """A wrong port is the commonest mistake."""
    fault = await fault_at_open(config_of(kind, url := unused_url()))
    assert_fault(fault, "transport", "connect_failed", "not_sent", url.removesuffix("/mcp"))


@pytest.mark.parametrize("kind", ["streamable"])
async def test_a_server_that_wants_credentials_gets_the_configured_ones_or_says_so(kind: str) -> None:
    """Only the status tells a missing token from a broken server."""
    with forked_http_server(*KINDS[kind][1], "--require-token", "s3cret") as url:
        fault = await fault_at_open(config_of(kind, url))
        assert_fault(fault, "transport", "auth_needed", "not_sent", "401")
        async with opened(config_of(kind, url, headers={"Authorization": "Bearer s3cret"})) as endpoint:
            await say(endpoint)


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
