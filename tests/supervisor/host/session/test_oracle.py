"""Conversations as real clients have them, through our session and through the SDK's server: the same JSON.

The greetings are those of the clients named, as they send them; what follows is what most of them do.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from support.tools.tool_boxes import LiveBox, answer

from quarterdeck.host.provider import ProviderHostInfo, create_provider_host

KEY = "io.modelcontextprotocol/"
TOOL = {"name": "s__echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}
RESULT = {"content": [{"type": "text", "text": "hello"}], "isError": False}


def greeting(version: str, name: str, client_version: str, **capabilities: Any) -> dict[str, Any]:
    info = {"name": name, "version": client_version}
    return {"protocolVersion": version, "capabilities": capabilities, "clientInfo": info}


LEGACY = {
    "claude-desktop": greeting("2025-06-18", "claude-ai", "0.1.0", extensions={"io.modelcontextprotocol/ui": {}}),
    "claude-code": greeting("2025-11-25", "claude-code", "2.0.14", roots={}, elicitation={}),
    "cursor": greeting("2025-06-18", "cursor-vscode", "1.0.0", tools=True, roots={"listChanged": False}),
    "vscode": greeting("2025-11-25", "Visual Studio Code", "1.104.0", roots={"listChanged": True}, sampling={}),
    "cline": greeting("2025-03-26", "Cline", "3.17.0"),
    "zed": greeting("2024-11-05", "Zed", "0.190.0", experimental={}),
    "goose": greeting("2025-03-26", "goose", "1.9.0", sampling={}),
    "continue": greeting("2024-11-05", "continue-client", "1.0.0"),
    "inspector": greeting("2025-11-25", "mcp-inspector", "0.17.0", sampling={}, elicitation={"form": {}, "url": {}}),
    "windsurf": greeting("2024-11-05", "windsurf-client", "1.0.0", roots={"listChanged": True}),
    "future": greeting("2099-01-01", "tomorrow", "9"),
}
MODERN = {
    name: {
        f"{KEY}protocolVersion": "2026-07-28",
        f"{KEY}clientInfo": {"name": name, "version": "2.3.0"},
        f"{KEY}clientCapabilities": capabilities,
    }
    for name, capabilities in {
        "python-sdk": {},
        "typescript-sdk": {"elicitation": {"form": {}}, "sampling": {}},
    }.items()
}

ASKED: Sequence[tuple[str, Any]] = (
    ("tools/list", {}),
    ("tools/list", {"cursor": "x"}),
    ("tools/call", {"name": "s__echo", "arguments": {"text": "hello"}}),
    ("tools/call", {"name": "s__echo"}),
    ("tools/call", {"arguments": {}}),
    ("tools/call", {"name": 5, "arguments": {}}),
    ("tools/list", {"cursor": 5}),
    ("prompts/list", {}),
    ("resources/read", {"uri": "x://y"}),
    ("logging/setLevel", {"level": "debug"}),
    ("ping", {}),
    ("no/such", {}),
    ("server/discover", {}),
    ("initialize", {"protocolVersion": "2025-11-25"}),
)


def conversation(name: str) -> list[dict[str, Any]]:
    meta = {"_meta": MODERN[name]} if name in MODERN else {}
    said: list[dict[str, Any]] = []
    if name in LEGACY:
        said = [
            {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": LEGACY[name]},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
        ]
    asked = [(method, params) for method, params in ASKED if method != "initialize" or name in MODERN]
    for number, (method, params) in enumerate(asked, 1):
        said.append({"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, **meta}})
    return said


async def replies(streams: Any, said: Sequence[dict[str, Any]]) -> dict[Any, Any]:
    read, write = streams
    found = {}
    for message in said:
        line = json.dumps(message)
        await write.send(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))
        if "id" in message:
            got = await read.receive()
            answered = json.loads(got.message.model_dump_json(by_alias=True, exclude_unset=True))
            found[answered["id"], message["method"]] = answered
    return found


async def through_the_sdk(said: Sequence[dict[str, Any]]) -> dict[Any, Any]:
    """The answers of the SDK's server."""

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult.model_validate({"tools": [TOOL]})

    async def call_tool(_: Any, __: Any) -> types.CallToolResult:
        return types.CallToolResult.model_validate(RESULT)

    listen = ListenHandler(InMemorySubscriptionBus())
    server: Server[Any] = Server(
        "hub", version="1", on_list_tools=list_tools, on_call_tool=call_tool, on_subscriptions_listen=listen
    )
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    async with create_client_server_memory_streams() as (client, ours), anyio.create_task_group() as tasks:
        tasks.start_soon(server.run, *ours, options)
        found = await replies(client, said)
        tasks.cancel_scope.cancel()
    return found


async def through_us(said: Sequence[dict[str, Any]]) -> dict[Any, Any]:
    box = LiveBox()
    box.graft("s__echo", answer(RESULT), **TOOL)
    host = create_provider_host(box, ProviderHostInfo("hub", "1"))
    async with create_client_server_memory_streams() as (client, ours):
        running = await host.connect(ours)
        found = await replies(client, said)
        await running.cancel()
    return found


@pytest.mark.parametrize("name", [*LEGACY, *MODERN])
async def test_a_client_is_answered_as_the_sdk_answers_it(name: str) -> None:
    """Clients are written against that server: any other answer is a bug that one of them has found."""
    said = conversation(name)
    async with asyncio.timeout(20):
        assert await through_us(said) == await through_the_sdk(said)
