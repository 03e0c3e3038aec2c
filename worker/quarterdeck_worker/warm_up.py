"""Live a server's life once before the first fork, so that no worker has to load, build or learn it again.

The SDK imports and builds much on first use; done in a worker it costs each of them six private megabytes (measured).
The server is a script in memory, and its loop has ended before anything is forked.
"""

import asyncio
from typing import Any, Final

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.session import ClientSession
from mcp.shared.message import SessionMessage

from quarterdeck_worker.greeting import greet, request_envelope
from quarterdeck_worker.listing import list_tools
from quarterdeck_worker.session import CLIENT, SERVER_CONFIG

_ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "warm-up", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object", "properties": {}}}]},
}


def warm_up() -> None:
    """Greet and list a scripted server in both ways that a real one is greeted."""
    SERVER_CONFIG.validate_json('{"id": "warm-up", "kind": "stdio", "command": "true"}')
    asyncio.run(_rehearse())


async def _rehearse() -> None:
    to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](1)
    from_session, to_server = anyio.create_memory_object_stream[SessionMessage](1)
    async with to_session, from_server, from_session, to_server, anyio.create_task_group() as tasks:
        tasks.start_soon(_play_server, to_server, to_session)
        async with ClientSession(from_server, from_session, client_info=CLIENT) as session:
            card = await greet(session, "")
            request_envelope(card.era, CLIENT)
            await list_tools(session)
        tasks.cancel_scope.cancel()


async def _play_server(
    requests: MemoryObjectReceiveStream[SessionMessage], answers: MemoryObjectSendStream[SessionMessage | Exception]
) -> None:
    async for item in requests:
        request = item.message
        item.message.model_dump_json(by_alias=True, exclude_unset=True)
        if not isinstance(request, types.JSONRPCRequest):
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request.id}
        if request.method in _ANSWERS:
            reply["result"] = _ANSWERS[request.method]
        else:
            reply["error"] = {"code": types.METHOD_NOT_FOUND, "message": "unknown"}
        await answers.send(SessionMessage(types.jsonrpc_message_adapter.validate_python(reply, by_name=False)))
