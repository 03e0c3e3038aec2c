"""Nothing of a server stays when it ends: no child of its own, no daemon, no call without an answer.

Servers that leave daemons run unconfined here, where no namespace ends those for us; `test_attacks` has the others.
"""

import os
import signal
from pathlib import Path

import anyio
import pytest
from support.processes.leftovers import assert_gone, is_running
from support.servers.real_endpoints import BACKSTOP_S, UNCONFINED, assert_fault, fault_of, hostile, opened, pids_of, say
from support.waiting import eventually_async

from quarterdeck.interop import create_server_endpoint

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("undisturbed")]


async def test_what_forked_away_from_a_server_dies_with_it(tmp_path: Path) -> None:
    """A daemonised grandchild in a session of its own is the hardest to find."""
    pid_file = tmp_path / "pids"
    async with opened(hostile("daemonise", "--pid-file", str(pid_file), sandbox=UNCONFINED)) as endpoint:
        await say(endpoint)
        await eventually_async(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
        (daemon,) = map(int, pid_file.read_text().split())
        assert is_running(daemon)
    assert not is_running(daemon)


async def test_children_that_hold_a_dead_servers_pipes_do_not_hide_its_death(tmp_path: Path) -> None:
    """The pipes stay open, and still the server is gone."""
    pid_file = tmp_path / "pids"
    async with opened(hostile("fork_children", "--pid-file", str(pid_file), sandbox=UNCONFINED)) as endpoint:
        fault = await fault_of(endpoint.invoke("echo", {"text": "hello"}))
        assert_fault(fault, "tool_error", "exited", "unknown", "exited with status 0")
    children = [int(line) for line in pid_file.read_text().split()]
    assert len(children) == 2
    assert_gone(children)


async def test_a_killed_workers_daemons_die_too(tmp_path: Path) -> None:
    """The worker can no longer sweep; the zygote does."""
    pid_file = tmp_path / "pids"
    async with opened(hostile("daemonise", "--pid-file", str(pid_file), sandbox=UNCONFINED)) as endpoint:
        await eventually_async(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
        os.kill(pids_of(endpoint)[1], signal.SIGKILL)
        daemon = int(pid_file.read_text())
        await eventually_async(lambda: not is_running(daemon))


async def test_stubborn_servers_are_closed_within_their_graces() -> None:
    """Stdin closed, TERM, KILL: two seconds each, and all at once for all."""
    stubborn = [create_server_endpoint(hostile(mode)) for mode in ("ignores_term", "never_reads", "notification_flood")]
    pids = []
    for endpoint in stubborn:
        await endpoint.open()
        pids += pids_of(endpoint)
    with anyio.fail_after(BACKSTOP_S):
        async with anyio.create_task_group() as tasks:
            for endpoint in stubborn:
                tasks.start_soon(endpoint.close)
    assert {endpoint.phase for endpoint in stubborn} == {"closed"}
    assert not any(map(is_running, pids))
