"""What died is started again by the fleet, unless that would not mend it."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from support.processes.programs import server_argv
from support.servers.real_endpoints import (
    BACKSTOP_S,
    UNCONFINED,
    assert_fault,
    hostile,
    pids_of,
    pretend,
    say,
    stdio_config,
)
from support.waiting import eventually_async

from quarterdeck.interop import BridgeConfig, EndpointStatus, ServerConfig, ServerFleetImpl, start_server_fleet
from quarterdeck_protocol.configs import RestartPolicy

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("undisturbed")]

SOON = RestartPolicy(backoff_s=0.05)
"""A restart without the wait that a server in the field deserves."""


@asynccontextmanager
async def running_fleet(*servers: ServerConfig) -> AsyncIterator[ServerFleetImpl]:
    with anyio.fail_after(BACKSTOP_S):
        fleet = await start_server_fleet(BridgeConfig(servers=servers))
    try:
        yield fleet
    finally:
        with anyio.fail_after(BACKSTOP_S):
            await fleet.tear_down()


async def settled(fleet: ServerFleetImpl, server: str, phase: str, restarts: int) -> EndpointStatus:
    """Its status once it is in this phase after so many restarts."""

    def is_there() -> EndpointStatus | None:
        status = fleet.status()[server]
        return status if (status.phase, status.restarts) == (phase, restarts) else None

    status = await eventually_async(is_there, what=f"{server} {phase} after {restarts} restarts")
    assert status is not None
    return status


async def test_the_fleet_starts_again_what_died() -> None:
    """One crash must not cost the user a tool for the rest of the day, whether the server or its worker died."""
    victims = ("server", "worker")
    async with running_fleet(*(pretend("echo", server_id=victim, restart=SOON) for victim in victims)) as fleet:
        for victim, index in zip(victims, (0, 1), strict=True):
            endpoint = fleet.endpoint(victim)
            assert endpoint is not None
            await say(endpoint)
            pids = pids_of(endpoint)
            os.kill(pids[index], signal.SIGKILL)
            status = await settled(fleet, victim, "ready", restarts=1)
            assert status.pid not in (pids[0], None)
            heir = fleet.endpoint(victim)
            assert heir is not None
            assert heir is not endpoint
            await say(heir)
            assert endpoint.phase == "faulted"


async def test_a_server_that_keeps_dying_is_left_alone_until_it_is_restarted_by_hand(tmp_path: Path) -> None:
    """An endless loop of starts would burn the machine; a person who mended it must be able to try again."""
    flag = tmp_path / "broken"
    flag.touch()
    dying = " ".join(server_argv("hostile", "exits_at_once", "--at", "tools/list"))
    program = f"test -e {flag} && exec {dying}; exec {' '.join(server_argv('echo'))}"
    policy = RestartPolicy(backoff_s=0.01, max_restarts=2)
    async with running_fleet(stdio_config("dying", ["sh", "-c", program], restart=policy, sandbox=UNCONFINED)) as fleet:
        status = await settled(fleet, "dying", "faulted", restarts=2)
        assert status.fault is not None
        assert status.fault.code == "crash_loop"
        assert status.fault.remedy
        for words in ("after 2 restarts", "exited with status 3"):
            assert words in status.fault.message
        assert status.fault.dossier is not None
        assert "hostile: I refuse to start" in status.fault.dossier.stderr_tail
        flag.unlink()
        await fleet.restart("dying")
        status = await settled(fleet, "dying", "ready", restarts=3)
        assert status.fault is None
        heir = fleet.endpoint("dying")
        assert heir is not None
        await say(heir)


async def test_a_server_that_never_started_is_not_started_again() -> None:
    """Trying again would not mend a wrong command."""
    async with running_fleet(hostile("exits_at_once", restart=SOON)) as fleet:
        status = fleet.status()["exits-at-once"]
        assert (status.phase, status.restarts) == ("faulted", 0)
        assert status.fault is not None
        assert_fault(status.fault, "spawn_failed", "exited_at_handshake", "not_sent")
