"""Several projects, one daemon: what their decks share of the user's own servers, and what each has for itself."""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from support.clients.raw_client import RawStdioClient
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, PATIENT, popen_forked, quarterdeck_forked, quarterdeck_json_forked
from support.processes.leftovers import assert_gone, is_running
from support.processes.programs import SERVERS, server_argv
from support.serves.daemons import doors_at_home
from support.waiting import eventually

from quarterdeck.daemon.client import ask_daemon
from quarterdeck.daemon.messages import Order
from quarterdeck.daemon.place import daemon_dir


@pytest.fixture
def folder(own_directories: Path, tmp_path: Path) -> Iterator[Path]:
    """A home with one server in the user's file, beside which projects may lie; no daemon is left at the end."""
    with doors_at_home(tmp_path, s=row("echo")):
        yield tmp_path


def window(project: Path) -> RawStdioClient:
    """An editor's window on this project, greeted and with its tools listed."""
    client = RawStdioClient(("serve", *PATIENT), deadline_s=DEADLINE_S, cwd=project, popen=popen_forked)
    client.initialize()
    client.list_tools()
    return client


def pids_in(project: Path) -> dict[str, int | None]:
    """The process of each server, as `ps` shows it in this project."""
    return {each["id"]: each["pid"] for each in quarterdeck_json_forked("ps", cwd=project)["servers"]}


def recorded(project: Path) -> list[str]:
    """Every event of the server `s`, as it is kept."""
    words = ("ledger", "log", "--server", "s", "--lines", "1000", "--json")
    lines = quarterdeck_forked(*words, cwd=project).stdout.splitlines()
    return [json.dumps(json.loads(line)["event"]) for line in lines]


def kinds(events: Iterable[str]) -> Counter[str]:
    return Counter(json.loads(event)["kind"] for event in events)


def make_project(folder: Path) -> Path:
    """A project with a server of its own, which a person has approved."""
    scripts = shutil.copytree(SERVERS, folder / "servers")
    program, *args = server_argv("echo")
    words = [word.replace(str(SERVERS), str(scripts)) for word in args]
    write_config(folder / ".mcp.json", p={"command": program, "args": words, "sandbox": {"read": [str(scripts)]}})
    assert quarterdeck_forked("trust", "approve", "--project", "--yes", cwd=folder).returncode == 0
    return folder


def test_projects_share_the_users_servers_and_nothing_of_their_own(folder: Path) -> None:
    """The user's servers would start once for each project, or what is blocked or owned in one be called in another."""
    one, two = make_project(folder / "one"), make_project(folder / "two")
    with window(one) as first, window(two) as second:
        for client in (first, second):
            for server in ("s", "p"):
                assert client.call(f"{server}__echo", text="hello")["content"][0]["text"] == "hello"
        assert len(ask_daemon(daemon_dir(), Order.STATUS).decks) == 2
        before, beside = pids_in(one), pids_in(two)
        assert before["s"] == beside["s"]
        assert before["p"] != beside["p"]
        events = Counter(recorded(one))
        assert set(events.values()) == {1}, events
        assert kinds(events)["began"] == 1

        assert quarterdeck_forked("trust", "block", "s", "echo", cwd=one).returncode == 0
        for client in (first, second):
            assert client.call("s__echo", text="blocked?")["isError"]

        quarterdeck_json_forked("restart", "s", cwd=two)
        eventually(lambda: pids_in(one)["s"] not in (None, before["s"]), DEADLINE_S)
        restarted = pids_in(one)["s"]
        assert restarted is not None
        assert pids_in(two) == {**beside, "s": restarted}

        first.close()
        eventually(lambda: len(ask_daemon(daemon_dir(), Order.STATUS).decks) == 1, DEADLINE_S)
        assert is_running(restarted)
        assert pids_in(two) == {**beside, "s": restarted}
    assert_gone([restarted], DEADLINE_S)
    told = kinds(recorded(two))
    assert (told["began"], told["ended"]) == (2, 2)
