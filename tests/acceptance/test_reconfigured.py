"""A running fleet is given another configuration, with real workers and servers."""

import anyio
import psutil
import pytest
from support.servers.real_endpoints import BACKSTOP_S, pids_of, pretend, say
from support.waiting import eventually_async

from quarterdeck.interop import BridgeConfig, start_server_fleet

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("undisturbed")]


async def test_only_what_changed_restarts_and_what_is_gone_leaves_no_process() -> None:
    """Editing one row would end the calls of all servers, or leave the old command running."""
    kept, changed, gone = (pretend("echo", server_id=server) for server in ("kept", "changed", "gone"))
    with anyio.fail_after(BACKSTOP_S):
        fleet = await start_server_fleet(BridgeConfig(servers=(kept, changed, gone)))
    try:
        endpoints = {endpoint.config.id: endpoint for endpoint in fleet.endpoints()}
        pids = {server: pids_of(endpoint) for server, endpoint in endpoints.items()}
        successor = pretend("echo", server_id="changed", call_timeout_s=7.0)
        renamed = pretend("echo", server_id="renamed")
        await fleet.reconfigure(BridgeConfig(servers=(renamed, successor, kept)))

        def is_ready() -> bool:
            return [(name, str(status.phase)) for name, status in fleet.status().items()] == [
                ("renamed", "ready"),
                ("changed", "ready"),
                ("kept", "ready"),
            ]

        await eventually_async(is_ready, what="all servers are ready")
        assert fleet.endpoint("kept") is endpoints["kept"]
        assert pids_of(endpoints["kept"]) == pids["kept"]
        assert not any(psutil.pid_exists(pid) for server in ("changed", "gone") for pid in pids[server])
        for endpoint in fleet.endpoints():
            await say(endpoint)
    finally:
        with anyio.fail_after(BACKSTOP_S):
            await fleet.tear_down()
