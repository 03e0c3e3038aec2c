"""A remote MCP server in the test's own process, each of whose answers a test plays, down to the bytes."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ssl import SSLContext
from typing import Any

from support.servers.greetings import INITIALIZED, METHOD_NOT_FOUND


@dataclass(frozen=True)
class HttpAsked:
    """A request; `message` is its body, empty without one."""

    method: str
    path: str
    headers: dict[str, str]
    message: dict[str, Any]

    @property
    def text(self) -> str:
        """Of a call of `echo`, its argument."""
        return str(self.message.get("params", {}).get("arguments", {}).get("text", ""))


Play = Callable[[HttpAsked], Awaitable[bytes | None]]
"""The whole answer, head and body; None hangs up."""


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    """An answer with these headers (`retry_after` for `Retry-After`)."""
    named = {"content_length": str(len(body)), **headers}
    lines = [f"HTTP/1.1 {status} Played", *(f"{name.replace('_', '-')}: {value}" for name, value in named.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def result(asked: HttpAsked, found: dict[str, Any]) -> bytes:
    """An answer in MCP, of a server that gives a session."""
    body = json.dumps({"jsonrpc": "2.0", "id": asked.message["id"], **found}).encode()
    return answer(200, body, content_type="application/json", mcp_session_id="session-1")


def echoed(asked: HttpAsked) -> bytes:
    """What `echo` says."""
    return result(asked, {"result": {"content": [{"type": "text", "text": asked.text}]}})


def greeted(asked: HttpAsked) -> bytes | None:
    """What a well-behaved server of 2025-11-25 answers to all but a call; None for a call."""
    if asked.method == "GET":
        return answer(405)
    if "id" not in asked.message:
        return answer(200 if asked.method == "DELETE" else 202)
    match asked.message.get("method"):
        case "initialize":
            return result(asked, INITIALIZED)
        case "tools/call":
            return None
        case "ping":
            return result(asked, {"result": {}})
        case _:
            return result(asked, METHOD_NOT_FOUND)


@asynccontextmanager
async def played_http(play: Play, tls: SSLContext | None = None) -> AsyncIterator[str]:
    """The URL of a server that answers so."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(task := asyncio.current_task())
        try:
            while (asked := await _read(reader)) is not None and (said := await play(asked)) is not None:
                writer.write(said)
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    tasks: set[asyncio.Task[Any] | None] = set()
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()
        left = [task for task in tasks if task is not None]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> HttpAsked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, path, _ = head[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return HttpAsked(method, path, headers, json.loads(body) if body else {})
