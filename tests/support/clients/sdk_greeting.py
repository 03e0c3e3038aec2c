"""Greet and ask a server through the SDK's session in the order in which the relay does: the measure of the relay."""

from typing import Any

import anyio
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from quarterdeck_protocol.mcp.client.greeting import DISCOVER_S, HANDSHAKE_REFUSED, UNSUPPORTED_REVISION


async def greet(session: ClientSession, forced: str | None = None) -> None:
    """Agree on an era: the handshake first, then `server/discover` if the server refuses it; or on the forced one.

    Raises:
        MCPError: the server refused both ways, or the only permitted one.
        RuntimeError: it speaks an unknown revision, or another one than the forced.
    """
    if forced is None:
        await _agree(session)
        return
    if forced in HANDSHAKE_PROTOCOL_VERSIONS:
        params = types.InitializeRequestParams(
            protocol_version=forced, capabilities=session._build_capabilities(forced), client_info=session._client_info
        )
        session.adopt(await session.send_request(types.InitializeRequest(params=params), types.InitializeResult))
        await session.send_notification(types.InitializedNotification())
    else:
        await session.discover()
    if session.protocol_version != forced:
        raise RuntimeError(f"it speaks {session.protocol_version}, and not {forced}")


async def _agree(session: ClientSession) -> None:
    refused: Exception
    try:
        await session.initialize()
        return
    except MCPError as error:
        if error.error.code not in HANDSHAKE_REFUSED:
            raise
        refused = error
    except (ValidationError, RuntimeError) as error:
        refused = error
    try:
        with anyio.fail_after(DISCOVER_S):
            await session.discover()
    except (MCPError, ValidationError, RuntimeError, TimeoutError):
        if isinstance(refused, MCPError) and refused.error.code == UNSUPPORTED_REVISION:
            raise
        raise refused from None


async def list_all(session: ClientSession, method: str, member: str) -> list[Any]:
    """Every item of a list, past the SDK's models, which lose what they do not know."""
    items: list[Any] = []
    cursor: str | None = None
    while True:
        data: dict[str, Any] = {"method": method, "params": {"cursor": cursor} if cursor is not None else {}}
        options: CallOptions = {}
        session._stamp(data, options)
        page = await session._dispatcher.send_raw_request(method, data["params"], options)
        items += page[member]
        if (cursor := page.get("nextCursor")) is None:
            return items
