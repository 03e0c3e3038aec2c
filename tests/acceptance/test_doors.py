"""Many clients, one daemon: what each of them sees when others come and go, and when a door or the daemon dies."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from support.clients.raw_client import CLIENT_INFO, RawStdioClient, RpcError
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, command, popen_forked, quarterdeck_forked, quarterdeck_json_forked
from support.serves.daemons import door, kill_daemon, shown_status, wait_for_client
from support.serves.native_serves import make_project, native, text_of
from support.waiting import eventually

FAULT: Final = "quarterdeck/fault"


pytestmark = pytest.mark.usefixtures("by_the_daemon")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path / "mcp.json", s=row("echo"))


def calls() -> list[dict[str, Any]]:
    return [json.loads(line) for line in quarterdeck_forked("ledger", "calls", "--json").stdout.splitlines()]


def test_ten_windows_share_one_daemon_and_one_server(config: Path) -> None:
    """Each window of an editor would start every server, and the second one be refused."""
    clients = [door(config, is_forked=number < 9) for number in range(10)]
    try:
        for number, client in enumerate(clients):
            client.initialize()
            text = client.call("s__echo", text=f"client {number}")["content"][0]["text"]
            assert text == f"client {number}"
        found = quarterdeck_json_forked("status")["daemon"]
        assert {client["pid"] for client in found["clients"]} == {client.process.pid for client in clients}
        assert len({client["deck"] for client in found["clients"]}) == 1
        assert [deck["servers"] for deck in found["decks"]] == [1]
        assert len(quarterdeck_json_forked("ps", "--config", str(config))["servers"]) == 1
        program = os.readlink("/proc/self/exe")
        pids_of_doors = [client.process.pid for client in clients]
        doors = {f"door {pid} of {program} (pid {psutil.Process(pid).ppid()})" for pid in pids_of_doors}
        assert {call["client"] for call in calls()} == doors
        assert {call["program"] for call in calls()} == {"raw-client"}
    finally:
        for client in clients:
            client.close()
    assert [client.process.returncode for client in clients] == [0] * 10


def test_a_client_is_shown_by_the_name_that_it_gave_with_what_it_asks(config: Path) -> None:
    """Who has several editors open could not tell which of them a call comes from."""
    with door(config) as old, door(config) as new:
        old.initialize()
        new.discover()
        new.list_tools()
        for _ in range(66):
            old.send("tools/call", {"name": "s__hang", "arguments": {}})
        eventually(lambda: (shown_status() or {})["servers"][0]["waiting"] == 2, DEADLINE_S)
        shown, found = quarterdeck_forked("status").stdout, shown_status()
    assert [(client["name"], client["version"]) for client in found["clients"]] == [("raw-client", "1.0.0")] * 2
    load = {client["pid"]: (client["calls"], client["waiting"]) for client in found["clients"]}
    assert load == {old.process.pid: (66, 2), new.process.pid: (0, 0)}
    assert (found["servers"][0]["calls"], found["doors"], found["refused_doors"]) == (64, 3, 0)
    assert "66 (2 wait)" in shown


@contextmanager
def half_written(client: RawStdioClient, text: str) -> Iterator[None]:
    """Write a call of which the daemon has read what the pipe does not hold, and its end after the block."""
    params = {"name": "s__echo", "arguments": {"text": text}}
    line = json.dumps({"jsonrpc": "2.0", "id": "half", "method": "tools/call", "params": params}).encode()
    client.write(line[:-1000])
    yield
    client.write(line[-1000:] + b"\n")


LONG: Final = "x" * 300_000


def test_a_session_outlives_its_daemon(config: Path) -> None:
    """One crash would leave every editor with a dead server; or calls, and a line on its way, without an answer."""
    with door(config) as client:
        client.initialize()
        tools = client.list_tools()
        hang = {"name": "s__hang", "arguments": {}}
        under_way = [client.send("tools/call", hang, request_id) for request_id in ("1", 1000)]
        wait_for_client(calls=2)
        with half_written(client, LONG):
            kill_daemon()

        for request_id in under_way:
            lost = client.reply(request_id)["result"]
            assert lost["isError"]
            assert lost["_meta"][FAULT] == {"kind": "tool_error", "code": "daemon_lost", "delivery": "unknown"}
        assert client.list_tools() == tools
        assert client.call("s__echo", text="still here")["content"][0]["text"] == "still here"
        assert client.process.poll() is None
        assert {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"} in client.notifications
        assert said_in_strays(client) == {"half": LONG}
        assert client.junk == []


@pytest.mark.nightly
def test_a_call_that_waits_for_its_turn_is_made_by_the_next_daemon(config: Path) -> None:
    """At `up --replace` each call that no server was sent would fail, though nothing had been done."""
    with door(config) as client:
        client.initialize()
        client.list_tools()
        slow = [client.send("tools/call", {"name": "s__slow", "arguments": {"seconds": 2}}) for _ in range(66)]
        wait_for_client(calls=66)
        with half_written(client, LONG):
            quarterdeck_json_forked("up", "--replace")
        answers = [client.reply(number)["result"] for number in slow]
        assert [answer["content"][0]["text"] for answer in answers] == ["slept 2 s"] * 66
        assert client.call("s__echo", text="whole")["content"][0]["text"] == "whole"
        assert said_in_strays(client) == {"half": LONG}
        assert client.junk == []


def said_in_strays(client: RawStdioClient) -> dict[str, str]:
    """By id, the texts that answered what was written by hand."""
    return {answer["id"]: answer["result"]["content"][0]["text"] for answer in client.strays}


def test_a_client_is_greeted_once_however_often_daemons_die_under_it(tmp_path: Path) -> None:
    """A death before the greeting, or a second one after it, would leave a client without an answer, or with two."""
    slow = write_config(tmp_path / "mcp.json", s=row("echo"))
    with door(slow) as client:
        wait_for_client()
        greeting = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT_INFO}
        asked = client.send("initialize", greeting)
        kill_daemon()
        assert client.reply(asked)["result"]["serverInfo"]["name"] == "quarterdeck"
        wait_for_client()
        kill_daemon()
        client.notify("notifications/initialized")
        assert client.call("s__echo", text="on")["content"][0]["text"] == "on"
        assert (client.strays, client.junk) == ([], [])


def test_a_door_that_is_killed_ends_its_own_session_alone(config: Path) -> None:
    """Calls of a window that crashed would run on; or its neighbours' end with them."""
    with door(config) as killed, door(config) as neighbour:
        for client in (killed, neighbour):
            client.initialize()
        killed.send("tools/call", {"name": "s__hang", "arguments": {}})
        eventually(lambda: sum(each["calls"] for each in (shown_status() or {})["clients"]) == 1, DEADLINE_S)
        killed.kill()
        eventually(lambda: len((shown_status() or {})["clients"]) == 1, DEADLINE_S)
        assert neighbour.call("s__echo", text="calm")["content"][0]["text"] == "calm"


