"""Servers and workers that die or hang: whoever waits is told at once, and how it was."""

import os
import signal
import sys

import anyio
import psutil
import pytest
from support.processes.leftovers import is_running
from support.processes.programs import SERVERS
from support.sandbox.machine_facts import NO_INTERNET_ALONE
from support.servers.real_endpoints import (
    SHOWS_SCRIPTS,
    assert_fault,
    fault_of,
    opened,
    pids_of,
    pretend,
    say,
    stdio_config,
)
from support.waiting import eventually_async

from quarterdeck.interop import ProtocolFault, ServerEndpointImpl
from quarterdeck_protocol.policy_values import NetworkMode
from quarterdeck_sandbox.doctor.probe import known_machine

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("undisturbed")]

CRASHING = """
import os, sys
sys.path.insert(0, sys.argv[1])
import echo, tools, wire

def crash(call):
    wire.print_error("out of cheese")
    os._exit(7)

tools.TOOLS["crash"] = (tools.TOOLS["crash"][0], crash)
wire.serve(echo.handle)
"""
"""The echo server, but it says why it dies."""


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
        after = await fault_of(endpoint.invoke("echo", {"text": "again"}))
        assert_fault(after, "not_connected", "not_connected", "not_sent", "is faulted")


async def test_a_server_that_exits_in_a_call_leaves_its_status_and_last_words() -> None:
    """A traceback on stderr is the best explanation there is."""
    argv = [sys.executable, "-c", CRASHING, str(SERVERS)]
    async with opened(stdio_config("crashing", argv, sandbox=SHOWS_SCRIPTS)) as endpoint:
        fault = await fault_of(endpoint.invoke("crash"))
        assert_fault(fault, "tool_error", "exited", "unknown", "exited with status 7")
        assert fault.dossier is not None
        assert fault.dossier.exit_status == 7
        assert "out of cheese" in fault.dossier.stderr_tail


async def test_a_server_whose_uplink_is_killed_is_lost_with_the_reason() -> None:
    """It would look ready, with the internet in its receipt, and reach nobody."""
    if not known_machine().gives_internet:
        pytest.skip(NO_INTERNET_ALONE)
    policy = SHOWS_SCRIPTS.model_copy(update={"network": NetworkMode.INTERNET})
    async with opened(pretend("echo", sandbox=policy)) as endpoint:
        await say(endpoint)
        server, worker = pids_of(endpoint)
        (helper,) = (
            child.pid for child in psutil.Process(worker).children() if child.name() in {"slirp4netns", "pasta"}
        )
        os.kill(helper, signal.SIGKILL)
        await eventually_async(lambda: endpoint.phase == "faulted")
        assert_fault(loss_of(endpoint), "transport", "network_lost", "unknown", "because its network was gone")
        await eventually_async(lambda: not is_running(server))


async def test_a_worker_that_dies_idle_takes_its_server_along() -> None:
    """A server without its worker would run on unseen."""
    async with opened(pretend("echo")) as endpoint:
        await say(endpoint)
        server, worker = pids_of(endpoint)
        os.kill(worker, signal.SIGKILL)
        await eventually_async(lambda: endpoint.phase == "faulted")
        assert_fault(loss_of(endpoint), "transport", "worker_lost", "unknown", "killed by signal 9")
        await eventually_async(lambda: not is_running(server))


async def test_a_worker_that_hangs_is_killed_when_a_deadline_passes() -> None:
    """It answers for the deadline; the supervisor's own follows two seconds later."""
    async with opened(pretend("echo", call_timeout_s=0.5)) as endpoint:
        server, worker = pids_of(endpoint)
        fault = await fault_in_call(endpoint, worker, signal.SIGSTOP)
        assert_fault(fault, "timeout", "worker_unresponsive", "unknown")
        assert_fault(loss_of(endpoint), "timeout", "worker_unresponsive", "unknown")
        await eventually_async(lambda: not is_running(worker))
        await eventually_async(lambda: not is_running(server))
