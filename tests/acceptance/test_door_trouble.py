"""Doors where something is not as it should be: their streams, their version, their machine, their number."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
import tty
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from support.clients.raw_client import CLIENT_INFO, RawStdioClient
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, PATIENT, command, quarterdeck_json_forked
from support.serves.daemons import door, doors, shown_status
from support.waiting import eventually

from quarterdeck.daemon.place import daemon_dir, listen
from quarterdeck_protocol.link.events import LinkTerms

GREETING: Final = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT_INFO}

INITIALIZE: Final = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": GREETING}).encode() + b"\n"


@pytest.fixture(scope="module", autouse=True)
def one_daemon(own_directories: Path) -> Iterator[None]:
    """Serves are doors here, to one daemon where a test does not end it; nothing is left of it."""
    with doors():
        quarterdeck_json_forked("up")
        yield


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_config(tmp_path_factory.mktemp("config") / "mcp.json", s=row("echo"))


def serve(config: Path, *options: str) -> list[str]:
    return command("serve", "--config", str(config), *PATIENT, *options)


def echoed(client: RawStdioClient, text: str) -> bool:
    return bool(client.call("s__echo", text=text)["content"][0]["text"] == text)


def is_gone(client: RawStdioClient, tool: str) -> bool:
    return tool not in [offered["name"] for offered in client.list_tools()]


def first_line(fd: int) -> dict[str, Any]:
    data = b""
    while b"\n" not in data:
        data += os.read(fd, 65536)
    found: dict[str, Any] = json.loads(data.split(b"\n")[0])
    return found


def test_a_door_on_a_terminal_serves_and_leaves_it_as_it_was(config: Path) -> None:
    """Who tries it by hand would get nothing, or a shell whose terminal gives errors afterwards."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    try:
        process = subprocess.Popen(serve(config), stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
        os.write(ours, INITIALIZE)
        assert first_line(ours)["result"]["serverInfo"]["name"] == "quarterdeck"
        process.terminate()
        _, said = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0
        assert b"meant to be started by an MCP client, not by hand" in said
        assert os.get_blocking(theirs)
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_door_whose_streams_are_sockets_serves(config: Path) -> None:
    """Node starts programs with socket pairs in place of pipes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(serve(config), stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL)
        theirs.close()
        ours.sendall(INITIALIZE)
        assert first_line(ours.fileno())["id"] == 1
        ours.shutdown(socket.SHUT_WR)
        assert process.wait(DEADLINE_S) == 0


def test_a_door_of_another_version_says_so_and_serves(config: Path) -> None:
    """After an upgrade every new window would fail until the daemon is replaced, or call an old one without a word."""
    newer = (
        "import quarterdeck_protocol.identity as i; i.CLIENT_VERSION = '99.0'; import quarterdeck.cli as c; c.main()"
    )
    _, _, *options = serve(config)
    with door(config) as here:
        here.initialize()
        with RawStdioClient([sys.executable, "-c", newer, *options[1:]], deadline_s=DEADLINE_S) as client:
            client.initialize()
            assert echoed(client, "newer")
            eventually(lambda: "quarterdeck up --replace" in client.stderr_text(), DEADLINE_S)
            assert "this is quarterdeck 99.0, the daemon is" in client.stderr_text()


def test_log_options_and_secrets_hold_through_a_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret would be in an editor's log; or a program that reads our log as JSON meet a line that is none."""
    monkeypatch.setenv("TOKEN_OF_TEST", "hunter2-hunter2")
    config = write_config(
        tmp_path / "mcp.json",
        s=row("echo", env={"TOKEN": "${TOKEN_OF_TEST}"}),
        hunter=row("modes_process", "exit", env={"TOKEN": "${TOKEN_OF_TEST}"}),
    )
    with (
        door(config, "--log-format", "json", "--log-level", "info") as client,
        door(config, "--log-level", "error") as calm,
    ):
        client.initialize()
        calm.initialize()
        client.list_tools()
        eventually(lambda: "s is ready" in client.stderr_text(), DEADLINE_S)
        lines = [json.loads(line) for line in client.stderr_text().splitlines()]
        assert any("s is ready" in line["event"] for line in lines)
        assert "hunter2" not in client.stderr_text()
        assert "ready" not in calm.stderr_text()


def test_an_editors_day(tmp_path: Path) -> None:
    """Windows crash, programs are upgraded, machines sleep: each would cost somebody's session."""
    config = write_config(tmp_path / "mcp.json", s=row("echo"), t=row("echo"))
    windows = [door(config) for _ in range(3)]
    try:
        for window in windows:
            window.initialize()
            assert echoed(window, "opened")
        with windows.pop() as crashed:
            crashed.kill()
        assert all(echoed(window, "a neighbour crashed") for window in windows)
        quarterdeck_json_forked("up", "--replace")
        assert all(echoed(window, "upgraded") for window in windows)
        write_config(config, s=row("echo"))
        for window in windows:
            eventually(partial(is_gone, window, "t__echo"), DEADLINE_S)
        sleeping = [(shown_status() or {})["pid"], *(window.process.pid for window in windows)]
        for pid in sleeping:
            os.kill(pid, signal.SIGSTOP)
        asked = [window.send("tools/call", {"name": "s__echo", "arguments": {"text": "awake"}}) for window in windows]
        for pid in sleeping:
            os.kill(pid, signal.SIGCONT)
        for window, number in zip(windows, asked, strict=True):
            assert window.reply(number)["result"]["content"][0]["text"] == "awake"
            assert (window.strays, window.junk) == ([], [])
    finally:
        for window in windows:
            window.close()
    assert [window.process.returncode for window in windows] == [0, 0]
    eventually(lambda: not (shown_status() or {})["clients"], DEADLINE_S)


@pytest.mark.nightly
def test_what_was_stopped_as_a_whole_goes_on_as_if_nothing_had_been(config: Path) -> None:
    """A laptop that wakes, or a session that is thawed, would find its servers killed for silence, and calls lost."""
    if shown_status() is not None:
        quarterdeck_json_forked("down")
    # What a forked daemon starts is not below it, and would not be stopped with it.
    windows = [door(config, is_forked=False) for _ in range(2)]
    try:
        for window in windows:
            window.initialize()
            assert echoed(window, "before")
        daemon = psutil.Process((shown_status() or {})["pid"])
        below = daemon.children(recursive=True)
        assert below
        asked = [window.send("tools/call", {"name": "s__slow", "arguments": {"seconds": 1}}) for window in windows]
        eventually(lambda: [each["calls"] for each in (shown_status() or {})["clients"]] == [1, 1], DEADLINE_S)
        stopped = [daemon, *below, *(psutil.Process(window.process.pid) for window in windows)]
        for process in stopped:
            process.suspend()
        time.sleep(LinkTerms().patience_s + 2.0)
        for process in stopped:
            process.resume()
        for window, number in zip(windows, asked, strict=True):
            assert "isError" not in (result := window.reply(number)["result"]) or not result["isError"]
            assert echoed(window, "after")
            assert (window.strays, window.junk) == ([], [])
        assert daemon.children(recursive=True) == below
        assert not any("worker_unresponsive" in window.stderr_text() for window in windows)
    finally:
        for window in windows:
            window.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's socket takes root to make")
def test_a_socket_of_another_user_is_not_used(config: Path) -> None:
    """A client's words, and its environment, would be handed to whoever was there first."""
    if shown_status() is not None:
        quarterdeck_json_forked("down")
    daemon_dir().mkdir(mode=0o700, parents=True)
    with listen(daemon_dir()) as planted:
        os.seteuid(65534)
        try:
            planted.listen()  # the kernel notes who listens
        finally:
            os.seteuid(0)
        ended = subprocess.run(serve(config), input=INITIALIZE, capture_output=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 6
    assert b"belongs to another user" in ended.stderr
    assert "belongs to another user" in json.loads(ended.stdout)["error"]["message"]
    assert b"--own" not in ended.stderr
    # Nobody listens there any more: what is left is in nobody's way.
    with door(config) as client:
        client.initialize()
        assert echoed(client, "anew")
