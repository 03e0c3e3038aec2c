"""What a client hears of calls that are under way when their server dies, or when `serve` itself is told to end."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from support.clients.wire_http import wired
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, PATIENT, popen_forked, quarterdeck_json_forked, serving
from support.processes.leftovers import no_leftovers
from support.processes.line_child import LineChild
from support.waiting import eventually

from quarterdeck.cli.configure.secret import read_token, token_path

CALLS: Final = 200
"""Under way at once, half of them too slow for any grace."""

FAULT: Final = "quarterdeck/fault"
ACCEPT: Final = {"Accept": "application/json, text/event-stream"}
SLOW: Final = {"name": "s__hang", "arguments": {}}
SOON: Final = {"name": "s__slow", "arguments": {"seconds": 0.3}}


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """One server; nothing of it is left at the end."""
    path = write_config(tmp_path / "mcp.json", s=row("echo"))
    with no_leftovers(DEADLINE_S):
        yield path


def params(number: int) -> dict[str, Any]:
    return SLOW if number % 2 else SOON


def assert_answered(results: list[dict[str, Any]]) -> None:
    """Require a result of every call, or the fault that says how it ended; a busy machine may need the whole grace."""
    assert len(results) == CALLS
    for number, result in enumerate(results):
        if number % 2 or result.get("isError"):
            fault = result["_meta"][FAULT]
            # What waited for its client's turn was not sent.
            is_sent = fault["delivery"] == "unknown"
            kind = "tool_error" if is_sent else "not_connected"
            assert fault == {"kind": kind, "code": "shutting_down", "delivery": "unknown" if is_sent else "not_sent"}
        else:
            assert result["content"][0]["text"] == "slept 0.3 s"


def test_every_call_under_way_at_sigterm_is_answered_over_stdio(config: Path) -> None:
    """A client could not tell what was done of what it asked for."""
    with serving(config, is_forked=True) as client:
        client.initialize()
        client.list_tools()
        ids = [client.send("tools/call", params(number)) for number in range(CALLS)]
        client.request("tools/list")  # read after all of them
        client.process.terminate()
        results = [client.reply(request_id)["result"] for request_id in ids]
        assert client.process.wait(DEADLINE_S) == 0
    assert_answered(results)


async def test_every_call_under_way_at_sigterm_is_answered_over_http(config: Path) -> None:
    """Half of the clients would get 200 with nothing in it."""
    words = ("serve", "--config", str(config), *PATIENT, "--http", "127.0.0.1:0", "--json")
    with LineChild(words, deadline_s=DEADLINE_S, popen=popen_forked) as child:
        url = json.loads(child.read_line())["url"]
        async with httpx2.AsyncClient(timeout=DEADLINE_S) as http:
            session = await open_session(http, url)
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(wired(url)) for _ in range(CALLS)]
            for number, client in enumerate(clients):
                client.headers |= session
                client.writer.write(client.request(request(number, "tools/call", params(number))))
            for _ in range(3):
                # Connections are served in the order in which they come.
                async with wired(url, clients[0]) as last:
                    await last.ask(request(-1, "ping", {}))
            child.process.terminate()
            results = [(await client.read()).answer["result"] for client in clients]
        assert child.process.wait(DEADLINE_S) == 0
    assert_answered(results)


async def open_session(http: httpx2.AsyncClient, url: str) -> dict[str, str]:
    headers = {**ACCEPT, "Authorization": f"Bearer {read_token(token_path())}"}
    client = {"name": "raw", "version": "1"}
    asked = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    greeting = await http.post(url, headers=headers, json=request(-3, "initialize", asked))
    session = {**headers, "Mcp-Session-Id": greeting.headers["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-11-25"}
    await http.post(url, headers=session, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    listed = (await http.post(url, headers=session, json=request(-2, "tools/list", {}))).json()["result"]
    assert "s__hang" in {tool["name"] for tool in listed["tools"]}
    return session


def request(number: int, method: str, asked: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": asked}


def test_a_servers_death_is_no_refusal_of_the_next_calls(config: Path) -> None:
    """Each crash would cost every client its tools, and all calls of the time that a restart takes."""
    with serving(config, is_forked=True) as client:
        client.initialize()
        before = client.list_tools()
        os.kill(status(config)["pid"], signal.SIGKILL)
        eventually(lambda: status(config)["phase"] != "ready" or status(config)["restarts"], DEADLINE_S, "its death")
        assert client.list_tools() == before
        waiting = client.send(
            "tools/call", {"name": "s__progress", "arguments": {"n": 2}, "_meta": {"progressToken": "p", "trace": 1}}
        )
        result = client.reply(waiting)["result"]
        assert result["content"][0]["text"] == "2 steps"
        assert [note["params"]["progressToken"] for note in client.notifications if "progress" in note["method"]] == [
            "p",
            "p",
        ]


def status(config: Path) -> dict[str, Any]:
    (server,) = quarterdeck_json_forked("ps", "--config", str(config))["servers"]
    return dict(server)
