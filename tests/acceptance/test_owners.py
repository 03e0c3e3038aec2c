"""No process outlives its owner: the zygote dies, or the whole supervisor does."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
import psutil
import pytest
from support.leftovers import assert_gone, eventually_async, is_running, no_leftovers
from support.programs import SERVERS, server_argv
from support.real import BACKSTOP_S, opened, pretend, say

from quarterdeck.interop import BridgeConfig, start_server_fleet
from quarterdeck_protocol.configs import RestartPolicy

SUPERVISOR = """
import asyncio, json, sys
from quarterdeck.interop import BridgeConfig, StdioServerConfig, start_server_fleet

async def main():
    rows = json.loads(sys.argv[1])
    servers = tuple(
        StdioServerConfig(id=name, command=argv[0], args=tuple(argv[1:]), sandbox=json.loads(sys.argv[2]))
        for name, argv in rows.items()
    )
    fleet = await start_server_fleet(BridgeConfig(servers=servers))
    print(json.dumps([[status.pid, status.worker_pid] for status in fleet.status().values()]), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    with no_leftovers():
        yield


TRUSTED: Final = {"preset": "trusted"}
CONFINED: Final = {"preset": "standard", "read": [str(SERVERS)]}


@contextmanager
def supervisor_of(
    servers: Mapping[str, Sequence[str]], sandbox: Mapping[str, object] = CONFINED
) -> Iterator[tuple[int, list[int]]]:
    """A supervisor of these commands, killed at the end of the block; its pid, and those of servers and workers."""
    command = [sys.executable, "-c", SUPERVISOR, json.dumps(servers), json.dumps(sandbox)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        try:
            yield supervisor.pid, [pid for pair in json.loads(supervisor.stdout.readline()) for pid in pair]
        finally:
            supervisor.kill()


def zygote_of(pid: int) -> int:
    """The zygote of the supervisor `pid`; its workers, which are forks, have the same command line."""
    (zygote,) = (child for child in psutil.Process(pid).children() if "quarterdeck_worker.zygote" in child.cmdline())
    return zygote.pid


@pytest.mark.anyio
async def test_a_killed_zygote_takes_its_workers_along_and_all_are_started_again() -> None:
    """Every server is gone at once; none may stay gone."""
    soon = RestartPolicy(backoff_s=0.05)
    servers = tuple(pretend("echo", server_id=f"echo-{n}", restart=soon) for n in range(3))
    fleet = await start_server_fleet(BridgeConfig(servers=servers))
    try:
        pids = [pid for status in fleet.status().values() for pid in (status.pid, status.worker_pid) if pid]
        assert len(pids) == 6
        zygote = zygote_of(os.getpid())
        os.kill(zygote, signal.SIGKILL)
        await eventually_async(lambda: not any(map(is_running, pids)))
        await eventually_async(
            lambda: all(status.phase == "ready" and status.restarts == 1 for status in fleet.status().values()),
            within_s=BACKSTOP_S,
            what="three restarts",
        )
        for endpoint in fleet.endpoints():
            await say(endpoint)
        assert zygote_of(os.getpid()) != zygote
    finally:
        with anyio.fail_after(BACKSTOP_S):
            await fleet.tear_down()


@pytest.mark.anyio
async def test_an_endpoint_opens_after_the_zygote_was_killed_idle() -> None:
    """The loss of a process that nobody uses must cost nobody a fault."""
    async with opened(pretend("echo")):
        zygote = zygote_of(os.getpid())
        os.kill(zygote, signal.SIGKILL)
        await eventually_async(lambda: not is_running(zygote))
        async with opened(pretend("echo", server_id="later")) as later:
            await say(later)


@pytest.mark.parametrize("sandbox", [TRUSTED, CONFINED], ids=["trusted", "standard"])
def test_a_killed_supervisor_leaves_no_process(sandbox: dict[str, object], tmp_path: Path) -> None:
    """No server, no daemon of a server, no sandbox, no worker, no zygote: users kill what hangs."""
    pid_file = tmp_path / "pids"
    servers = {
        "echo": server_argv("echo"),
        "stubborn": server_argv("hostile", "ignores_term"),
        "daemon": server_argv("hostile", "daemonise", *(["--pid-file", str(pid_file)] if sandbox is TRUSTED else [])),
        "flood": server_argv("hostile", "notification_flood"),
    }
    with supervisor_of(servers, sandbox) as (pid, pids):
        pids.append(zygote_of(pid))
        if sandbox is TRUSTED:
            pids.extend(map(int, pid_file.read_text().split()))
        family = {child.pid for child in psutil.Process(pid).children(recursive=True)}
        assert family >= set(pids)
        assert len(family) > 2 * len(servers) + 1
    assert_gone(family)


@pytest.mark.parametrize("victims", [("worker",), ("zygote",), ("zygote", "worker")], ids=", ".join)
def test_what_is_killed_takes_its_sandboxes_along(victims: tuple[str, ...]) -> None:
    """A sandbox whose owner is gone would go on, with nobody to end it."""
    servers = {"daemon": server_argv("hostile", "daemonise"), "stubborn": server_argv("hostile", "ignores_term")}
    with supervisor_of(servers) as (pid, pids):
        zygote = zygote_of(pid)
        below = {child.pid for worker in psutil.Process(zygote).children() for child in worker.children(recursive=True)}
        assert len(below) > len(servers)
        doomed = {"zygote": [zygote], "worker": pids[1::2]}
        for number in (number for victim in victims for number in doomed[victim]):
            os.kill(number, signal.SIGKILL)
        assert_gone(below)


def test_a_killed_supervisor_leaves_no_process_where_fork_does_not_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker in an interpreter of its own has no zygote to tell it."""
    monkeypatch.setenv("QUARTERDECK_SPAWN", "fresh")
    servers = {"echo": server_argv("echo"), "stubborn": server_argv("hostile", "ignores_term")}
    with supervisor_of(servers) as (_, pids):
        assert len(pids) == 4
        assert all(map(is_running, pids))
    assert_gone(pids)


@pytest.mark.anyio
async def test_a_fresh_interpreter_serves_as_a_fork_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """There would be no Quarterdeck where fork does not serve."""
    monkeypatch.setenv("QUARTERDECK_SPAWN", "fresh")
    async with opened(pretend("echo")) as endpoint:
        await say(endpoint)


@pytest.mark.anyio
async def test_what_a_killed_supervisor_left_on_disk_is_swept_at_the_next_start(own_directories: Path) -> None:
    """Sockets and locks of the dead would pile up."""
    root = own_directories / "run"
    with supervisor_of({}):
        stale = os.listdir(root)
        assert len(stale) == 1
    async with opened(pretend("echo")):
        assert len(os.listdir(root)) == 1
        assert os.listdir(root) != stale
    assert os.listdir(root) == []
