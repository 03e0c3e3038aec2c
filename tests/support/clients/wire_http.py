"""A client that writes HTTP by hand: several requests at once, half of one, or what is none."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from support.clients.raw_client import LEGACY_VERSION

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
ENVELOPE = {
    f"{META}protocolVersion": MODERN,
    f"{META}clientInfo": {"name": "wire", "version": "1"},
    f"{META}clientCapabilities": {},
}


@dataclass
class Reply:
    """One response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def messages(self) -> list[dict[str, Any]]:
        if "event-stream" not in self.headers["content-type"]:
            return [json.loads(self.body)]
        lines = self.body.replace(b"\r\n", b"\n").split(b"\n")
        return [json.loads(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: {")]

    @property
    def answer(self) -> dict[str, Any]:
        return self.messages[-1]


class WireHttp:
    """One connection, with the headers that its requests have."""

    def __init__(self, url: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parts = urlsplit(url)
        self.reader = reader
        self.writer = writer
        self._path = parts.path
        self.headers = {
            "Host": parts.netloc,
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }

    def request(self, message: Any, /, **headers: str) -> bytes:
        """The bytes of a POST; in the names of headers an underscore is a hyphen."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        given = {**self.headers, "Content-Length": str(len(body))}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        return f"POST {self._path} HTTP/1.1\r\n{lines}\r\n".encode() + body

    async def ask(self, message: Any, /, **headers: str) -> Reply:
        self.writer.write(self.request(message, **headers))
        return await self.read()

    async def read(self) -> Reply:
        """The next response.

        Raises:
            asyncio.IncompleteReadError: the connection ended before it did.
        """
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int((await self.reader.readline()), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readline()
        else:
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Reply(int(head[0].split(" ")[1]), headers, body)

    async def listen(self) -> None:
        """Open the stream of a legacy session on which it is told what belongs to no request that is open."""
        self.writer.write(self.request(b"").replace(b"POST", b"GET", 1))
        assert (await self.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")

    async def is_ended(self) -> bool:
        """Wait until the server hangs up."""
        with contextlib.suppress(ConnectionError):
            await self.reader.read()
        return True

    async def greet(self) -> None:
        info = {"name": "wire", "version": "1"}
        params = {"protocolVersion": LEGACY_VERSION, "capabilities": {}, "clientInfo": info}
        greeted = await self.ask({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        self.headers["Mcp-Session-Id"] = greeted.headers["mcp-session-id"]
        self.headers["Mcp-Protocol-Version"] = LEGACY_VERSION
        assert (await self.ask({"jsonrpc": "2.0", "method": "notifications/initialized"})).status == 202
        # Its handling goes on after its response; a request waits for it.
        await self.ask({"jsonrpc": "2.0", "id": "p", "method": "ping"})

    async def introduce(self) -> None:
        """Speak 2026-07-28 from here on, the envelope accepted once."""
        self.headers["Mcp-Protocol-Version"] = MODERN
        listed = {"jsonrpc": "2.0", "id": 0, "method": "tools/list", "params": {"_meta": ENVELOPE}}
        assert (await self.ask(listed, Mcp_Method="tools/list")).status == 200


@asynccontextmanager
async def wired(url: str, like: WireHttp | None = None) -> AsyncIterator[WireHttp]:
    """A connection to `url`, of the session of `like` where it is given."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        client = WireHttp(url, reader, writer)
        if like is not None:
            client.headers |= like.headers
        yield client
    finally:
        writer.close()


def call(
    number: int | str, name: str = "s__t", /, meta: dict[str, Any] | None = None, **arguments: Any
) -> dict[str, Any]:
    """A `tools/call`."""
    params: dict[str, Any] = {"name": name, "arguments": arguments}
    if meta is not None:
        params["_meta"] = meta
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
