"""Servers and workers that die: whoever waits is told at once, the fleet starts them again, nothing of them stays."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import psutil
import pytest
from support.leftovers import assert_gone, eventually_async, is_running
from support.programs import server_argv
from support.real import BACKSTOP_S, assert_fault, fault_of, hostile, opened, pretend, say, stdio_config

from quarterdeck.interop import (
    BridgeConfig,
    EndpointStatus,
    ProtocolFault,
    ServerConfig,
    ServerEndpointImpl,
    ServerFleetImpl,
    create_server_endpoint,
    start_server_fleet,
)
from quarterdeck_protocol.configs import RestartPolicy

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("undisturbed")]

SOON = RestartPolicy(backoff_s=0.05)
"""A restart without the wait that a server in the field deserves."""


CRASHING = """
import os, sys
sys.path.insert(0, sys.argv[1])
import echo, tools, wire

def crash(call):
    wire.complain("out of cheese")
    os._exit(7)

tools.TOOLS["crash"] = (tools.TOOLS["crash"][0], crash)
wire.serve(echo.handle)
"""
"""The echo server, but it says why it dies."""


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


def pids_of(endpoint: ServerEndpointImpl) -> tuple[int, int]:
    """The server's and the worker's."""
    status = endpoint.status()
    assert status.pid is not None
    assert status.worker_pid is not None
    return status.pid, status.worker_pid


async def fault_in_call(endpoint: ServerEndpointImpl, pid: int, number: int = signal.SIGKILL) -> ProtocolFault:
    """The fault of a call in whose middle `pid` gets a signal."""
    faults = []

    async def call() -> None:
        faults.append(await fault_of(endpoint.invoke("hang")))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        await endpoint.invoke("add", {"a": 1, "b": 1})  # the server reads in order: it has the other call too
        os.kill(pid, number)
    return faults[0]


def loss_of(endpoint: ServerEndpointImpl) -> ProtocolFault:
    assert endpoint.phase == "faulted"
    loss = endpoint.status().fault
    assert loss is not None
    return loss


async def test_a_server_that_dies_idle_is_noticed_and_explained() -> None:
    """Nobody should have to call a dead server to learn that it is dead."""
    async with opened(pretend("echo")) as endpoint:
        await say(endpoint)
        os.kill(pids_of(endpoint)[0], signal.SIGKILL)
        await eventually_async(lambda: endpoint.phase == "faulted")
        loss = loss_of(endpoint)
        assert_fault(loss, "transport", "exited", "unknown", "killed by SIGKILL")
        assert loss.dossier is not None
        assert loss.dossier.signal == signal.SIGKILL
        assert loss.dossier.uptime_s is not None
        assert loss.dossier.cpu_s is not None
        assert (loss.dossier.peak_rss_bytes or 0) > 1_000_000


async def test_a_server_that_dies_in_a_call_ends_the_call_with_its_dossier() -> None:
    """The caller must learn that the call may have had its effect, and how the server died."""
    async with opened(pretend("echo")) as endpoint:
        fault = await fault_in_call(endpoint, pids_of(endpoint)[0])
        assert_fault(fault, "tool_error", "exited", "unknown", "killed by SIGKILL")
        assert fault.dossier is not None
        assert fault.dossier.signal == signal.SIGKILL
        await eventually_async(lambda: endpoint.phase == "faulted")
        assert_fault(loss_of(endpoint), "transport", "exited", "unknown")


async def test_a_server_that_exits_in_a_call_leaves_its_status_and_last_words() -> None:
    """A traceback on stderr is the best explanation there is."""
    command, script = server_argv("echo")
    async with opened(stdio_config("crashing", [command, "-c", CRASHING, str(Path(script).parent)])) as endpoint:
        fault = await fault_of(endpoint.invoke("crash"))
        assert_fault(fault, "tool_error", "exited", "unknown", "exited with status 7")
        assert fault.dossier is not None
        assert fault.dossier.exit_status == 7
        assert "out of cheese" in fault.dossier.stderr_tail


async def test_every_call_in_flight_ends_with_the_server() -> None:
    """One forgotten call would hang its client for ever."""
    async with opened(pretend("echo")) as endpoint:
        faults = []

        async def call() -> None:
            faults.append(await fault_of(endpoint.invoke("hang")))

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            await endpoint.invoke("add", {"a": 1, "b": 1})
            os.kill(pids_of(endpoint)[0], signal.SIGKILL)
        assert {(fault.kind, fault.code, fault.delivery) for fault in faults} == {("tool_error", "exited", "unknown")}
        assert len(faults) == 50


async def test_what_a_server_wrote_before_it_died_still_counts() -> None:
    """An answer that lies in the pipe is an answer."""
    async with opened(pretend("echo")) as endpoint, anyio.create_task_group() as tasks:

        async def crash() -> None:
            await fault_of(endpoint.invoke("crash"))

        for n in range(20):
            tasks.start_soon(say, endpoint, f"call {n}")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(crash)


async def test_a_worker_that_dies_idle_takes_its_server_along() -> None:
    """A server without its worker would run on unseen."""
    async with opened(pretend("echo")) as endpoint:
        await say(endpoint)
        server, worker = pids_of(endpoint)
        os.kill(worker, signal.SIGKILL)
        await eventually_async(lambda: endpoint.phase == "faulted")
        assert_fault(loss_of(endpoint), "transport", "worker_lost", "unknown", "killed by signal 9")
        await eventually_async(lambda: not is_running(server))


async def test_a_worker_that_dies_in_a_call_ends_the_call() -> None:
    """The caller must not wait for a deadline."""
    async with opened(pretend("echo")) as endpoint:
        fault = await fault_in_call(endpoint, pids_of(endpoint)[1])
        assert_fault(fault, "tool_error", "worker_lost", "unknown", "killed by signal 9")
        assert fault.dossier is not None
        assert fault.dossier.signal == signal.SIGKILL


async def test_a_worker_that_dies_while_it_connects_fails_the_open() -> None:
    """Before it is ready, a loss is a failed start."""
    endpoint = create_server_endpoint(hostile("never_answers"))
    faults = []

    async def open_it() -> None:
        faults.append(await fault_of(endpoint.open()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(open_it)
        pid = await eventually_async(lambda: endpoint.status().worker_pid)
        assert pid is not None
        await eventually_async(psutil.Process(pid).children)
        os.kill(pid, signal.SIGKILL)
    assert_fault(faults[0], "spawn_failed", "worker_lost", "not_sent", "killed by signal 9")
    await endpoint.close()


async def test_a_worker_that_hangs_is_killed_when_a_deadline_passes() -> None:
    """It answers for the deadline; the supervisor's own follows two seconds later."""
    async with opened(pretend("echo", call_timeout_s=0.5)) as endpoint:
        server, worker = pids_of(endpoint)
        fault = await fault_in_call(endpoint, worker, signal.SIGSTOP)
        assert_fault(fault, "timeout", "worker_unresponsive", "unknown")
        assert_fault(loss_of(endpoint), "timeout", "worker_unresponsive", "unknown")
        await eventually_async(lambda: not is_running(worker))
        await eventually_async(lambda: not is_running(server))


