"""A host served over real pipes in this process, and a client that reads and writes raw lines."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from support.clients.mcp_clients import ENVELOPE, LEGACY
from support.tools.offer_fleet import OfferFleet, OfferServer
from support.tools.tool_boxes import Begin, LiveBox, echo

from quarterdeck.host.budget.kept_results import KeptResults
from quarterdeck.host.journal import Interrupted, Journal
from quarterdeck.host.provider import ProviderHostImpl, create_provider_host
from quarterdeck.host.stdio.serve import serve_stdio
from quarterdeck.route.router import Router

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])

_KEY = "io.modelcontextprotocol/"
_AROUND = {"resultType", "ttlMs", "cacheScope"}

LINE_LIMIT = 128 * 1024 * 1024


class LineClient:
    """The client's ends of two pipes."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, read_end: asyncio.ReadTransport
    ) -> None:
        self._reader = reader
        self._read_end = read_end
        self._writer = writer
        self.meta: dict[str, Any] = {}
        self.stop_serving: Callable[[], None] = lambda: None

    async def send(self, *messages: dict[str, Any] | bytes) -> None:
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
            self._writer.write(line)
        await self._writer.drain()

    async def line(self) -> bytes:
        return await self._reader.readline()

    async def receive(self) -> dict[str, Any]:
        return json.loads(await self.line())

    async def ask(self, request_id: int | str, method: str, **params: Any) -> dict[str, Any]:
        await self.send(self.request(request_id, method, **params))
        return await self.receive()

    def request(self, request_id: int | str, method: str, **params: Any) -> dict[str, Any]:
        meta = {**self.meta, **params.pop("meta", {})}
        whole = {**params, "_meta": meta} if meta else params
        return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": whole}

    def call(self, request_id: int | str, name: str, **arguments: Any) -> dict[str, Any]:
        return self.request(request_id, "tools/call", name=name, arguments=arguments)

    async def open(self, era: str, able: dict[str, Any] | None = None) -> None:
        """Introduce itself as a client of `era` that can be asked what `able` says."""
        if era == "modern":
            self.meta = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": able or {}}
            answer = await self.ask("discover", "server/discover")
            assert answer["result"]["resultType"] == "complete"
            return
        info = {"name": "raw", "version": "1"}
        answer = await self.ask("init", "initialize", protocolVersion=LEGACY, capabilities=able or {}, clientInfo=info)
        assert answer["result"]["protocolVersion"] == LEGACY
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def close_reading(self) -> None:
        self._read_end.close()

    async def leave(self) -> None:
        self._writer.close()
        await asyncio.sleep(0)


def own_result(answer: dict[str, Any]) -> dict[str, Any]:
    """The result in an answer as its server gave it, without what the newer era puts around it."""
    result = {name: value for name, value in answer["result"].items() if name not in _AROUND}
    meta = {name: value for name, value in result.pop("_meta", {}).items() if not name.startswith(_KEY)}
    return result | ({"_meta": meta} if meta else {})


@asynccontextmanager
async def served(
    host: ProviderHostImpl,
    limit: int = LINE_LIMIT,
    journal: Journal | None = None,
    interrupted: Interrupted | None = None,
) -> AsyncIterator[LineClient]:
    """A client of `host`, which has stopped serving by the end; it reads at most `2 * limit` ahead."""
    stdin_fd, client_out = os.pipe()
    client_in, stdout_fd = os.pipe()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit)
    read_end, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(client_in, "rb"))
    write_end, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(client_out, "wb"))
    client = LineClient(reader, asyncio.StreamWriter(write_end, protocol, None, loop), read_end)
    try:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:

                async def serve() -> None:
                    try:
                        with anyio.CancelScope() as serving:
                            client.stop_serving = serving.cancel
                            await serve_stdio(
                                host, stdin_fd=stdin_fd, stdout_fd=stdout_fd, journal=journal, interrupted=interrupted
                            )
                    finally:
                        os.close(stdin_fd)
                        os.close(stdout_fd)

                tasks.start_soon(serve)
                yield client
                await client.leave()
    finally:
        read_end.close()
        write_end.close()
        # One turn each for the transports to close their files.
        await asyncio.sleep(0)
        await asyncio.sleep(0)


@asynccontextmanager
async def greeted(
    host: ProviderHostImpl, era: str = "legacy", able: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[LineClient]:
    """The same, once it has introduced itself as a client of `era` that can be asked what `able` says."""
    async with served(host, **options) as client:
        await client.open(era, able)
        yield client


def box_of(begin: Begin = echo) -> LiveBox:
    """A box with one tool, `s__t`."""
    box = LiveBox()
    box.graft("s__t", begin)
    return box


def offering(*servers: OfferServer, results: KeptResults | None = None) -> tuple[ProviderHostImpl, OfferFleet]:
    """A host of servers, and the fleet by which a test has them change and speak."""
    fleet = OfferFleet(*servers)
    leave = results.leave if results is not None else lambda _: None
    router = Router(fleet)
    return create_provider_host(router, offers=router, results=results, on_ended=leave), fleet


@asynccontextmanager
async def client_of(
    *servers: OfferServer, era: str = "legacy", able: dict[str, Any] | None = None, results: KeptResults | None = None
) -> AsyncIterator[tuple[LineClient, OfferFleet]]:
    """A client of the host of these servers, and their fleet."""
    host, fleet = offering(*servers, results=results)
    async with greeted(host, era, able) as client:
        yield client, fleet
