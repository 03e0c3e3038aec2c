"""`serve --http` beside programs that have no token: a client that has it is served, during and after."""

import json
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import httpx2
import psutil
import pytest
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, command, popen_forked
from support.processes.leftovers import no_leftovers
from support.processes.line_child import LineChild
from support.waiting import eventually

from quarterdeck.cli.configure.secret import read_token, token_path

SOFT = 1024
FLOOD = 1100
"""More than the soft limit that most systems start programs with."""

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@pytest.fixture
def room() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FLOOD + 500:
        pytest.skip(f"a flood of {FLOOD} connections needs more descriptors than {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FLOOD + 500) if soft >= 0 else soft, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def words(config: Path) -> tuple[str, ...]:
    return ("serve", "--config", str(config), "--http", "127.0.0.1:0", "--json")


def forked(config: Path, open_files: tuple[int, int] | None = None) -> LineChild:
    return LineChild(words(config), deadline_s=DEADLINE_S, popen=partial(popen_forked, open_files=open_files))


@contextmanager
def running(child: LineChild) -> Iterator[tuple[LineChild, str]]:
    """It with its servers' tools, and its URL; told to end, it ends well."""
    with no_leftovers(DEADLINE_S), child:
        url = json.loads(child.read_line())["url"]
        eventually(lambda: tools(url), DEADLINE_S, "the server's tools")
        yield child, url
        child.process.terminate()
        assert child.process.wait(DEADLINE_S) == 0


def tools(url: str) -> int:
    headers = {
        "Authorization": f"Bearer {read_token(token_path())}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/list",
    }
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    meta["io.modelcontextprotocol/clientCapabilities"] = {}  # type: ignore[assignment]
    reply = httpx2.post(url, headers=headers, json={**LIST, "params": {"_meta": meta}}, timeout=DEADLINE_S)
    assert reply.status_code == 200, reply.text
    text = reply.text.partition("data: ")[2] or reply.text
    return len(json.loads(text)["result"]["tools"])


def place_of(url: str) -> tuple[str, int]:
    parsed = httpx2.URL(url)
    return parsed.host, parsed.port or 80


@pytest.mark.parametrize(
    ("is_hard", "said"),
    [(False, b""), (True, b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n")],
    ids=["soft limit, silent", "hard limit, begun"],
)
@pytest.mark.usefixtures("room")
def test_clients_are_served_beside_a_thousand_half_open_connections_and_after(
    tmp_path: Path, is_hard: bool, said: bytes
) -> None:
    """Any program of the machine, a confined one too, could end the service for good and fill the disk with its log."""
    limits = SOFT, SOFT if is_hard else resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    config = write_config(tmp_path / "mcp.json", srv=row("echo"))
    with running(forked(config, limits)) as (child, url):
        before = psutil.Process(child.pid).num_fds()
        with ExitStack() as flood:
            for _ in range(FLOOD):
                one = flood.enter_context(socket.create_connection(place_of(url), DEADLINE_S))
                one.sendall(said)
            for _ in range(5):
                assert tools(url)
            assert psutil.Process(child.pid).num_fds() < SOFT / 2
            assert len(child.stderr_text()) < 10_000
        eventually(lambda: psutil.Process(child.pid).num_fds() <= before + 5, DEADLINE_S, "all connections closed")
        assert tools(url)
        assert "Traceback" not in child.stderr_text()


@pytest.mark.nightly
def test_what_is_started_has_the_limit_that_serve_was_started_with(tmp_path: Path) -> None:
    """A server that uses `select` would break with our own raised limit, and none would be told why."""
    read = row("echo")["sandbox"]
    assert isinstance(read, dict)
    rows = {
        "trusted": row("echo", sandbox={"preset": "trusted"}),
        "limited": row("echo", sandbox={**read, "limits": {"open_files": 99}}),
    }
    started = command(*words(write_config(tmp_path / "mcp.json", **rows)))
    argv = ["/bin/sh", "-c", f'ulimit -Sn {SOFT} && exec "$@"', "sh", *started]
    with running(LineChild(argv, deadline_s=DEADLINE_S)) as (child, url):
        eventually(lambda: tools(url) > 20, DEADLINE_S, "both servers")
        ours = psutil.Process(child.pid)
        assert len(set(ours.rlimit(psutil.RLIMIT_NOFILE))) == 1
        below = ours.children(recursive=True)
        servers = [one.pid for one in below if "echo.py" in " ".join(one.cmdline()) and one.name().startswith("python")]
        assert {soft_limit(pid) for pid in servers} == {SOFT, 99}


def soft_limit(pid: int) -> int:
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Max open files"))[26:].split()[0])