async def test_a_worker_that_hangs_idle_misses_its_beats_and_is_killed() -> None:
    """Nobody would notice before the next call."""
    async with opened(pretend("echo")) as endpoint:
        server, worker = pids_of(endpoint)
        os.kill(worker, signal.SIGSTOP)
        await eventually_async(lambda: endpoint.phase == "faulted", within_s=BACKSTOP_S)
        assert_fault(loss_of(endpoint), "timeout", "worker_unresponsive", "unknown", "silent for")
        await eventually_async(lambda: not is_running(worker))
        await eventually_async(lambda: not is_running(server))


@pytest.mark.parametrize("victim", ["server", "worker"])
async def test_the_fleet_starts_again_what_died(victim: str) -> None:
    """One crash must not cost the user a tool for the rest of the day."""
    async with running_fleet(pretend("echo", restart=SOON)) as fleet:
        endpoint = fleet.endpoint("echo")
        assert endpoint is not None
        await say(endpoint)
        server, worker = pids_of(endpoint)
        os.kill(server if victim == "server" else worker, signal.SIGKILL)
        status = await settled(fleet, "echo", "ready", restarts=1)
        assert status.pid not in (server, None)
        heir = fleet.endpoint("echo")
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
    async with running_fleet(stdio_config("dying", ["sh", "-c", program], restart=policy)) as fleet:
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


async def test_what_forked_away_from_a_server_dies_with_it(tmp_path: Path) -> None:
    """A daemonised grandchild in a session of its own is the hardest to find."""
    pid_file = tmp_path / "pids"
    async with opened(hostile("daemonise", "--pid-file", str(pid_file))) as endpoint:
        await say(endpoint)
        await eventually_async(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
        (daemon,) = map(int, pid_file.read_text().split())
        assert is_running(daemon)
    assert not is_running(daemon)


async def test_children_that_hold_a_dead_servers_pipes_do_not_hide_its_death(tmp_path: Path) -> None:
    """The pipes stay open, and still the server is gone."""
    pid_file = tmp_path / "pids"
    async with opened(hostile("fork_children", "--pid-file", str(pid_file))) as endpoint:
        fault = await fault_of(endpoint.invoke("echo", {"text": "hello"}))
        assert_fault(fault, "tool_error", "exited", "unknown", "exited with status 0")
    assert_gone(map(int, pid_file.read_text().split()))


async def test_a_killed_workers_daemons_die_too(tmp_path: Path) -> None:
    """The worker can no longer sweep; the zygote does."""
    pid_file = tmp_path / "pids"
    async with opened(hostile("daemonise", "--pid-file", str(pid_file))) as endpoint:
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


async def test_calls_in_flight_end_when_their_endpoint_is_closed() -> None:
    """They would else wait for an answer that nobody will give."""
    async with opened(pretend("echo")) as endpoint:
        faults = []

        async def call() -> None:
            faults.append(await fault_of(endpoint.invoke("hang")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            await endpoint.invoke("add", {"a": 1, "b": 1})
            await endpoint.close()
    assert_fault(faults[0], "tool_error", "closed", "unknown")