def test_a_door_that_is_told_to_end_answers_what_is_under_way(config: Path) -> None:
    """A client that stops its server would wait for answers of calls that nobody carries on."""
    with door(config) as client:
        client.initialize()
        client.list_tools()
        under_way = client.send("tools/call", {"name": "s__hang", "arguments": {}})
        eventually(lambda: (shown_status() or {})["clients"][0]["calls"] == 1, DEADLINE_S)
        client.process.send_signal(signal.SIGTERM)
        assert client.reply(under_way)["result"]["_meta"][FAULT]["code"] == "shutting_down"
        assert client.process.wait(DEADLINE_S) == 0


def test_who_cannot_be_served_is_told_why_in_all_three_ways(tmp_path: Path) -> None:
    """A client would show a server that is connected and does nothing, or one that ended without a word."""
    broken = tmp_path / "mcp.json"
    broken.write_text("{")
    with door(broken) as client:
        with pytest.raises(RpcError, match=r"cannot serve.*mcp\.json"):
            client.initialize()
        assert client.process.wait(DEADLINE_S) == 2
        assert "mcp.json" in client.stderr_text()
        assert "fix: correct that file" in client.stderr_text()
    found = shown_status()
    assert not found["decks"]


def test_a_decision_is_acted_upon_in_every_deck(config: Path) -> None:
    """Nothing could be approved while the daemon runs; or one window would go on without what a person approved."""
    write_config(config, s=row("echo", trust="strict"))
    with door(config) as one, ExitStack() as later:
        one.initialize()
        assert one.list_tools() == []
        other = later.enter_context(door(config, "--portable-schemas"))
        other.initialize()
        assert other.list_tools() == []
        approved = quarterdeck_forked("trust", "approve", "s", "--all", "-c", str(config))
        assert "approved: s echo" in approved.stdout, approved.stderr
        for client in (one, other):
            eventually(client.list_tools, DEADLINE_S)
            assert client.call("s__echo", text="approved")["content"][0]["text"] == "approved"
        refused = quarterdeck_forked("ledger", "redact")
    assert refused.returncode == 2
    assert "the daemon (process" in refused.stderr
    assert "fix: end it with `quarterdeck down`" in refused.stderr


def test_requests_in_a_file_are_answered(config: Path, tmp_path: Path) -> None:
    """`quarterdeck serve < requests` would read from a descriptor that the daemon cannot poll."""
    greeting = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "f", "version": "1"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "ping"},
    ]
    quarterdeck_json_forked("up")
    (tmp_path / "requests").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with open(tmp_path / "requests", "rb") as given:
        ended = subprocess.run(
            command("serve", "--config", str(config)), stdin=given, capture_output=True, timeout=DEADLINE_S, check=False
        )
    assert ended.returncode == 0, ended.stderr
    assert [json.loads(line)["id"] for line in ended.stdout.splitlines()] == [1, 2]


@pytest.mark.nightly
def test_native_work_that_is_lost_with_a_daemon_is_said_once_by_name(tmp_path: Path) -> None:
    """A model would wait for a build that nobody runs, or work on with a checklist that is empty."""
    words = ("serve", *native(make_project(tmp_path / "project")))
    with RawStdioClient(words, deadline_s=DEADLINE_S, popen=popen_forked) as client:
        client.initialize()
        for job in ("sleep 4711.5", "true"):
            assert not client.call("process", action="start", command=job).get("isError")
        client.call("todo_set", items=[{"id": "1", "text": "go on", "status": "active"}])
        eventually(lambda: "exited" in text_of(client.call("process", action="list")), DEADLINE_S)
        kill_daemon()
        said = text_of(client.call("todo_read"))
        assert "job-1 (sleep 4711.5)" in said
        assert "the checklist of todo_set (1 item)" in said
        assert "job-2" not in said
        assert "Lost" not in text_of(client.call("todo_read"))
        said = "the daemon before this one ended, and with it: job processes (1), the checklist"
        eventually(lambda: said in client.stderr_text(), DEADLINE_S)
