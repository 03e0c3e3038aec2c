"""Which processes outlive a server that is stopped."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest
from support.sandbox.machine_facts import LINUX_ONLY

from quarterdeck_protocol.contract import EndpointPhase, EndpointStatus
from quarterdeck_pytest.supervisor.server_processes import watch_ends

pytestmark = [LINUX_ONLY, pytest.mark.process]

KEEPER = """
import os, signal, subprocess, sys
from quarterdeck_sandbox import adopt_orphans
adopt_orphans()
program = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=0, stdout=1)
program.wait()
os.killpg(0, signal.SIGKILL)
"""
"""Ends all of its group as soon as the program has ended, as a sandbox does."""

LEAVES = """
import subprocess, sys
left = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], stdin=subprocess.DEVNULL, stdout=2)
print(left.pid, flush=True)
sys.stdin.read()
"""

ENDS_ITS_CHILD = """
import subprocess, sys
left = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, stdout=2)
print(left.pid, flush=True)
sys.stdin.read()
"""

STAYS = """
import os, signal
print(os.getpid(), flush=True)
signal.pause()
"""


@contextmanager
def a_server(program: str) -> Iterator[tuple[EndpointStatus, "subprocess.Popen[bytes]", int]]:
    """A server in a tree of its own, its keeper, and the id of the process that it names."""
    with subprocess.Popen(
        [sys.executable, "-c", KEEPER, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as keeper:
        try:
            assert keeper.stdout is not None
            named = int(keeper.stdout.readline())
            [first] = psutil.Process(keeper.pid).children()
            yield EndpointStatus("notes", EndpointPhase.READY, 0, pid=first.pid, worker_pid=os.getpid()), keeper, named
        finally:
            with suppress(ProcessLookupError):
                os.killpg(keeper.pid, signal.SIGKILL)


def outlived(status: EndpointStatus, keeper: "subprocess.Popen[bytes]") -> list[str]:
    [watch] = watch_ends([status])
    assert keeper.stdin is not None
    keeper.stdin.close()
    return asyncio.run(watch.outlived())


def test_a_process_that_outlives_its_server_is_named_though_the_sandbox_ends_it() -> None:
    """A server would leave processes behind wherever nothing confines it, and its author never see that here."""
    with a_server(LEAVES) as (status, keeper, named):
        [line] = outlived(status, keeper)
        assert line.startswith(f"process {named} ({sys.executable} -c import signal")
        assert line.endswith(") of server 'notes', which outlived it: its sandbox ended it")
        assert keeper.wait() == -signal.SIGKILL


def test_a_process_that_ends_with_its_server_is_none() -> None:
    """A test would fail for a helper that ends as its pipe does."""
    with a_server(ENDS_ITS_CHILD) as (status, keeper, _):
        assert outlived(status, keeper) == []
        assert keeper.wait() == -signal.SIGKILL


def test_a_server_that_does_not_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its worker could not end it in time: what keeps the tree would stay stopped."""
    monkeypatch.setattr("quarterdeck_pytest.supervisor.server_processes.ENDING_S", 0.01)
    with a_server(STAYS) as (status, keeper, named):
        assert outlived(status, keeper) == []
        os.kill(named, signal.SIGKILL)
        assert keeper.wait() == -signal.SIGKILL


def test_servers_that_do_not_run_have_no_end_to_watch() -> None:
    """A run would end in an error for each server that has no process."""
    gone = EndpointStatus("gone", EndpointPhase.FAULTED, 0, pid=2**22 + 1, worker_pid=os.getpid())
    remote = EndpointStatus("remote", EndpointPhase.READY, 0)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bare:
        ours = EndpointStatus("bare", EndpointPhase.READY, 0, pid=bare.pid, worker_pid=os.getpid())
        assert watch_ends([gone, remote, ours]) == []
        bare.communicate()
