"""Doors beside a daemon that they cannot reach and that has the ledger: each serves its client itself, as a visitor."""

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest
from support.clients.raw_client import RawStdioClient, RpcError
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, quarterdeck_forked, quarterdeck_json_forked
from support.processes.kept import Reused
from support.processes.leftovers import assert_gone, is_running
from support.serves.daemons import door, doors, shown_status
from support.waiting import eventually

from quarterdeck.config.places.paths import ledger_dir, state_dir
from quarterdeck.daemon import place, start
from quarterdeck.daemon.client import ask_daemon, wait_until_gone
from quarterdeck.daemon.messages import Order
from quarterdeck.daemon.place import daemon_dir
from quarterdeck.daemon.start import start_daemon

WAY_OUT: Final = "quarterdeck up --replace"


@pytest.fixture(scope="module", autouse=True)
def by_the_daemon(own_directories: Path) -> Iterator[None]:
    """Serves are doors here; no daemon is left, and nothing of one."""
    with doors():
        yield


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A server whose tools may be called at first sight, and one whose tools a person has to approve."""
    return write_config(tmp_path / "mcp.json", s=row("echo"), t=row("echo", trust="strict"))


@pytest.fixture(scope="module")
def kept(by_the_daemon: None) -> Iterator[Reused[int]]:
    reused = Reused(older_daemon, is_running)
    yield reused
    reused.close()


@pytest.fixture
def older(kept: Reused[int]) -> int:
    """The process of a daemon that speaks another protocol with doors, in a directory of that."""
    return kept.get()


@contextmanager
def older_daemon() -> Iterator[int]:
    pid = start_older_daemon()
    yield pid
    if is_running(pid):
        os.kill(pid, signal.SIGTERM)
        assert wait_until_gone(pid)


def start_older_daemon() -> int:
    older = "import quarterdeck.daemon.messages as m\nm.PROTOCOL = 0\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, "PROTOCOL", 0)
        patch.setattr(start, "_BOOT", start._BOOT + older)
        start_daemon(daemon_dir(), os.environ)
        return ask_daemon(daemon_dir(), Order.STAY).pid


def offered(client: RawStdioClient) -> set[str]:
    return {tool["name"] for tool in client.list_tools()}


def events() -> list[str]:
    return quarterdeck_forked("ledger", "events", "--json").stdout.splitlines()


def test_a_visitor_serves_by_what_is_approved_and_writes_nothing(config: Path, older: int) -> None:
    """After an upgrade no window would be served; or two processes write one ledger, and break its chain."""
    assert quarterdeck_forked("trust", "approve", "t", "--all", "-c", str(config)).returncode == 0
    before = events()
    with door(config) as client:
        assert client.initialize()["serverInfo"]["name"] == "quarterdeck"
        assert {name.partition("__")[0] for name in offered(client)} == {"s"}
        assert client.call("s__echo", text="alone")["content"][0]["text"] == "alone"
        held = client.call("t__echo", text="held")
        assert (held["isError"], "quarterdeck trust" in held["content"][0]["text"]) == (True, True)
        assert is_running(older)
        assert not daemon_dir().exists()
        said = [line for line in client.stderr_text().splitlines() if WAY_OUT in line]
        assert len(said) == 1
        assert f"another daemon (process {older}) has the ledger" in said[0]
    assert client.process.returncode == 0
    assert (events(), quarterdeck_forked("ledger", "calls", "--json").stdout) == (before, "")


@pytest.mark.nightly
def test_a_session_that_a_daemon_left_goes_on_as_a_visitors(config: Path, kept: Reused[int]) -> None:
    """A window that is open while another version takes over would lose its server, and never have its answers."""
    kept.close()
    with door(config) as client:
        client.initialize()
        tools = client.list_tools()
        under_way = client.send("tools/call", {"name": "s__hang", "arguments": {}})
        eventually(lambda: (shown_status() or {})["clients"][0]["calls"] == 1, DEADLINE_S)
        os.kill(client.process.pid, signal.SIGSTOP)
        found = shown_status()
        os.kill(found["pid"], signal.SIGKILL)
        assert_gone([found["pid"]])
        kept.get()
        os.kill(client.process.pid, signal.SIGCONT)

        lost = client.reply(under_way)["result"]["_meta"]["quarterdeck/fault"]
        assert (lost["code"], lost["delivery"]) == ("daemon_lost", "unknown")
        assert client.list_tools() == tools
        assert client.call("s__echo", text="on")["content"][0]["text"] == "on"
        assert (client.strays, client.junk) == ([], [])
        assert WAY_OUT in client.stderr_text()
    assert client.process.returncode == 0


@pytest.mark.nightly
def test_a_visitor_that_cannot_read_the_ledger_says_so(config: Path, older: int) -> None:
    """What was held would be offered by one who does not know of it."""
    with closing(sqlite3.connect(ledger_dir(state_dir()) / "ledger.db")) as database:
        (schema,) = database.execute("PRAGMA user_version").fetchone()
        database.execute("PRAGMA user_version = 99")
        try:
            with door(config) as client:
                with pytest.raises(RpcError, match="has schema 99"):
                    client.initialize()
                assert client.process.wait(DEADLINE_S) == 2
        finally:
            database.execute(f"PRAGMA user_version = {schema}")


@pytest.mark.nightly
def test_a_daemon_whose_doors_speak_another_protocol_is_replaced(config: Path, older: int) -> None:
    """After an upgrade no command would end the daemon of the time before."""
    refused = quarterdeck_forked("up")
    assert (refused.returncode, f"another daemon (process {older})" in refused.stderr) == (6, True)
    assert quarterdeck_json_forked("up", "--replace")["pid"] != older
    assert_gone([older])
    with door(config) as client:
        client.initialize()
        assert client.call("s__echo", text="anew")["content"][0]["text"] == "anew"
        assert WAY_OUT not in client.stderr_text()
    quarterdeck_json_forked("down")
