"""A host served over real pipes in this process, and a client that reads and writes raw lines."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from support.clients.mcp_clients import ENVELOPE, LEGACY

from quarterdeck.host.journal import Interrupted, Journal
from quarterdeck.host.provider import ProviderHostImpl
from quarterdeck.host.stdio.serve import serve_stdio

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

    async def open_legacy(self) -> None:
        info = {"name": "raw", "version": "1"}
        answer = await self.ask("init", "initialize", protocolVersion=LEGACY, capabilities={}, clientInfo=info)
        assert answer["result"]["protocolVersion"] == LEGACY
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def open_modern(self) -> None:
        self.meta = ENVELOPE
        answer = await self.ask("discover", "server/discover")
        assert answer["result"]["resultType"] == "complete"

    def close_reading(self) -> None:
        self._read_end.close()

    async def leave(self) -> None:
        self._writer.close()
        await asyncio.sleep(0)


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
async def sdk_transport(client: LineClient) -> AsyncIterator[TransportStreams]:
    """A line client as a transport for the stock SDK client."""
    to_sdk, sdk_reads = anyio.create_memory_object_stream[SessionMessage | Exception](16)
    sdk_writes, from_sdk = anyio.create_memory_object_stream[SessionMessage](16)

    async def read() -> None:
        async with to_sdk:
            while line := await client.line():
                await to_sdk.send(SessionMessage(jsonrpc_message_adapter.validate_json(line)))

    async def write() -> None:
        async with from_sdk:
            async for item in from_sdk:
                await client.send(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

    async with anyio.create_task_group() as tasks, sdk_reads, sdk_writes:
        tasks.start_soon(read)
        tasks.start_soon(write)
        yield sdk_reads, sdk_writes
        tasks.cancel_scope.cancel()
