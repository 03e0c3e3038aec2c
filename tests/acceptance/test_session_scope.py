"""A server that each session has for itself, over doors and HTTP: which process answers whom, and what is left."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clients.http_clients import connected
from support.clients.raw_client import RawStdioClient
from support.config.places import row
from support.processes.commands import DEADLINE_S, PATIENT, popen_forked, quarterdeck_forked, quarterdeck_json_forked
from support.processes.leftovers import assert_gone
from support.serves.daemons import doors_at_home
from support.waiting import eventually

from quarterdeck.cli.configure.secret import read_token, token_path
from quarterdeck.config.places.paths import state_dir
from quarterdeck.daemon.client import ask_daemon
from quarterdeck.daemon.messages import Order
from quarterdeck.daemon.place import daemon_dir


@pytest.fixture
def folder(own_directories: Path, tmp_path: Path) -> Iterator[Path]:
    """A home whose server is each session's own; no daemon is left at the end."""
    with doors_at_home(tmp_path, s=row("echo", scope="session")):
        yield tmp_path


def window(folder: Path, *words: str) -> RawStdioClient:
    client = RawStdioClient(("serve", *PATIENT, *words), deadline_s=DEADLINE_S, cwd=folder, popen=popen_forked)
    client.initialize()
    client.list_tools()
    return client


def own_pids(folder: Path) -> list[int]:
    """The process of each session's own server, as `ps` shows them."""
    [server] = quarterdeck_json_forked("ps", cwd=folder)["servers"]
    return [each["pid"] for each in server["of_sessions"] if each["phase"] == "ready"]


def test_each_window_has_its_own_process_which_ends_with_it(folder: Path) -> None:
    """Two windows would type into one browser; or each that was closed leave one behind."""
    with window(folder) as one, window(folder) as two:
        assert own_pids(folder) == []  # nothing runs for a session before it calls something
        assert one.call("s__echo", text="a")["content"][0]["text"] == "a"
        [first] = own_pids(folder)
        assert two.call("s__echo", text="b")["content"][0]["text"] == "b"
        _, second = own_pids(folder)
        assert first != second
        assert "s of door" in quarterdeck_forked("ps", cwd=folder).stdout
        assert [each.own_servers for each in ask_daemon(daemon_dir(), Order.STATUS).clients] == [("s",), ("s",)]
        for each in (one, two):
            assert not each.call("s__echo", text="again").get("isError")
        assert own_pids(folder) == [first, second]

        assert one.call("s__crash", code=1)["isError"]
        eventually(lambda: len(own_pids(folder)) == 2 and own_pids(folder)[0] != first, DEADLINE_S)
        assert own_pids(folder)[1] == second
        one.close()
        eventually(lambda: own_pids(folder) == [second], DEADLINE_S)
        quarterdeck_json_forked("restart", "s", cwd=folder)
        assert_gone([second], DEADLINE_S)
        assert not two.call("s__echo", text="after").get("isError")
        assert quarterdeck_forked("trust", "block", "s", "add", cwd=folder).returncode == 0
        assert two.call("s__add", a=1, b=2)["isError"]
    assert quarterdeck_forked("down").returncode == 0
    with window(folder, "--own") as alone:
        assert not alone.call("s__echo", text="x").get("isError")


@pytest.mark.nightly
async def test_each_session_over_http_has_its_own_process(folder: Path) -> None:
    """Two programs would share what one of them has opened."""
    url = quarterdeck_json_forked("up", "--http", "127.0.0.1:0")["http"]["url"]
    owner = read_token(token_path())
    async with connected(url, "legacy", owner) as one, connected(url, "legacy", owner) as two:
        for each in (one, two):
            await each.list_tools()
            assert not (await each.call_tool("s__echo", {"text": "x"})).is_error
        assert [each.own_servers for each in ask_daemon(daemon_dir(), Order.STATUS).clients] == [("s",), ("s",)]
        pids = own_pids(state_dir())  # from where the deck of the user's own configuration is opened
        assert len(set(pids)) == 2
    assert_gone(pids, DEADLINE_S)
