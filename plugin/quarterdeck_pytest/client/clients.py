"""Clients of one server: `McpClient` for plain tests, `AsyncMcpClient` for coroutines, with the same methods.

What a server sends is given as it is: definitions and results are its own JSON.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec

from quarterdeck_protocol.contract import RemoteCallResult
from quarterdeck_protocol.offers import Listing

from .backends import Backend
from .connection import Pending
from .transcript import Transcript

Json = dict[str, Any]


class Requests:
    """The requests of both clients, each on its way."""

    def __init__(self, backend: Backend, transcript: Transcript) -> None:
        self._backend: Final = backend
        self._transcript: Final = transcript

    def call_tool(
        self, name: str, arguments: Mapping[str, object] | None, timeout: float | None
    ) -> Pending[RemoteCallResult]:
        """A call of a tool."""
        body = msgspec.json.encode(dict(arguments or {}))
        self._transcript.note_request("tools/call", f"{name} {body.decode()}")
        return self._backend.call(name, body, timeout).noted(self._transcript.note_end)

    def request(self, method: str, params: Mapping[str, object], timeout: float | None = None) -> Pending[Json]:
        """Another request that is for one thing of the server's."""
        body = msgspec.json.encode(dict(params))
        self._transcript.note_request(method, body.decode())
        pending = self._backend.ask(method, body, timeout).noted(self._transcript.note_end)
        return Pending(pending.future, lambda value: dict(pending.made(value).value), self._transcript.note_end)

    def items(self, listing: Listing) -> Pending[list[Json]]:
        """A list of the server's."""
        self._transcript.note_request(listing.method, "")
        pending = self._backend.items(listing)
        return Pending(pending.future, partial(_decoded, pending), self._transcript.note_end)


def _decoded(pending: Pending[list[bytes]], value: object) -> list[Json]:
    return [msgspec.json.decode(item, type=Json) for item in pending.made(value)]


class McpClient:
    """A client of one server, for tests without a loop.

    What ends without a result raises `ProtocolFault`: it has a `kind`, a `code`, a `remedy`, a `delivery` and, when the
    server died, its `dossier`.  Times are seconds.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def call_tool(
        self, name: str, arguments: Mapping[str, object] | None = None, *, timeout: float | None = None
    ) -> RemoteCallResult:
        """Call a tool: `text`, `content`, `structured_content`, and `is_error`, the tool's own word."""
        __tracebackhide__ = True
        return self._requests.call_tool(name, arguments, timeout).result()

    def list_tools(self) -> list[Json]:
        """The definitions of all tools."""
        __tracebackhide__ = True
        return self._requests.items(Listing.TOOLS).result()

    def list_prompts(self) -> list[Json]:
        """The definitions of all prompts."""
        __tracebackhide__ = True
        return self._requests.items(Listing.PROMPTS).result()

    def list_resources(self) -> list[Json]:
        """The definitions of all resources."""
        __tracebackhide__ = True
        return self._requests.items(Listing.RESOURCES).result()

    def list_resource_templates(self) -> list[Json]:
        """The definitions of all templates of resources."""
        __tracebackhide__ = True
        return self._requests.items(Listing.TEMPLATES).result()

    def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> Json:
        """A prompt's messages."""
        __tracebackhide__ = True
        return self._requests.request("prompts/get", {"name": name, "arguments": dict(arguments or {})}).result()

    def read_resource(self, uri: str) -> Json:
        """A resource's contents."""
        __tracebackhide__ = True
        return self._requests.request("resources/read", {"uri": uri}).result()

    def complete(self, ref: Mapping[str, object], name: str, value: str) -> Json:
        """Values for an argument of a prompt or a template, by the spec's `ref`."""
        __tracebackhide__ = True
        return self._requests.request("completion/complete", _completion(ref, name, value)).result()


class AsyncMcpClient:
    """The same for coroutines, in any task of any asyncio loop: it owns no task and no cancel scope of the test's."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as its twin's
    ) -> RemoteCallResult:
        """See `McpClient`; cancelling it tells the server."""
        return await self._requests.call_tool(name, arguments, timeout)

    async def list_tools(self) -> list[Json]:
        """See `McpClient`."""
        return await self._requests.items(Listing.TOOLS)

    async def list_prompts(self) -> list[Json]:
        """See `McpClient`."""
        return await self._requests.items(Listing.PROMPTS)

    async def list_resources(self) -> list[Json]:
        """See `McpClient`."""
        return await self._requests.items(Listing.RESOURCES)

    async def list_resource_templates(self) -> list[Json]:
        """See `McpClient`."""
        return await self._requests.items(Listing.TEMPLATES)

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> Json:
        """See `McpClient`."""
        return await self._requests.request("prompts/get", {"name": name, "arguments": dict(arguments or {})})

    async def read_resource(self, uri: str) -> Json:
        """See `McpClient`."""
        return await self._requests.request("resources/read", {"uri": uri})

    async def complete(self, ref: Mapping[str, object], name: str, value: str) -> Json:
        """See `McpClient`."""
        return await self._requests.request("completion/complete", _completion(ref, name, value))


def _completion(ref: Mapping[str, object], name: str, value: str) -> Json:
    return {"ref": dict(ref), "argument": {"name": name, "value": value}}
