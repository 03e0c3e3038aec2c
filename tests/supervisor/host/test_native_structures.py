"""What native tools say that they return, and what clients of each revision get: a real deck, stock clients."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import jsonschema
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from support.clients.mcp_clients import in_memory
from support.config.places import use_places
from support.processes.identities import give_to_commands
from support.processes.leftovers import no_leftovers
from support.waiting import POLL_S

from quarterdeck.common.tool_names import Profile
from quarterdeck.config.native_tools import NativeWish
from quarterdeck.host.provider import ProviderHostImpl, create_provider_host
from quarterdeck.tools.session import open_deck_session
from quarterdeck.tools.web.websearch import DdgsProvider, SearchHit

pytestmark = pytest.mark.process

PATIENCE_S: Final = 60.0

STRUCTURED: Final = {"edit", "enter_plan_mode", "exit_plan_mode", "process", "websearch"}
"""The tools that return more than text, images and documents."""

PLAN: Final = "# Plan\nDig."


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    async def search(_: DdgsProvider, query: str, max_results: int) -> Sequence[SearchHit]:
        return [SearchHit(f"About {query}", "https://cats.example/", "")]

    use_places(monkeypatch, tmp_path)
    monkeypatch.setattr(DdgsProvider, "search", search)
    folder = tmp_path / "workspace"
    folder.mkdir()
    give_to_commands(folder)
    with no_leftovers():
        yield folder


@asynccontextmanager
async def host_of(workspace: Path) -> AsyncIterator[ProviderHostImpl]:
    wish = NativeWish(profile=Profile.ALL, workspace=workspace)
    with anyio.fail_after(PATIENCE_S):
        async with open_deck_session(wish, allow_unsandboxed=True) as session:
            yield create_provider_host(session.box)


async def results_of(client: Client, workspace: Path) -> AsyncIterator[tuple[str, types.CallToolResult]]:
    """A success of each kind that tools with an output schema have, by the tool's name."""

    async def call(name: str, **arguments: object) -> tuple[str, types.CallToolResult]:
        result = await client.call_tool(name, arguments)
        assert not result.is_error, result.content
        return name, result

    (workspace / "file.txt").write_text("hello\n")
    await call("read", path="file.txt")
    yield await call("edit", path="file.txt", oldText="l", newText="L", replaceAll=True)
    yield await call("websearch", query="cats")
    yield await call("enter_plan_mode")
    yield await call("exit_plan_mode", plan=PLAN)
    name, started = await call("process", action="start", command="echo up; exit 3")
    yield name, started
    job = structure(started)["id"]
    while True:
        name, polled = await call("process", action="poll", id=job)
        yield name, polled
        if structure(polled)["state"] == "finished":
            break
        await anyio.sleep(POLL_S)
    assert structure(polled)["exitCode"] == 3
    yield await call("process", action="list")
    yield await call("process", action="stop", id=job)


def structure(result: types.CallToolResult) -> dict[str, Any]:
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def test_all_nineteen_say_what_they_are_and_those_with_structures_return_what_they_say(workspace: Path) -> None:
    """The stock client refuses a result that is not what its tool promised, and no program reads an untold one."""
    async with host_of(workspace) as host:
        for mode in ("legacy", "auto"):
            async with in_memory(host, mode, within_s=PATIENCE_S) as (client, _):
                tools = {tool.name: tool for tool in (await client.list_tools()).tools}
                assert len(tools) == 19
                assert all(tool.title and tool.annotations for tool in tools.values())
                schemas = {name: tool.output_schema for name, tool in tools.items() if tool.output_schema}
                assert schemas.keys() == STRUCTURED
                called = set()
                async for name, result in results_of(client, workspace):
                    called.add(name)
                    judge(schemas[name], structure(result))
                    assert result.content
                assert called == STRUCTURED


def judge(schema: Mapping[str, object], value: Mapping[str, object]) -> None:
    """Hold a result, and the result with a member more or less, against the schema of its tool."""
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    judged = jsonschema.Draft202012Validator(schema)
    judged.validate(value)
    assert not judged.is_valid({**value, "more": 1})
    assert not any(judged.is_valid({key: each for key, each in value.items() if key != left}) for left in value)


async def test_text_alone_and_failures_have_no_structure(workspace: Path) -> None:
    """A client would take an empty structure for an answer, or judge a failure by the schema of a success."""
    async with host_of(workspace) as host, in_memory(host, "legacy", within_s=PATIENCE_S) as (client, _):
        for name, arguments in (("ls", {}), ("todo_read", {}), ("memory", {"action": "read"})):
            result = await client.call_tool(name, arguments)
            assert (result.is_error, result.structured_content) == (False, None), name
        for name, arguments in (("process", {"action": "poll", "id": "job-9"}), ("websearch", {"query": " "})):
            result = await client.call_tool(name, arguments)
            assert (result.is_error, result.structured_content) == (True, None), name


async def test_a_client_from_before_output_schemas_is_told_of_none(workspace: Path) -> None:
    """A strict client of 2025-03-26 would refuse the list, or the result."""
    async with host_of(workspace) as host, create_client_server_memory_streams() as ((read, write), server_streams):

        async def ask(method: str, params: dict[str, object]) -> dict[str, Any]:
            await write.send(SessionMessage(types.JSONRPCRequest(jsonrpc="2.0", id=1, method=method, params=params)))
            reply = (await read.receive()).message  # type: ignore[union-attr]
            assert isinstance(reply, types.JSONRPCResponse)
            return reply.result

        running = await host.connect(server_streams)
        who = {"name": "old", "version": "1"}
        greeted = await ask("initialize", {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": who})
        assert greeted["protocolVersion"] == "2025-03-26"
        await write.send(SessionMessage(types.JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")))
        tools = (await ask("tools/list", {}))["tools"]
        assert len(tools) == 19
        assert not any("outputSchema" in tool for tool in tools)
        marked = await ask("tools/call", {"name": "exit_plan_mode", "arguments": {"plan": PLAN}})
        assert '"exitPlan": true' in marked["content"][0]["text"]
        assert "structuredContent" not in marked
        await running.cancel()
