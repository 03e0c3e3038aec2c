"""The end of a login: signals to all that its user runs, and no runtime directory any more; then the next login."""

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
import pytest
from support.clients.raw_client import PeerClosedError, RawStdioClient
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, quarterdeck_forked, quarterdeck_json_forked
from support.processes.leftovers import assert_gone
from support.serves.daemons import door, shown_status
from support.serves.native_serves import make_project, native
from support.waiting import eventually

from quarterdeck.config.places.paths import runtime_dir

POLITE: Final = (signal.SIGHUP, signal.SIGTERM, signal.SIGCONT)
"""What systemd sends to all of a session's scope (`SendSIGHUP=yes`), or a shell and its terminal one after another."""


pytestmark = pytest.mark.usefixtures("by_the_daemon")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A server that ends with its input, and one that heeds no signal."""
    return write_config(tmp_path / "mcp.json", s=row("echo"), deaf=row("hostile", "ignores_term"))


def windows(config: Path, project: Path) -> list[RawStdioClient]:
    calls = (("s__hang", {}), ("bash", {"command": "sleep 1000"}))
    found = [door(config), door(config, *native(project))]
    for client, (tool, arguments) in zip(found, calls, strict=True):
        client.initialize()
        client.list_tools()
        client.send("tools/call", {"name": tool, "arguments": arguments})
    eventually(lambda: [each["calls"] for each in (shown_status() or {})["clients"]] == [1, 1], DEADLINE_S)
    return found


def send(processes: list[psutil.Process], *numbers: signal.Signals) -> None:
    for process in processes:
        for number in numbers:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)


def check_next_login(config: Path) -> None:
    assert quarterdeck_json_forked("ledger", "verify")["intact"]
    with door(config) as client:
        client.initialize()
        assert client.call("s__echo", text="back")["content"][0]["text"] == "back"


@pytest.mark.nightly
def test_nothing_outlives_a_login_whose_processes_are_all_ended(config: Path, tmp_path: Path) -> None:
    """Servers and commands would run on for nobody; or the next login find a damaged ledger, or a stale socket."""
    clients = windows(config, make_project(tmp_path / "project"))
    daemon = psutil.Process((shown_status() or {})["pid"])
    doors_there = [psutil.Process(client.process.pid) for client in clients]
    family = [daemon, *daemon.children(recursive=True), *doors_there]
    send(family, *POLITE, signal.SIGKILL)
    assert_gone([process.pid for process in family], DEADLINE_S)
    for client in clients:
        with suppress(PeerClosedError, TimeoutError):
            client.close()
    assert shown_status() is None
    shutil.rmtree(runtime_dir(), ignore_errors=True)  # of `/run/user/UID`, by logind
    check_next_login(config)


@pytest.mark.nightly
def test_a_daemon_that_outlives_the_login_serves_the_next_one(config: Path, tmp_path: Path) -> None:
    """With lingering, or where the system kills no user's processes, windows would go on in it as ghosts."""
    clients = windows(config, make_project(tmp_path / "project"))
    daemon = (shown_status() or {})["pid"]
    assert quarterdeck_forked("up").returncode == 0
    send([psutil.Process(client.process.pid) for client in clients], *POLITE)
    assert [client.process.wait(DEADLINE_S) for client in clients] == [0, 0]
    for client in clients:
        client.close()
    eventually(lambda: not (shown_status() or {})["clients"], DEADLINE_S)
    check_next_login(config)
    assert (shown_status() or {})["pid"] == daemon


@pytest.mark.nightly
def test_a_door_that_was_told_to_end_starts_no_daemon_when_its_own_is_killed(config: Path) -> None:
    """At the end of a login one would be started as the last thing, outside of all that is ended."""
    with door(config) as client:
        client.initialize()
        client.list_tools()
        daemon = psutil.Process((shown_status() or {})["pid"])
        below = [process.pid for process in daemon.children(recursive=True)]
        os.kill(daemon.pid, signal.SIGSTOP)
        client.process.terminate()
        eventually(lambda: not _is_pending(client.process.pid, signal.SIGTERM), DEADLINE_S)
        daemon.kill()
        assert client.process.wait(DEADLINE_S) == 0
        assert_gone([daemon.pid, *below], DEADLINE_S)
        assert shown_status() is None
    check_next_login(config)


def _is_pending(pid: int, number: int) -> bool:
    """Whether a signal waits to be taken."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(("SigPnd:", "ShdPnd:")) and int(line.split()[1], 16) >> (number - 1) & 1:
            return True
    return False
