"""Agree on a protocol era with a server; the caller remembers it, so that the next start need not ask.

A server of the 2026 revision answers `server/discover`; every other answer, and silence, means the older handshake.
"""

from typing import Final

import anyio
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from quarterdeck_protocol.link.frames import ServerCard

PROBE_S: Final = 5.0
"""How long a server may think about `server/discover` before it is greeted the old way; some never answer what they
do not know.  One that is only slow refuses the old greeting later, and is asked again."""

MAX_TEXT_CHARS: Final = 64 * 1024
"""A server's instructions beyond it are cut."""


async def greet(session: ClientSession, era: str, forced: str | None = None) -> ServerCard:
    """Agree on an era and say who is there.

    Args:
        session: entered, not yet greeted.
        era: the revision that this server spoke last time, empty when unknown.
        forced: the one revision that may be spoken; None for any.

    Raises:
        MCPError: it refused both ways, or the one that may be.
        RuntimeError: it speaks a revision that nobody knows, or another one than it must.
    """
    if forced is not None:
        await _insist(session, forced)
    elif era in HANDSHAKE_PROTOCOL_VERSIONS:
        await _shake_hands(session)
    else:
        await _probe(session)
    return _card(session)


async def _probe(session: ClientSession) -> None:
    with anyio.move_on_after(PROBE_S):
        try:
            await session.discover()
            return
        except MCPError as error:
            if _is_modern_only(error):
                raise
        except (ValidationError, RuntimeError):
            pass  # it answers the question, but shares no modern revision: an older one it may share
    await _shake_hands(session)


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
        capabilities=types.ClientCapabilities(),
        client_info=session._client_info,  # noqa: SLF001 - it has no other way to say it (mcp 2.3)
    )
    session.adopt(await session.send_request(types.InitializeRequest(params=params), types.InitializeResult))
    await session.send_notification(types.InitializedNotification())


async def _shake_hands(session: ClientSession) -> None:
    try:
        await session.initialize()
    except MCPError as error:
        # Only a modern server says this: it was asleep when it was asked first.
        if error.error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()


def _is_modern_only(error: MCPError) -> bool:
    if error.error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
        return False
    try:
        supported = types.UnsupportedProtocolVersionErrorData.model_validate(error.error.data).supported
    except ValidationError:
        return False
    return not any(version in HANDSHAKE_PROTOCOL_VERSIONS for version in supported)


def _card(session: ClientSession) -> ServerCard:
    info = session.server_info
    capabilities = session.server_capabilities
    tools = capabilities.tools if capabilities is not None else None
    return ServerCard(
        era=session.protocol_version or "",
        name=info.name[:200] if info else "",
        version=info.version[:200] if info else "",
        instructions=(session.instructions or "")[:MAX_TEXT_CHARS],
        announces_tools=bool(tools and tools.list_changed),
    )


def is_modern(era: str) -> bool:
    """Whether requests of this era carry an envelope."""
    return era in MODERN_PROTOCOL_VERSIONS


def request_envelope(era: str, client: types.Implementation) -> dict[str, object]:
    """The `_meta` members that every request of this era carries; empty in the legacy era."""
    if not is_modern(era):
        return {}
    return {
        types.PROTOCOL_VERSION_META_KEY: era,
        types.CLIENT_INFO_META_KEY: client.model_dump(by_alias=True, mode="json", exclude_none=True),
        types.CLIENT_CAPABILITIES_META_KEY: {},
        types.LOG_LEVEL_META_KEY: "info",
    }
