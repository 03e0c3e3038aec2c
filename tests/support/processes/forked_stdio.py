"""A stock client's transport to a `serve` that is forked: as the SDK's own, which starts a command line."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from support.processes.forks import Fork

LINE_BYTES: Final = 16 << 20

END_S: Final = 20.0
"""Patience with a `serve` whose stdin is closed, on a busy machine."""

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def forked_stdio(serve: Fork) -> AsyncIterator[Streams]:
    """Its streams; with the block its stdin ends, and it is waited for."""
    heard, reads = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writes, said = anyio.create_memory_object_stream[SessionMessage](0)
    stdin = serve.stdin
    assert stdin is not None
    lines = asyncio.StreamReader(LINE_BYTES)
    loop = asyncio.get_running_loop()
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), serve.stdout)

    async def hear() -> None:
        async with heard:
            async for line in lines:
                try:
                    await heard.send(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))
                except anyio.BrokenResourceError:
                    return  # the client left while something was said to it

    async def say() -> None:
        async for each in said:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            stdin.write(text.encode() + b"\n")

    async with heard, reads, writes, said, anyio.create_task_group() as tasks:
        tasks.start_soon(hear)
        tasks.start_soon(say)
        try:
            yield reads, writes
        finally:
            stdin.close()
            with anyio.CancelScope(shield=True):
                await asyncio.to_thread(serve.wait, END_S)
            tasks.cancel_scope.cancel()
    pipe.close()
