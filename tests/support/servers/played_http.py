"""A remote MCP server in the test's own process, each of whose answers a test plays, down to the bytes."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
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


Said = bytes | AsyncGenerator[bytes, None] | None
"""The whole answer, head and body; or it piece by piece, with the connection closed behind it; None hangs up."""

Play = Callable[[HttpAsked], Awaitable[Said]]


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    """An answer with these headers (`retry_after` for `Retry-After`)."""
    named = {"content_length": str(len(body)), **headers}
    lines = [f"HTTP/1.1 {status} Played", *(f"{name.replace('_', '-')}: {value}" for name, value in named.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def result(asked: HttpAsked, found: dict[str, Any]) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": asked.message["id"], **found}).encode()
    return answer(200, body, content_type="application/json", mcp_session_id="session-1")


EVENTS = b"HTTP/1.1 200 Played\r\ncontent-type: text/event-stream\r\nmcp-session-id: session-1\r\n\r\n"
"""The head of a stream of events, which lasts as long as its connection."""


async def events(*said: bytes) -> AsyncGenerator[bytes, None]:
    for each in (EVENTS, *said):
        yield each


def event(message: dict[str, Any], event_id: bytes = b"") -> bytes:
    named = b"id: %s\n" % event_id if event_id else b""
    return named + b"data: %s\n\n" % json.dumps({"jsonrpc": "2.0", **message}).encode()


def echo_event(asked: HttpAsked) -> bytes:
    """The event of what `echo` says."""
    return event({"id": asked.message["id"], "result": {"content": [{"type": "text", "text": asked.text}]}})


def echoed(asked: HttpAsked) -> bytes:
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
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(task := asyncio.current_task())
        try:
            while (asked := await _read(reader)) is not None and (said := await play(asked)) is not None:
                if isinstance(said, bytes):
                    writer.write(said)
                    await writer.drain()
                    continue
                async with aclosing(said):
                    async for piece in said:
                        writer.write(piece)
                        await writer.drain()
                break
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
