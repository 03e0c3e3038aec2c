"""Greet a server through the SDK's session: agree on an era, and say who is there.

The order is the relay's (`mcp/client/greeting`): the handshake first, then `server/discover` if the server refuses it.
"""

import anyio
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from quarterdeck_protocol.link.frames import ServerCard
from quarterdeck_protocol.mcp.client.greeting import (
    DISCOVER_S,
    HANDSHAKE_REFUSED,
    LISTS,
    MAX_GREETING_BYTES,
    MAX_INFO_BYTES,
    MAX_INSTRUCTIONS_CHARS,
    MAX_NAME_CHARS,
    UNSUPPORTED_REVISION,
)

from .session import as_json


async def greet(session: ClientSession, forced: str | None = None) -> ServerCard:
    """Agree on an era and return the server's description of itself.

    Args:
        session: entered, not yet greeted.
        forced: the one revision that may be spoken; None for any.

    Raises:
        MCPError: the server refused both ways, or the only permitted one.
        RuntimeError: it speaks an unknown revision, or one that differs from the forced one.
    """
    await (_agree(session) if forced is None else _insist(session, forced))
    return card_of(session)


async def _agree(session: ClientSession) -> None:
    """Shake hands; if the server refuses, discover its revisions."""
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
            raise  # only a modern server sends this code: its second answer has the reason
        raise refused from None


async def _insist(session: ClientSession, revision: str) -> None:
    """Agree on this revision or on none."""
    try:
        if revision in HANDSHAKE_PROTOCOL_VERSIONS:
            await _initialize_as(session, revision)
        else:
            await session.discover()
    except MCPError as error:
        if error.error.code not in (types.UNSUPPORTED_PROTOCOL_VERSION, types.METHOD_NOT_FOUND):
            raise
        raise RuntimeError(f"it does not speak {revision}, which the key protocol of its row forces") from error
    if session.protocol_version != revision:
        spoken = session.protocol_version
        raise RuntimeError(f"it speaks {spoken}, and not {revision}, which the key protocol of its row forces")


async def _initialize_as(session: ClientSession, revision: str) -> None:
    """As the SDK's own `initialize`, which asks for the newest revision."""
    params = types.InitializeRequestParams(
        protocol_version=revision,
        capabilities=session._build_capabilities(revision),  # noqa: SLF001 - it has no other way to say them (mcp 2.3)
        client_info=session._client_info,  # noqa: SLF001
    )
    session.adopt(await session.send_request(types.InitializeRequest(params=params), types.InitializeResult))
    await session.send_notification(types.InitializedNotification())


def card_of(session: ClientSession) -> ServerCard:
    """What the server of a greeted session said of itself."""
    info, capabilities = session.server_info, session.server_capabilities
    lists = {name: getattr(capabilities, name, None) for name in LISTS}
    whole = b"{}" if capabilities is None else _dumped(capabilities)
    who = b"{}" if info is None else _dumped(info)
    return ServerCard(
        era=session.protocol_version or "",
        name=info.name[:MAX_NAME_CHARS] if info else "",
        version=info.version[:MAX_NAME_CHARS] if info else "",
        instructions=(session.instructions or "")[:MAX_INSTRUCTIONS_CHARS],
        announces=tuple(sorted(name for name, each in lists.items() if each is not None and each.list_changed)),
        title=((info.title if info else None) or "")[:MAX_NAME_CHARS],
        capabilities=whole if len(whole) <= MAX_GREETING_BYTES else b"{}",
        info=who if len(who) <= MAX_INFO_BYTES else b"{}",
    )


def _dumped(said: types.ServerCapabilities | types.Implementation) -> bytes:
    return as_json(said.model_dump(by_alias=True, mode="json", exclude_none=True))


def is_modern(era: str) -> bool:
    """Whether requests of this era carry an envelope."""
    return era in MODERN_PROTOCOL_VERSIONS
