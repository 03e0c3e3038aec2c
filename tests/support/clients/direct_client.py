"""What a stock SDK client gets from a stdio server, as raw JSON: the measure of what we pass on.

`Client` parses into models that drop unknown fields; asking its session for a plain dict keeps everything.
"""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TextIO

import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from pydantic import TypeAdapter

JsonObject = dict[str, Any]
"""One decoded JSON object; its values are whatever the server wrote."""

DEADLINE_S: Final = 60.0
"""For connecting and for each request: a real server may need seconds of CPU to start."""

ENVELOPE_KEYS: Final = ("resultType", "ttlMs", "cacheScope")
ENVELOPE_META_PREFIX: Final = "io.modelcontextprotocol/"

_AS_IT_CAME: Final[TypeAdapter[Any]] = TypeAdapter(dict[str, Any])
"""Typed loosely because the session's signature promises a model, though it takes any adapter."""


@dataclass(frozen=True, slots=True)
class DirectConnection:
    """A stock client connected to one server."""

    client: Client

    @property
    def version(self) -> str:
        """The negotiated protocol version, which tells the era."""
        return self.client.protocol_version

    async def list_tools(self) -> list[JsonObject]:
        tools: list[JsonObject] = []
        cursor: str | None = None
        while True:
            params = types.PaginatedRequestParams(cursor=cursor)
            page: JsonObject = await self.client.session.send_request(
                types.ListToolsRequest(params=params), _AS_IT_CAME, DEADLINE_S
            )
            tools += page["tools"]
            if not (cursor := page.get("nextCursor")):
                return tools

    async def call(self, tool: str, arguments: JsonObject, meta: JsonObject | None = None) -> JsonObject:
        """The result of one call, as the server wrote it, its envelope included.

        Raises:
            mcp.shared.exceptions.MCPError: the server answered with an error, or not in time.
            pydantic.ValidationError: its result is no tool result.
        """
        params = types.CallToolRequestParams.model_validate({"name": tool, "arguments": arguments, "_meta": meta})
        request = types.CallToolRequest(params=params)
        result: JsonObject = await self.client.session.send_request(request, _AS_IT_CAME, DEADLINE_S)
        return result


@asynccontextmanager
async def open_direct(
    command: str, args: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> AsyncIterator[DirectConnection]:
    """Connect a stock client, in whichever era the server speaks; its stderr is dropped.

    Args:
        command: the server's executable.
        args: its arguments.
        env: variables on top of the few that the SDK passes on.

    Raises:
        OSError: the command cannot be started.
        ExceptionGroup: connecting failed, or took longer than `DEADLINE_S`.
    """
    parameters = StdioServerParameters(command=command, args=list(args), env=dict(env or {}))
    with _null() as errlog:
        client = Client(stdio_client(parameters, errlog=errlog), cache=None, read_timeout_seconds=DEADLINE_S)
        async with client:
            yield DirectConnection(client)


def _null() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def without_envelope(result: JsonObject) -> JsonObject:
    """The result without the keys that each hop mints anew, and without a `_meta` that held nothing else."""
    bare = {key: value for key, value in result.items() if key not in ENVELOPE_KEYS}
    meta = bare.get("_meta")
    if isinstance(meta, dict) and any(key.startswith(ENVELOPE_META_PREFIX) for key in meta):
        own = {key: value for key, value in meta.items() if not key.startswith(ENVELOPE_META_PREFIX)}
        del bare["_meta"]
        if own:
            bare["_meta"] = own
    return bare
