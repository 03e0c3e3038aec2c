"""`quarterdeck serve` with real servers behind it and real clients before it."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from support.clients.http_clients import connected
from support.clients.raw_client import RawStdioClient, RpcError
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, PATIENT, popen_forked, quarterdeck_json_forked, serving
from support.processes.forked_stdio import forked_stdio
from support.processes.leftovers import assert_gone, descendants, no_leftovers
from support.processes.line_child import LineChild, PeerClosedError

from quarterdeck.config.places.paths import runtime_dir


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """Two servers of the two eras; nothing of them is left at the end."""
    path = write_config(tmp_path / "mcp.json", old=row("echo"), new=row("modern"))
    with no_leftovers(DEADLINE_S):
        yield path


def runtime_directories() -> list[Path]:
    root = runtime_dir()
    return [path for path in root.iterdir() if path.name.startswith("qd-")] if root.is_dir() else []


@pytest.mark.parametrize(
    ("greet", "end"),
    [
        pytest.param(RawStdioClient.initialize, RawStdioClient.close_stdin, id="legacy-end_of_stdin"),
        pytest.param(RawStdioClient.discover, lambda client: client.process.terminate(), id="modern-sigterm"),
    ],
)
def test_a_raw_client_of_either_era_gets_both_servers_and_the_end_is_the_end_of_it_all(
    config: Path, greet: Callable[[RawStdioClient], object], end: Callable[[RawStdioClient], object]
) -> None:
    """Half of the clients or servers could not be used, or each client's start would leave processes behind."""
    before = descendants().keys()
    with serving(config, is_forked=True) as client:
        greet(client)
        names = {tool["name"] for tool in client.list_tools()}
        assert {"old__echo", "new__echo"} <= names
        for server in ("old", "new"):
            result = client.call(f"{server}__echo", text=f"hello {server}")
            assert result["content"] == [{"type": "text", "text": f"hello {server}"}]
        assert client.call("old__iserror")["isError"] is True
        assert client.call("nobody__echo")["isError"] is True
        below = descendants().keys() - before
        assert len(below) > 2
        end(client)
        assert client.process.wait(DEADLINE_S) == 0
        assert_said_no_more(client)
    assert_gone(below)
    assert runtime_directories() == []


def assert_said_no_more(client: RawStdioClient) -> None:
    """Require that the protocol was all that it wrote, and no traceback is in its logs."""
    with pytest.raises(PeerClosedError):
        client.notification("no such notification")
    assert client.junk == []
    assert "Traceback" not in client.stderr_text()


@asynccontextmanager
async def stock_client(config: Path, mode: str, *options: str) -> AsyncIterator[Client]:
    """The Python SDK's client of a `serve` of its own."""
    words = ("serve", "--config", str(config), *PATIENT, *options)
    with config.with_name("serve.log").open("ab") as log, popen_forked(words, stderr=log) as serve:
        async with asyncio.timeout(DEADLINE_S), Client(forked_stdio(serve), mode=mode, cache=None) as client:
            yield client


async def schemas_of_both_servers(client: Client) -> dict[str, Any]:
    """The input schemas of all tools; requires that both servers are there and one answers."""
    listed = await client.list_tools()
    schemas = {tool.name: tool.input_schema for tool in listed.tools}
    assert {"old__add", "new__add"} <= schemas.keys()
    result = await client.call_tool("old__add", {"a": 2, "b": 3})
    assert result.structured_content == {"sum": 5}
    return schemas


async def test_the_stock_client_gets_portable_schemas_on_demand(config: Path) -> None:
    """The Python SDK's users could not use it, or clients that know no `anyOf` could not use some tools."""
    async with stock_client(config, "auto", "--portable-schemas") as client:
        portable = await schemas_of_both_servers(client)
        listed = await asyncio.to_thread(quarterdeck_json_forked, "tools", "--config", str(config))
        own = {tool["name"]: tool["definition"]["inputSchema"] for tool in listed["tools"]}
    assert portable.keys() == own.keys()
    assert portable != own


