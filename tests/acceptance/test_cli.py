"""The commands, with a running `serve` and without."""

import json
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from support.clients.raw_client import RawStdioClient
from support.config.places import row, write_config
from support.processes.commands import (
    DEADLINE_S,
    command,
    popen_forked,
    quarterdeck,
    quarterdeck_forked,
    quarterdeck_json,
    quarterdeck_json_forked,
    serving,
)
from support.processes.leftovers import descendants, no_leftovers
from support.processes.line_child import LineChild
from support.processes.running import run
from support.waiting import eventually

ATTEMPTS = 5

TOLD_S = 10.0
"""A cancel takes milliseconds; more means that there was nothing to cancel."""


@pytest.fixture(scope="module")
def config(own_directories: Path) -> Path:
    return write_config(
        own_directories / "mcp.json",
        echo=row("echo", "--stderr", "hello from echo", env={"KEY": "hunter2-hunter2"}),
        gone=row("hostile", "exits_at_once"),
        unset={"command": "${NOT_SET_QD}"},
    )


@pytest.fixture(scope="module")
def serve(config: Path) -> Iterator[RawStdioClient]:
    """One serve for the module's tests; commands disturb it no more than they should."""
    with no_leftovers(DEADLINE_S), serving(config, is_forked=True) as client:
        client.initialize()
        client.list_tools()
        yield client


def test_ps_shows_the_processes_of_the_running_serve(config: Path, serve: RawStdioClient) -> None:
    """`ps` would start servers of its own and show those."""
    below = descendants()
    echo, gone, unset = quarterdeck_json_forked("ps", "--config", str(config))["servers"]
    assert (echo["id"], echo["phase"], echo["transport"]) == ("echo", "ready", "stdio")
    assert {echo["pid"], echo["worker_pid"]} <= below.keys()
    assert echo["tools"] > 10
    assert echo["memory_bytes"] > 1_000_000
    assert echo["uptime_s"] > 0
    assert (gone["phase"], gone["fault"]["code"]) == ("faulted", "exited_at_handshake")
    assert gone["fault"]["dossier"]["exit_status"] == 3
    assert (unset["phase"], unset["fault"]["code"]) == ("faulted", "unset_variable")
    assert "NOT_SET_QD" in unset["fault"]["message"]
    shown = quarterdeck("ps", "--config", str(config))
    assert shown.returncode == 0
    assert "exit status 3" in shown.stdout
    assert gone["fault"]["remedy"] in shown.stdout
    assert "hunter2" not in shown.stdout


def test_ps_loads_only_what_asking_takes(config: Path, serve: RawStdioClient) -> None:
    """A script's look at the deck would take as long as starting one."""
    heavy = {"anyio", "asyncio", "mcp", "pydantic", "rich", "structlog", "zmq"}
    heavy |= {"quarterdeck.config.settings", "quarterdeck.app"}
    python, *rest = command("ps", "--json", "--config", str(config))
    ended = run(python, "-X", "importtime", *rest)
    assert "echo" in ended.stdout
    loaded = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "quarterdeck.daemon.control.client" in loaded
    assert not loaded & heavy


