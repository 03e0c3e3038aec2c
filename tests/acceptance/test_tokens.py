"""Tokens of single clients, against one `serve --http` that runs: made, limited, told apart in the ledger, revoked."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.clients.http_clients import connected
from support.config.places import row, write_config
from support.processes.commands import DEADLINE_S, popen_forked, quarterdeck_forked, quarterdeck_json_forked
from support.processes.leftovers import no_leftovers
from support.processes.line_child import LineChild
from support.waiting import eventually

from quarterdeck.cli.configure.secret import read_token, token_path

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@pytest.fixture
def url(own_directories: Path, tmp_path: Path) -> Iterator[str]:
    config = write_config(tmp_path / "mcp.json", a=row("echo"), b=row("echo"))
    words = ("serve", "--config", str(config), "--http", "127.0.0.1:0", "--json")
    with no_leftovers(DEADLINE_S), LineChild(words, deadline_s=DEADLINE_S, popen=popen_forked) as child:
        yield json.loads(child.read_line())["url"]
        child.process.terminate()
        assert child.process.wait(DEADLINE_S) == 0


def token(name: str, *limits: str) -> str:
    made = quarterdeck_json_forked("token", "create", name, *limits)["token"]
    assert isinstance(made, str)
    return made


def posted(url: str, token: str) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    return httpx2.post(url, json=LIST, headers=headers, timeout=DEADLINE_S)


def listed() -> set[str]:
    return {tool["name"] for tool in quarterdeck_json_forked("tools")["tools"]}


def calls() -> list[dict[str, Any]]:
    return [json.loads(line) for line in quarterdeck_forked("ledger", "calls", "--json").stdout.splitlines()]


async def test_a_token_opens_what_it_names_until_it_is_revoked(url: str) -> None:
    """Everybody who may use one server could use all, for good, and nobody tell who it was."""
    given = {"ci": token("ci", "--server", "a", "--tool", "a__echo"), "owner": read_token(token_path())}
    eventually(lambda: {"a__echo", "b__echo"} <= listed(), DEADLINE_S, "both servers")
    for name, shown in given.items():
        async with connected(url, "auto", shown) as client:
            told = client.instructions or ""
            assert ("[a]\n" in told, "[b]\n" in told) == (True, name == "owner")
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert names == {"a__echo"} if name == "ci" else names > {"a__echo", "b__echo"}
            assert not (await client.call_tool("a__echo", {"text": name})).is_error
            refused = await client.call_tool("b__echo", {"text": name})
            assert bool(refused.is_error) is (name == "ci")
    assert quarterdeck_forked("call", "b__echo", '{"text": "command"}').returncode == 0
    wanted = [("ci", "a"), ("owner", "a"), ("owner", "b"), ("quarterdeck call", "b")]
    recorded = calls()
    assert sorted((call["client"], call["server"]) for call in recorded) == wanted
    assert {(call["client"], call["program"]) for call in recorded} == {
        ("ci", "mcp"),
        ("owner", "mcp"),
        ("quarterdeck call", ""),
    }

    slow, short = token("slow", "--rate", "2/h"), token("short", "--expires", "1s")
    assert [posted(url, slow).status_code for _ in range(3)] == [400, 400, 429]
    assert int(posted(url, slow).headers["retry-after"]) > 1000
    assert quarterdeck_forked("token", "revoke", "ci").returncode == 0
    eventually(lambda: posted(url, given["ci"]).status_code == 401, DEADLINE_S)
    assert "was revoked" in posted(url, given["ci"]).json()["error"]
    eventually(lambda: "has expired" in posted(url, short).text, DEADLINE_S)
    assert "not known" in posted(url, f"{short}x").json()["error"]
    assert posted(url, given["owner"]).status_code == 400