def test_initialize_is_answered_whatever_the_servers_do_and_stderr_is_all_structured_logs(tmp_path: Path) -> None:
    """A client would give up on all servers because of one, or one stray line would break its connection."""
    config = write_config(
        tmp_path / "mcp.json",
        stuck=row("hostile", "never_answers"),
        dead=row("hostile", "exits_at_once"),
        odd={"command": "${NOT_SET_QD}"},
        missing={"command": "hunter2-hunter2"},
        noisy=row("echo", "--stderr", "I talk", env={"PASSWORD": "hunter2-hunter2"}),
    )
    with no_leftovers(DEADLINE_S), serving(config, "--settle", "8", "--log-level", "debug", is_forked=True) as client:
        assert client.initialize()["serverInfo"]["name"] == "quarterdeck"
        names = {tool["name"] for tool in client.list_tools()}
        assert {name.partition("__")[0] for name in names} == {"noisy"}
        assert client.call("noisy__echo", text="calm")["content"][0]["text"] == "calm"
        client.process.send_signal(signal.SIGINT)
        assert client.process.wait(DEADLINE_S) == 130
        assert_said_no_more(client)
        lines = [json.loads(line) for line in client.stderr_text().splitlines()]
    assert runtime_directories() == []
    assert all({"event", "level", "logger", "timestamp"} <= line.keys() for line in lines)
    told = " ".join(line["event"] for line in lines)
    assert "NOT_SET_QD" in told
    assert "noisy is ready" in told
    assert "missing is faulted" in told
    assert "hunter2" not in told


@pytest.mark.nightly
def test_serve_never_imports_the_sdk(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each start would take half a second more, and each process 30 MiB."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    with serving(config, "--own") as client:
        client.initialize()
        assert client.list_tools()
        client.request("prompts/list")
        with pytest.raises(RpcError):
            client.request("things/unknown")
        assert client.request("tools/call", {"name": "old__echo", "arguments": {"text": "a"}, "unknown": 1})
        client.close_stdin()
        assert client.process.wait(DEADLINE_S) == 0
        assert_said_no_more(client)
        said = client.stderr_text()
    script = "import quarterdeck.host.http.serve, quarterdeck.daemon.http_decks, quarterdeck.daemon.server"
    said += subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stderr
    modules = set(re.findall(r"^import time:.*\| +(\S+)$", said, re.MULTILINE))
    assert {"quarterdeck.host.stdio.sink", "quarterdeck.host.http.serve"} <= modules
    assert [name for name in modules if name.partition(".")[0] in ("mcp", "mcp_types")] == []


async def test_a_killed_serve_leaves_no_process_and_the_next_one_sweeps(config: Path) -> None:
    """Servers would run on without an owner, and directories would pile up; the next one is a stock client's."""
    before = descendants().keys()
    with serving(config, is_forked=True) as client:
        client.initialize()
        client.list_tools()
        below = descendants().keys() - before
        assert len(below) > 2
        client.process.kill()
        client.process.wait()
    assert_gone(below)
    (dead,) = runtime_directories()
    async with stock_client(config, "legacy") as stock:
        assert len(await schemas_of_both_servers(stock)) > 1
        (living,) = runtime_directories()
        assert living != dead


@pytest.mark.parametrize(
    ("words", "reason"),
    [(("--config", "broken.json"), "broken.json: line 1"), (("--bogus",), "there is no option --bogus")],
)
def test_a_serve_that_cannot_run_tells_its_client_why(tmp_path: Path, words: tuple[str, ...], reason: str) -> None:
    """Clients would say that the server was there and left, and nobody would know what to do."""
    (tmp_path / "broken.json").write_text('{"mcpServers": {')
    with RawStdioClient(("serve", *words), deadline_s=DEADLINE_S, cwd=tmp_path, popen=popen_forked) as client:
        first, second = client.send("initialize", INITIALIZE), client.send("tools/list")
        for request_id in (first, second):
            error = client.reply(request_id)["error"]
            assert error["message"].startswith("quarterdeck cannot serve: ")
            assert reason in error["message"]
        assert client.process.wait(DEADLINE_S) == 2


INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}


def test_http_clients_of_both_eras_need_the_token_and_get_the_tools(config: Path) -> None:
    """Every local web page could call the tools, or no client at all."""
    words = ("serve", "--config", str(config), *PATIENT, "--http", "127.0.0.1:0", "--json")
    with LineChild(words, deadline_s=DEADLINE_S, popen=popen_forked) as child:
        url = json.loads(child.read_line())["url"]
        token = quarterdeck_json_forked("token", "show")["token"]
        assert httpx2.post(url, json={}).status_code == 401
        for mode in ("legacy", "auto"):
            asyncio.run(_list_and_call(url, token, mode))
        child.process.terminate()
        assert child.process.wait(DEADLINE_S) == 0
    assert runtime_directories() == []


async def _list_and_call(url: str, token: str, mode: str) -> None:
    async with asyncio.timeout(DEADLINE_S), connected(url, mode, token) as client:
        listed = await client.list_tools()
        assert {"old__echo", "new__echo"} <= {tool.name for tool in listed.tools}
        result = await client.call_tool("new__echo", {"text": "over http"})
        assert getattr(result.content[0], "text", None) == "over http"
