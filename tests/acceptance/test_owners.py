"""No process outlives its owner: the zygote dies, or the whole supervisor does."""

import json
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
import psutil
import pytest
from support.processes.leftovers import assert_gone, is_running, no_leftovers
from support.processes.programs import SERVERS, server_argv
from support.processes.running import DEADLINE_S, python_child
from support.processes.zygotes import started_anew
from support.servers.real_endpoints import hostile, opened, pids_of, pretend, say
from support.waiting import eventually_async

from quarterdeck.fleet.workers import interpreters, placement
from quarterdeck.interop import BridgeConfig, ServerFleetImpl, start_server_fleet
from quarterdeck_protocol.configs import RestartPolicy

PATIENCE_S: Final = 90.0
"""With three processes that import everything anew on a machine that is busy with other tests; none needs a tenth."""

SUPERVISOR = """
import asyncio, json, sys
from quarterdeck.interop import BridgeConfig, StdioServerConfig, start_server_fleet

async def main():
    servers = tuple(
        StdioServerConfig(id=name, command=argv[0], args=tuple(argv[1:]), sandbox=sandbox)
        for name, (argv, sandbox) in json.loads(sys.argv[1]).items()
    )
    fleet = await start_server_fleet(BridgeConfig(servers=servers))
    said = [(await endpoint.invoke("echo", {"text": "hello"})).content for endpoint in fleet.endpoints()]
    print(json.dumps([[status.pid, status.worker_pid] for status in fleet.status().values()]), flush=True)
    print(json.dumps(said), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    with no_leftovers():
        yield


@pytest.fixture(scope="module", autouse=True)
def _zygotes_are_started_anew() -> Iterator[None]:
    """As everybody has them: who is whose child is what this is about."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreters, "isolated", started_anew)
        yield


TRUSTED: Final = {"preset": "trusted"}
CONFINED: Final = {"preset": "standard", "read": [str(SERVERS)]}

Rows = Mapping[str, tuple[list[str], dict[str, object]]]
"""Id -> command and sandbox."""


@contextmanager
def supervisor_of(servers: Rows) -> Iterator[tuple[int, list[int]]]:
    """A supervisor whose servers have answered, killed at the end of the block; its pid, theirs and the workers'."""
    with python_child(SUPERVISOR, json.dumps(servers), deadline_s=DEADLINE_S) as supervisor:
        try:
            pids = [pid for pair in json.loads(supervisor.read_line()) for pid in pair]
            assert json.loads(supervisor.read_line()) == [[{"type": "text", "text": "hello"}]] * len(servers)
            yield supervisor.pid, pids
        finally:
            supervisor.kill()


def zygote_of(pid: int) -> int:
    """The zygote of the supervisor `pid`; its workers, which are forks, have the same command line."""
    (zygote,) = (child for child in psutil.Process(pid).children() if "quarterdeck_worker.zygote" in child.cmdline())
    return zygote.pid


@pytest.fixture(scope="module")
async def shared_fleet(own_directories: Path, _nothing_is_left_behind: None) -> AsyncIterator[ServerFleetImpl]:
    """Servers that hold on to life, beside one that does not; whoever kills some waits until all are there again."""
    soon = RestartPolicy(backoff_s=0.05, backoff_max_s=0.05, max_restarts=100)
    servers = (pretend("echo", restart=soon), hostile("daemonise", restart=soon), hostile("ignores_term", restart=soon))
    with anyio.fail_after(PATIENCE_S):
        fleet = await start_server_fleet(BridgeConfig(servers=servers))
    yield fleet
    with anyio.fail_after(PATIENCE_S):
        await fleet.tear_down()


@pytest.fixture
async def fleet(shared_fleet: ServerFleetImpl) -> ServerFleetImpl:
    """The same, and what a test before left broken is started again: it fails alone."""
    for server, status in shared_fleet.status().items():
        if status.phase != "ready":
            await shared_fleet.restart(server)
    await eventually_async(lambda: {phase for phase, _ in restarts_of(shared_fleet)} == {"ready"}, PATIENCE_S)
    return shared_fleet


def restarts_of(fleet: ServerFleetImpl) -> list[tuple[str, int]]:
    """Phase and number of restarts of each server."""
    return [(status.phase, status.restarts) for status in fleet.status().values()]


@pytest.mark.parametrize("victims", [("worker",), ("zygote",)], ids=", ".join)
async def test_what_is_killed_takes_all_below_it_along_and_all_are_started_again(
    fleet: ServerFleetImpl, victims: tuple[str, ...]
) -> None:
    """A sandbox would go on with nobody to end it; a server would stay gone, or a newcomer hear of the loss."""
    before = restarts_of(fleet)
    pids = [pid for endpoint in fleet.endpoints() for pid in pids_of(endpoint)]
    zygote = zygote_of(os.getpid())
    below = {child.pid for worker in pids[1::2] for child in psutil.Process(worker).children(recursive=True)}
    assert below > set(pids[::2])
    assert len(below) > 2 * len(before)
    doomed = {"zygote": [zygote], "worker": pids[1::2]}
    for number in (number for victim in victims for number in doomed[victim]):
        os.kill(number, signal.SIGKILL)
    await eventually_async(lambda: not any(map(is_running, below | set(pids))), PATIENCE_S, f"the end of {below}")
    if "zygote" in victims:
        # Whoever had no worker of it must not notice at all.
        async with opened(pretend("echo", server_id="later")) as later:
            await say(later)
    await eventually_async(
        lambda: restarts_of(fleet) == [("ready", restarts + 1) for _, restarts in before], PATIENCE_S, "the restarts"
    )
    for endpoint in fleet.endpoints():
        await say(endpoint)
    assert (zygote_of(os.getpid()) != zygote) is ("zygote" in victims)


