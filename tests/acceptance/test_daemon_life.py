"""The daemon behind the doors: how it ends, is ended and is replaced, and whom it belongs to."""

import json
import os
import shutil
import signal
from pathlib import Path

import psutil
import pytest
from support.clients.raw_client import RpcError
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, quarterdeck_forked, quarterdeck_json, quarterdeck_json_forked
from support.processes.leftovers import assert_gone, is_running
from support.serves.daemons import door, shown_status, wait_for_client
from support.waiting import eventually

from quarterdeck.daemon.place import daemon_dir
from quarterdeck.daemon.start import log_path

pytestmark = pytest.mark.usefixtures("by_the_daemon")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path / "mcp.json", s=row("echo"))


def test_a_new_daemon_takes_over_without_a_client_noticing(config: Path) -> None:
    """An upgrade would end every session."""
    with door(config) as client:
        client.initialize()
        tools = client.list_tools()
        before = shown_status()
        assert before is not None
        after = quarterdeck_json("up", "--replace")
        assert after["pid"] != before["pid"]
        assert not after["stays"]  # as the one before: a door had started it
        assert not is_running(before["pid"])
        assert client.list_tools() == tools
        assert client.call("s__echo", text="moved")["content"][0]["text"] == "moved"
        assert client.junk == []


@pytest.mark.nightly
def test_a_daemon_that_is_stopped_keeps_its_sessions_and_no_door_waiting(config: Path) -> None:
    """A suspended daemon would end every session; a window that is opened meanwhile would show nothing, for ever."""
    with door(config) as client:
        client.initialize()
        client.list_tools()
        found = shown_status()
        os.kill(found["pid"], signal.SIGSTOP)
        try:
            asked = client.send("tools/call", {"name": "s__echo", "arguments": {"text": "later"}})
            with door(config) as other:
                with pytest.raises(RpcError, match="the daemon does not answer; quarterdeck down ends it"):
                    other.initialize()
                assert other.process.wait(DEADLINE_S) == 6
        finally:
            os.kill(found["pid"], signal.SIGCONT)
        assert client.reply(asked)["result"]["content"][0]["text"] == "later"
        wait_for_client()


def test_the_daemon_ends_with_its_last_client(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that nobody uses would run until the next restart of the machine, or something of the daemon stay."""
    monkeypatch.setenv("QUARTERDECK_LINGER", "0")
    with door(config) as client:
        client.initialize()
        found = shown_status()
        assert not found["stays"]
    assert_gone([found["pid"]], DEADLINE_S)
    assert not daemon_dir().exists()


def test_a_daemon_that_is_told_to_end_lets_calls_end_and_a_second_signal_hurries_it(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart would cut what a team waits for, or nobody could end it sooner without losing answers."""
    monkeypatch.setenv("QUARTERDECK_DRAIN", "600")
    with door(config) as client:
        client.initialize()
        # Longer than without the variable.
        short, long = (client.send("tools/call", {"name": "s__slow", "arguments": {"seconds": s}}) for s in (2, 600))
        daemon = eventually(lambda: shown_status()["clients"][0]["calls"] == 2 and shown_status()["pid"])
        os.kill(daemon, signal.SIGTERM)
        assert client.reply(short)["result"]["content"][0]["text"] == "slept 2 s"
        os.kill(daemon, signal.SIGTERM)
        fault = client.reply(long)["result"]["_meta"]["quarterdeck/fault"]
        assert (fault["code"], fault["delivery"]) == ("shutting_down", "unknown")
        assert client.process.wait(DEADLINE_S) == 0
    assert_gone([daemon], DEADLINE_S)


def test_the_daemon_belongs_to_nobodys_terminal(config: Path) -> None:
    """An editor that ends its process group, or a terminal that is closed, would end everybody's servers."""
    with door(config, is_forked=False) as client:
        client.initialize()
        client.process.send_signal(signal.SIGHUP)
        found = shown_status()
        daemon = psutil.Process(found["pid"])
        assert os.getsid(daemon.pid) == daemon.pid or os.getsid(daemon.pid) not in (os.getsid(0), client.process.pid)
        assert daemon.terminal() is None
        assert daemon.cwd() == "/"
        os.kill(daemon.pid, signal.SIGHUP)
        assert client.call("s__echo", text="up")["content"][0]["text"] == "up"
    assert log_path().stat().st_mode & 0o777 == 0o600
    events = [json.loads(line)["event"] for line in log_path().read_text().splitlines()]
    assert any("the daemon listens" in event for event in events)


def test_a_daemon_whose_directory_was_removed_can_be_ended() -> None:
    """Every window would be told to end it with `down`, and `down` that none runs."""
    started = quarterdeck_json_forked("up")
    shutil.rmtree(daemon_dir())
    assert f"(process {started['pid']}) cannot be reached" in quarterdeck_forked("status").stdout
    refused = quarterdeck_forked("up")
    assert (refused.returncode, f"another daemon (process {started['pid']}) has the ledger" in refused.stderr) == (
        6,
        True,
    )
    assert quarterdeck_json_forked("down")["ended"]
    assert_gone([started["pid"]])


def test_own_does_without_the_daemon(config: Path) -> None:
    """A container, or a test, would leave a process behind that nobody asked for."""
    with door(config, "--own") as client:
        client.initialize()
        assert client.call("s__echo", text="alone")["content"][0]["text"] == "alone"
        assert shown_status() is None


def test_a_serve_beside_the_daemon_is_told_how_they_go_together(config: Path) -> None:
    """A person would end the daemon of all clients to have one that listens, which it can do itself."""
    with door(config) as client:
        client.initialize()
        over_http = quarterdeck_forked("serve", "--http", "127.0.0.1:0", "-c", str(config))
        alone = quarterdeck_forked("serve", "--own", "-c", str(config))
        for refused in (over_http, alone):
            assert refused.returncode == 2
            assert "--read-only" in refused.stderr
            assert "quarterdeck down" not in refused.stderr
        assert 'quarterdeck up --http ADDRESS, or "http": true' in over_http.stderr
        assert "without --own" in alone.stderr
        with door(config, "--own", "--read-only") as beside:
            beside.initialize()
            assert beside.call("s__echo", text="beside")["content"][0]["text"] == "beside"
        assert "no effect" in quarterdeck_forked("serve", "--read-only", "-c", str(config)).stderr