def test_call_prints_what_the_tool_answers(config: Path, serve: RawStdioClient) -> None:
    """A tool could not be tried without writing a client."""
    said = quarterdeck("call", "echo__echo", '{"text": "hello"}', "--config", str(config))
    assert (said.returncode, said.stdout, said.stderr) == (0, "hello\n", "")
    piped = quarterdeck_forked("call", "echo__echo", "-", "--config", str(config), stdin='{"text": "piped"}')
    assert piped.stdout == "piped\n"
    [pid] = [
        row["pid"] for row in quarterdeck_json_forked("ps", "--config", str(config))["servers"] if row["id"] == "echo"
    ]
    assert pid in descendants()
    whole = quarterdeck_json_forked("call", "echo__add", '{"a": 2, "b": 3}', "--config", str(config))
    assert whole["structuredContent"] == {"sum": 5}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("call", "echo__iserror"), 1, "answered with an error"),
        (("call", "echo__fail", '{"code": -32000, "message": "no way"}'), 5, "no way"),
        (("call", "echo__ecko"), 3, "did you mean 'echo__echo'?"),
        (("call", "nobody__echo"), 3, "there is no tool"),
        (("call", "gone__echo"), 4, "gone is faulted"),
        (("call", "unset__echo"), 4, "NOT_SET_QD"),
        (("call", "echo__echo", "[1]"), 2, "not a JSON object"),
        (("restart", "nobody"), 3, "there is no server"),
        (("logs", "nobody"), 3, "there is no server"),
    ],
)
def test_each_failure_has_its_exit_code_and_says_what_to_do(
    config: Path, serve: RawStdioClient, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """A script could not tell one from the other."""
    ended = quarterdeck_forked(*arguments, "--config", str(config))
    assert ended.returncode == code
    assert said in ended.stderr


def test_restart_gives_the_server_a_new_process(config: Path, serve: RawStdioClient) -> None:
    """A server that misbehaves could only be mended by ending the whole session."""
    before = quarterdeck_json_forked("ps", "--config", str(config))["servers"][0]
    after = quarterdeck_json("restart", "echo", "--config", str(config))["server"]
    assert after["phase"] == "ready"
    assert after["pid"] != before["pid"]
    assert after["restarts"] == before["restarts"] + 1
    assert serve.call("echo__echo", text="again")["content"][0]["text"] == "again"
    assert quarterdeck_forked("restart", "gone", "--config", str(config)).returncode == 4


def test_logs_show_what_the_server_wrote(config: Path, serve: RawStdioClient) -> None:
    """A server's own words about its failure would be lost."""
    shown = quarterdeck_forked("logs", "echo", "-n", "1", "--config", str(config))
    assert shown.returncode == 0
    lines = quarterdeck_forked("logs", "echo", "-n", "1", "--json", "--config", str(config)).stdout
    told = json.loads(lines)
    assert told == {"server": "echo", "at": told["at"], "line": "hello from echo"}
    written = datetime.fromisoformat(told["at"])
    assert written.utcoffset() == timedelta(0)
    assert shown.stdout == f"{written.astimezone():%Y-%m-%d %H:%M:%S}  hello from echo\n"


def test_logs_can_be_followed(config: Path, serve: RawStdioClient) -> None:
    """Watching a server would mean to ask again and again."""
    argv = command("logs", "echo", "-f", "-n", "0", "--config", str(config))
    with LineChild(argv) as follower:
        for _ in range(20):
            # It may not have come to the end of the file yet when the first one writes.
            assert quarterdeck_forked("restart", "echo", "--config", str(config)).returncode == 0
            try:
                line = follower.read_line(within_s=1)
                break
            except TimeoutError:
                continue
        assert line.partition(b"  ")[2] == b"hello from echo"
        follower.process.send_signal(signal.SIGINT)
        assert follower.process.wait(DEADLINE_S) == 130


def test_an_interrupted_call_tells_the_server(config: Path, serve: RawStdioClient) -> None:
    """Ctrl-C would leave the tool at work."""
    # From outside it cannot be seen whether the call has left yet; one interrupted before that is tried again.
    before = _cancels_heard(config)
    for _ in range(ATTEMPTS):
        _interrupt_a_call(config)
        try:
            eventually(lambda: _cancels_heard(config) > before, TOLD_S, "the server's word that it was cancelled")
        except AssertionError:
            continue
        return
    pytest.fail(f"the server never heard that a call was given up, in {ATTEMPTS} attempts")


def _interrupt_a_call(config: Path) -> None:
    argv = command("call", "echo__hang", "--config", str(config))
    with LineChild(argv) as caller:
        eventually(lambda: _is_asking(caller.pid), DEADLINE_S, "a call under way")
        caller.process.send_signal(signal.SIGINT)
        assert caller.process.wait(DEADLINE_S) == 130


def _cancels_heard(config: Path) -> int:
    return quarterdeck_forked("logs", "echo", "--config", str(config)).stdout.count("cancelled")


def _is_asking(pid: int) -> bool:
    import psutil

    try:
        return any(link.status != psutil.CONN_LISTEN for link in psutil.Process(pid).net_connections("unix"))
    except psutil.Error:
        return False


def test_a_configuration_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """A client would see a serve that ends without a word, or with a traceback."""
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": ')
    ended = quarterdeck_forked("serve", "--config", str(path))
    assert (ended.returncode, ended.stdout) == (2, "")
    error, fix = ended.stderr.splitlines()
    assert error.startswith(f"error[usage]: {path}: line 1, column ")
    assert fix.startswith("  fix: ")


def test_a_command_that_is_ended_by_a_signal_stops_its_own_servers(tmp_path: Path) -> None:
    """Ctrl-C at the wrong moment would leave servers running."""
    config = write_config(tmp_path / "mcp.json", echo=row("echo"))
    with no_leftovers(DEADLINE_S):
        words = ("call", "echo__hang", "--own", "--config", str(config))
        before = descendants().items()
        with LineChild(words, popen=popen_forked) as caller:
            eventually(lambda: "echo.py" in str(descendants().items() - before), DEADLINE_S)
            caller.process.send_signal(signal.SIGTERM)
            assert caller.process.wait(DEADLINE_S) == 128 + signal.SIGTERM
            assert "Traceback" not in caller.stderr_text()