@pytest.mark.nightly
async def test_a_zygote_that_is_stopped_is_replaced_and_its_servers_come_back(
    fleet: ServerFleetImpl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that dies then would stay gone, and all others could never be started again."""
    monkeypatch.setattr(placement, "LOOK_S", 0.05)
    monkeypatch.setattr(placement, "REPORT_S", 0.2)
    before = restarts_of(fleet)
    zygote = zygote_of(os.getpid())
    pids = [pid for endpoint in fleet.endpoints() for pid in pids_of(endpoint)]
    os.kill(zygote, signal.SIGSTOP)
    os.kill(pids[1], signal.SIGKILL)
    await eventually_async(lambda: not any(map(is_running, (zygote, *pids))), PATIENCE_S, "the end of the zygote")
    await eventually_async(
        lambda: restarts_of(fleet) == [("ready", restarts + 1) for _, restarts in before], PATIENCE_S, "the restarts"
    )
    for endpoint in fleet.endpoints():
        await say(endpoint)


def test_a_killed_supervisor_leaves_no_process_and_its_traces_are_swept_at_the_next_start(
    own_directories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server, no daemon of one, no sandbox, no worker, no zygote: users kill what hangs; sockets would pile up."""
    root = own_directories / "run-2"
    monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", str(root))
    pid_file = tmp_path / "pids"
    commands = {
        "echo": server_argv("echo"),
        "stubborn": server_argv("hostile", "ignores_term"),
        "daemon": server_argv("hostile", "daemonise"),
        "flood": server_argv("hostile", "notification_flood"),
    }
    confined: Rows = {name: (argv, CONFINED) for name, argv in commands.items()}
    trusted: Rows = {f"trusted-{name}": (argv, TRUSTED) for name, argv in commands.items() if name != "daemon"}
    daemon = [*commands["daemon"], "--pid-file", str(pid_file)]
    with supervisor_of({**confined, **trusted, "trusted-daemon": (daemon, TRUSTED)}) as (pid, pids):
        pids.append(zygote_of(pid))
        (stray,) = map(int, pid_file.read_text().split())
        family = {child.pid for child in psutil.Process(pid).children(recursive=True)}
        assert family >= {*pids, stray}
        # There is another daemon, which is confined and tells nobody its pid.
        assert len(family) > len(pids) + 1
        stale = os.listdir(root)
        assert len(stale) == 1
    assert_gone(family, PATIENCE_S)
    assert os.listdir(root) == stale

    async def start_again() -> None:
        fleet = await start_server_fleet(BridgeConfig(servers=()))
        assert len(os.listdir(root)) == 1
        assert os.listdir(root) != stale
        await fleet.tear_down()

    anyio.run(start_again)
    assert os.listdir(root) == []


def oom_score(pid: int) -> int:
    """The higher, the earlier a process is killed when memory runs out."""
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


@pytest.mark.nightly
def test_servers_are_killed_first_when_memory_runs_out_and_all_that_is_stopped_with_its_supervisor(
    own_directories: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that eats the memory would take all others along; or what is stopped, and hears of nothing, stay."""
    monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", str(own_directories / "run-3"))
    rows: Rows = {"echo": (server_argv("echo"), CONFINED), "trusted": (server_argv("echo"), TRUSTED)}
    with supervisor_of(rows) as (pid, pids):
        ours, zygote, *rest = map(oom_score, (pid, zygote_of(pid), *pids))
        family = {child.pid for child in psutil.Process(pid).children(recursive=True)}
        assert len(family) >= 7
        for member in family:
            os.kill(member, signal.SIGSTOP)
    assert_gone(family, PATIENCE_S)
    servers, workers = rest[::2], rest[1::2]
    assert ours == oom_score(os.getpid())
    assert ours < zygote < min(workers) <= max(workers) < min(servers)


@pytest.mark.nightly
def test_fresh_interpreters_serve_as_forks_do_and_end_with_a_killed_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    """There would be no Quarterdeck where fork does not serve; and there is no zygote to tell a worker of the end."""
    monkeypatch.setenv("QUARTERDECK_SPAWN", "fresh")
    servers: Rows = {
        "echo": (server_argv("echo"), CONFINED),
        "stubborn": (server_argv("hostile", "ignores_term"), CONFINED),
    }
    with supervisor_of(servers) as (pid, pids):
        assert len(pids) == 4
        assert all(map(is_running, pids))
        # No worker is a fork: each is a program that the supervisor started.
        children = psutil.Process(pid).children()
        assert {child.pid for child in children if "quarterdeck_worker.main" in child.cmdline()} == set(pids[1::2])
    assert_gone(pids, PATIENCE_S)
