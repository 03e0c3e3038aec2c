"""Stock SDK clients over any pair of streams, and what a 2026-07-28 client says about itself."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from mcp.client._transport import TransportStreams
from mcp.client.client import Client
from mcp.shared.memory import create_client_server_memory_streams

from quarterdeck.host.provider import ProviderHostImpl, RunningProviderHost

LEGACY: Final = "2025-11-25"
MODERN: Final = "2026-07-28"

ENVELOPE: Final[dict[str, Any]] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
}


@asynccontextmanager
async def in_memory(
    host: ProviderHostImpl, mode: str, *, within_s: float = 10.0, **options: Any
) -> AsyncIterator[tuple[Client, RunningProviderHost]]:
    """A stock client of `host` in one era, and the host's side of the connection; all gone at the end."""
    async with create_client_server_memory_streams() as (client_streams, server_streams):
        running = await host.connect(server_streams)

        @asynccontextmanager
        async def transport() -> AsyncIterator[TransportStreams]:
            yield client_streams

        with anyio.fail_after(within_s):
            async with Client(transport(), mode=mode, cache=None, **options) as client:
                yield client, running
        await running.cancel()
