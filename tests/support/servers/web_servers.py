"""Web servers that answer as a test says, byte for byte, on a loopback port of their own."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

Answer = Callable[["Request", asyncio.StreamWriter], Awaitable[None]]
"""Answers one request; the connection is closed afterwards."""

MAX_HEAD_BYTES = 64 * 1024


@dataclass(frozen=True)
class Request:
    """What came: `target` as on the request line, header names in lower case."""

    target: str
    headers: dict[str, str]


@dataclass
class WebServer:
    """A server that runs, and what it was asked."""

    port: int
    requests: list[Request] = field(default_factory=list)
    open: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def serving(answer: Answer | bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[WebServer]:
    """A server that gives `answer` to every request, for as long as the block lasts."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.open += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            pairs = (line.split(": ", 1) for line in lines)
            request = Request(first.split(" ")[1], {name.lower(): value for name, value in pairs})
            server.requests.append(request)
            if isinstance(answer, bytes):
                writer.write(answer)
            else:
                await answer(request, writer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has what it wanted
        finally:
            server.open -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls, limit=MAX_HEAD_BYTES)
    server = WebServer(listener.sockets[0].getsockname()[1])
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def response(
    body: bytes | str = b"", content_type: str = "text/plain; charset=utf-8", status: int = 200, **headers: str
) -> bytes:
    """A whole response; `headers` by their names with `_` for `-`, an empty one is left out."""
    data = body.encode() if isinstance(body, str) else body
    fields = {"Content-Type": content_type, "Content-Length": str(len(data))}
    fields |= {name.replace("_", "-").title(): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
    return f"HTTP/1.1 {status} Whatever\r\n{lines}\r\n".encode() + data


def redirect(location: str, status: int = 302) -> bytes:
    return response("moved", status=status, location=location)


def zeros_gzipped(length_bytes: int) -> bytes:
    """Gzip of so many zeros, in members of 16 MiB: about a thousandth of them."""
    return gzip.compress(bytes(1 << 24), 9) * (length_bytes >> 24)


def gzipped(text: str) -> bytes:
    return gzip.compress(text.encode())
