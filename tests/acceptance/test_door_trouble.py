"""Doors where something is not as it should be: their streams, their version, their machine, their number."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import tty
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
import pytest
from support.clients.raw_client import CLIENT_INFO, RawStdioClient
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, PATIENT, command, quarterdeck_json
from support.processes.leftovers import assert_gone, no_leftovers
from support.waiting import eventually

from quarterdeck.daemon.client import ask_daemon
from quarterdeck.daemon.messages import Order
from quarterdeck.daemon.place import NoDaemonError, daemon_dir, listen
from quarterdeck.host.stdio.serve import MAX_IN_FLIGHT

GREETING: Final = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT_INFO}

INITIALIZE: Final = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": GREETING}).encode() + b"\n"


@pytest.fixture(scope="module", autouse=True)
def one_daemon(own_directories: Path) -> Iterator[None]:
    """Serves are doors here, to one daemon where a test does not end it; nothing is left of it."""
    with no_leftovers(DEADLINE_S), pytest.MonkeyPatch.context() as patch:
        patch.delenv("QUARTERDECK_OWN", raising=False)
        yield
        if (found := status()) is not None:
            below = psutil.Process(found["pid"]).children(recursive=True)
            ask_daemon(daemon_dir(), Order.END)
            assert_gone([found["pid"], *(process.pid for process in below)], DEADLINE_S)
    assert not daemon_dir().exists()


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One server."""
    return write_config(tmp_path_factory.mktemp("config") / "mcp.json", s=row("echo"))


def serve(config: Path, *options: str) -> list[str]:
    """The command line of a door."""
    return command("serve", "--config", str(config), *PATIENT, *options)


def door(config: Path, *options: str) -> RawStdioClient:
    """A client that has started a door and said nothing yet."""
    return RawStdioClient(serve(config, *options), deadline_s=DEADLINE_S)


def status() -> dict[str, Any] | None:
    """What the daemon says; None without one."""
    try:
        found: dict[str, Any] = msgspec.to_builtins(ask_daemon(daemon_dir(), Order.STATUS))
    except NoDaemonError:
        return None
    return found


def echoed(client: RawStdioClient, text: str) -> bool:
    """Whether a call is answered with what it asked."""
    return bool(client.call("s__echo", text=text)["content"][0]["text"] == text)


def is_gone(client: RawStdioClient, tool: str) -> bool:
    """Whether this tool is not offered any more."""
    return tool not in [offered["name"] for offered in client.list_tools()]


def first_line(fd: int) -> dict[str, Any]:
    """The first line that comes there."""
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


@pytest.mark.parametrize("closed", ["stdin <&-", "stdout >&-"])
def test_a_door_without_a_stream_is_told_so(config: Path, closed: str) -> None:
    """What the daemon opens next would be taken for a client."""
    name, how = closed.split()
    words = " ".join(serve(config))
    ended = subprocess.run(
        f"exec {words} {how}",
        shell=True,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 2
    assert f"closed at the start: {name}".encode() in ended.stderr


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


def test_every_request_that_may_be_under_way_is_answered_once_when_the_daemon_dies(config: Path) -> None:
    """A client that asks much would wait for ever for some of its answers, or get two for one question."""
    with door(config) as client:
        client.initialize()
        client.list_tools()
        asked = [client.send("tools/call", {"name": "s__hang", "arguments": {}}) for _ in range(MAX_IN_FLIGHT)]

        eventually(lambda: MAX_IN_FLIGHT in [each["calls"] for each in (status() or {})["clients"]], DEADLINE_S)
        os.kill((status() or {})["pid"], signal.SIGKILL)
        for number in asked:
            assert client.reply(number)["result"]["_meta"]["quarterdeck/fault"]["code"] == "daemon_lost"
        assert echoed(client, "on")
        assert (client.strays, client.junk) == ([], [])


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
        quarterdeck_json("up", "--replace")
        assert all(echoed(window, "upgraded") for window in windows)
        write_config(config, s=row("echo"))
        for window in windows:
            eventually(partial(is_gone, window, "t__echo"), DEADLINE_S)
        sleeping = [(status() or {})["pid"], *(window.process.pid for window in windows)]
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
    eventually(lambda: not (status() or {})["clients"], DEADLINE_S)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's socket takes root to make")
def test_a_socket_of_another_user_is_not_used(config: Path) -> None:
    """A client's words, and its environment, would be handed to whoever was there first."""
    if status() is not None:
        quarterdeck_json("down")
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
