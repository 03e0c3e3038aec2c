"""`serve --search`: two tools in place of all, over stdio and HTTP."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from mcp.client.client import Client
from support.clients.http_clients import connected
from support.clients.raw_client import RawStdioClient
from support.config.places import row, write_document
from support.processes.commands import DEADLINE_S, quarterdeck_forked, quarterdeck_json_forked
from support.serves.daemons import door, doors_at_home, own_file
from support.waiting import eventually

from quarterdeck.cli.configure.secret import read_token, token_path

TWO: Final = ["search_tools", "call_tool"]


@pytest.fixture
def config(own_directories: Path, tmp_path: Path) -> Iterator[Path]:
    """The user's own file, with two servers alike; no daemon is left at the end."""
    with doors_at_home(tmp_path):
        yield write(own_file(tmp_path), hide=["die"])


def write(config: Path, **overrides: object) -> Path:
    servers = {"a": row("echo", **overrides), "b": row("echo")}
    return write_document(config, mcpServers=servers, groups={"a": {"servers": ["a"]}})


def found(client: RawStdioClient, query: str, **options: Any) -> list[str]:
    return [tool["name"] for tool in definitions(client, query, **options)]


def definitions(client: RawStdioClient, query: str, **options: Any) -> list[dict[str, Any]]:
    answer = client.call("search_tools", query=query, **options)
    assert not answer.get("isError"), answer
    tools: list[dict[str, Any]] = json.loads(answer["content"][0]["text"])["tools"]
    return tools


def called(client: RawStdioClient, name: str, **arguments: Any) -> dict[str, Any]:
    result: dict[str, Any] = client.call("call_tool", name=name, arguments=arguments)
    return result


def test_a_client_finds_and_calls_what_it_is_not_shown(config: Path) -> None:
    """A deck of 200 tools would fill a model's context; or a way past grants and the ledger would be open."""
    with door(config, "--search", "--group", "a") as client, door(config) as plain:
        for each in (client, plain):
            each.initialize()
        assert [tool["name"] for tool in client.list_tools()] == TWO
        eventually(lambda: found(client, "echo"), DEADLINE_S, "the server in the group")
        eventually(lambda: "a__echo" in {tool["name"] for tool in plain.list_tools()}, DEADLINE_S)
        whole = {tool["name"]: tool for tool in plain.list_tools()}
        shown = {name: value for name, value in whole["a__echo"].items() if name not in ("icons", "_meta")}
        assert definitions(client, "echo", limit=1) == [shown]
        assert all(name.startswith("a__") for name in found(client, "echo text", limit=20))
        assert "a__die" not in found(client, "die", limit=20)
        assert called(client, "a__echo", text="x") == plain.call("a__echo", text="x")
        assert called(client, "b__echo", text="x")["_meta"]["quarterdeck/fault"]["code"] == "not_granted"
        assert called(client, "a__die")["_meta"]["quarterdeck/fault"]["code"] == "unknown_tool"
        write(config, rename={"echo": "parrot"})
        eventually(lambda: found(client, "parrot")[:1] == ["a__parrot"], DEADLINE_S, "the new name")
        assert called(client, "a__parrot", text="x") == plain.call("a__parrot", text="x")
    eventually(lambda: "echo" in quarterdeck_forked("ledger", "calls", "--json").stdout, DEADLINE_S, "the ledger")
    assert "call_tool" not in quarterdeck_forked("ledger", "calls", "--json").stdout


@pytest.mark.nightly
async def test_clients_of_the_daemon_on_http_choose_search_by_path_and_by_token(config: Path) -> None:
    """Models on HTTP would be shown everything, or those that asked for nothing two tools; or a token reach more."""
    url = quarterdeck_json_forked("up", "--http", "127.0.0.1:0", "--json")["http"]["url"]
    owner = read_token(token_path())
    words = ("token", "create", "--json", "--group", "a")
    bound, plain = (quarterdeck_json_forked(*words, *more)["token"] for more in (("ci", "--search"), ("plain",)))
    both = {"a__echo", "b__echo"}
    eventually(lambda: both <= {tool["name"] for tool in quarterdeck_json_forked("tools")["tools"]}, DEADLINE_S)
    for where, shown, expected in (
        (f"{url}?search", owner, ["a__echo", "b__echo"]),
        (f"{url}/a?search", owner, ["a__echo"]),
        (url, bound, ["a__echo"]),
    ):
        async with connected(where, "auto", shown) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == TWO
            assert [name for name in await searched(client, "echo") if name.endswith("echo")] == expected
            said = await client.call_tool("call_tool", {"name": "a__echo", "arguments": {"text": "x"}})
            direct = await client.call_tool("a__echo", {"text": "x"})
            assert (said.content, said.is_error) == (direct.content, direct.is_error)
            refused = await client.call_tool("call_tool", {"name": "b__echo", "arguments": {"text": "x"}})
            assert bool(refused.is_error) is ("b__echo" not in expected)
    async with connected(url, "auto", plain) as client:
        assert TWO[0] not in {tool.name for tool in (await client.list_tools()).tools}
        assert (await client.call_tool("call_tool", {"name": "a__echo", "arguments": {"text": "x"}})).is_error


async def searched(client: Client, query: str) -> list[str]:
    result = await client.call_tool("search_tools", {"query": query})
    [block] = result.content
    assert block.type == "text"
    return [tool["name"] for tool in json.loads(block.text)["tools"]]
