"""A client that costs little: many connections of streamable HTTP, each with one `tools/call` under way at a time.

It reads of an answer no more than where it ends, and one in so many whole, so that the server and not the client is
measured.  Any server of the legacy era can be called, whether it answers JSON or a stream of events.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import anyio
from support.clients.raw_client import LEGACY_VERSION
from support.waiting import POLL_S

from .finding import NotMeasuredError
from .rounds import Sample, p50_of

GREET_S: Final = 60.0
"""For a server to be greeted, and to list its tool."""

SAMPLE_S: Final = 120.0
"""For one sample, which takes seconds at the most."""

_ACCEPT: Final = "application/json, text/event-stream"


class BadAnswerError(Exception):
    """A server answered something that is no result of the call; holds what it sent."""


class _Connection(asyncio.Protocol):
    """One connection: a request, then all of its response."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._ended: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._ended is not None and not self._ended.done() and _is_whole(self._data):
            whole, self._data = bytes(self._data), bytearray()
            self._ended.set_result(whole)

    def connection_lost(self, error: Exception | None) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(BadAnswerError(f"closed after {bytes(self._data)!r}"))

    async def ask(self, request: bytes) -> bytes:
        assert self._transport is not None
        self._ended = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._ended

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _is_whole(data: bytearray) -> bool:
    head, found, _ = data.partition(b"\r\n\r\n")
    if not found:
        return False
    lowered = bytes(head).lower()
    if b"transfer-encoding: chunked" in lowered:
        return data.endswith(b"\r\n0\r\n\r\n")
    _, found, rest = lowered.partition(b"content-length:")
    return not found or len(data) >= len(head) + 4 + int(rest.partition(b"\r\n")[0])


def answer_of(response: bytes) -> dict[str, object]:
    _, _, body = response.partition(b"\r\n\r\n")
    start, end = body.find(b'{"'), body.rfind(b"}")
    try:
        answer: dict[str, object] = json.loads(body[start : end + 1])
    except ValueError:
        raise BadAnswerError(response) from None
    return answer


class HttpLoad:
    """Connections of one session that call one tool."""

    def __init__(self, url: str, token: str, count: int) -> None:
        self._url = urlsplit(url)
        self._token = token
        self._count = count
        self._session = ""
        self._connections: list[_Connection] = []
        self._ids = 0

    async def connect(self) -> None:
        """Open every connection anew: while another server was measured, this one may have closed idle ones."""
        self.close()
        loop, url = asyncio.get_running_loop(), self._url
        for _ in range(self._count):
            _, opened = await loop.create_connection(_Connection, url.hostname, url.port)
            self._connections.append(opened)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def end(self) -> None:
        """Hang up for good."""
        self.close()

    async def call_once(self, connection: _Connection, tool: str, text: str) -> None:
        """One call; one in a hundred is looked at.

        Raises:
            BadAnswerError: it has no result, or another's.
        """
        self._ids += 1
        params = {"name": tool, "arguments": {"text": text}}
        response = await self._ask(connection, "tools/call", params, self._ids)
        if self._ids % 100 == 0 and text not in json.dumps(answer_of(response).get("result")):
            raise BadAnswerError(response)

    def p50(self, tool: str, text: str, calls: int) -> Sample:
        """The median duration of one call at a time, in milliseconds."""

        async def sample() -> float:
            async with asyncio.timeout(SAMPLE_S):
                await self.connect()
                return await p50_of(lambda: self.call_once(self._connections[0], tool, text), calls)()

        return sample

    def rate(self, tool: str, text: str, calls: int) -> Sample:
        async def lane(connection: _Connection, share: int) -> None:
            for _ in range(share):
                await self.call_once(connection, tool, text)

        async def sample() -> float:
            share = calls // self._count
            async with asyncio.timeout(SAMPLE_S):
                await self.connect()
                started = time.perf_counter()
                await asyncio.gather(*(lane(one, share) for one in self._connections))
            return share * self._count / (time.perf_counter() - started)

        return sample

    async def greet(self, *tools: str) -> None:
        """Open the session, and wait until it lists all these tools."""
        info = {"name": "bench", "version": "0"}
        params = {"protocolVersion": LEGACY_VERSION, "capabilities": {}, "clientInfo": info}
        first = self._connections[0]
        greeted = await self._ask(first, "initialize", params, 0)
        answer_of(greeted)
        heads = greeted.partition(b"\r\n\r\n")[0].decode().split("\r\n")
        named = [head.partition(":")[2].strip() for head in heads if head.lower().startswith("mcp-session-id:")]
        self._session = named[0] if named else ""
        await first.ask(self._request("notifications/initialized", None, None))
        while not _has_all(await self.list_tools(), tools):  # noqa: ASYNC110 - nobody tells
            await anyio.sleep(POLL_S)

    async def list_tools(self) -> bytes:
        """The whole response to `tools/list`.

        Raises:
            BadAnswerError: it is none.
        """
        self._ids += 1
        return await self._ask(self._connections[0], "tools/list", {}, self._ids)

    async def _ask(self, connection: _Connection, method: str, params: object, number: int) -> bytes:
        """The whole response with the answer to one request.

        Raises:
            BadAnswerError: it is none.
        """
        response = await connection.ask(self._request(method, params, number))
        if not response.startswith(b"HTTP/1.1 200"):
            raise BadAnswerError(response)
        return response

    def _request(self, method: str, params: object, number: int | None) -> bytes:
        message: dict[str, object] = {"jsonrpc": "2.0", "method": method}
        if number is not None:
            message["id"] = number
        if params is not None:
            message["params"] = params
        body = json.dumps(message, separators=(",", ":")).encode()
        path = f"{self._url.path}?{self._url.query}" if self._url.query else self._url.path
        head = f"POST {path} HTTP/1.1\r\nHost: {self._url.netloc}\r\nAccept: {_ACCEPT}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        head += f"Authorization: Bearer {self._token}\r\n" if self._token else ""
        if self._session:
            head += f"Mcp-Session-Id: {self._session}\r\nMcp-Protocol-Version: {LEGACY_VERSION}\r\n"
        return head.encode() + b"\r\n" + body


class SseLoad(HttpLoad):
    """The same over the transport of 2024-11-05: requests are posted, and one stream of events brings all answers."""

    def __init__(self, url: str, token: str, count: int) -> None:
        super().__init__(url, token, count)
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._stream: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def greet(self, *tools: str) -> None:
        """Open the stream, once the server is ready for it, then the session on it."""
        url = self._url
        request = f"GET {url.path} HTTP/1.1\r\nHost: {url.netloc}\r\nAccept: {_ACCEPT}\r\n\r\n".encode()
        while True:
            reader, self._stream = await asyncio.open_connection(url.hostname, url.port, limit=2**24)
            self._stream.write(request)
            if (await reader.readline()).startswith(b"HTTP/1.1 200"):
                break
            self._stream.close()
            await anyio.sleep(POLL_S)
        while not (line := await reader.readline()).startswith(b"data:"):
            if not line:
                raise BadAnswerError("the stream ended before it named where to post")
        self._url = urlsplit(url._replace(path="", query="").geturl() + line.removeprefix(b"data:").strip().decode())
        self._reading = asyncio.create_task(self._read(reader))
        await super().greet(*tools)

    def end(self) -> None:
        """Hang up for good."""
        super().end()
        if self._stream is not None and self._reading is not None:
            self._reading.cancel()
            self._stream.close()

    async def _ask(self, connection: _Connection, method: str, params: object, number: int) -> bytes:
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        taken = await connection.ask(self._request(method, params, number))
        if not taken.startswith(b"HTTP/1.1 202"):
            raise BadAnswerError(taken)
        return await answer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            found = _ID.search(line) if line.startswith(b"data:") else None
            if found is not None and (answer := self._answers.pop(int(found[1]), None)) is not None:
                answer.set_result(b"\r\n\r\n" + line)


def _has_all(listed: bytes, tools: Sequence[str]) -> bool:
    return all(tool.encode() in listed for tool in tools)


_ID: Final = re.compile(rb'"id":(\d+)')


@asynccontextmanager
async def http_load(
    url: str, *tools: str, connections: int, token: str = "", kind: type[HttpLoad] = HttpLoad
) -> AsyncIterator[HttpLoad]:
    """So many connections to `url`, in one session that has listed these tools.

    Raises:
        NotMeasuredError: it never lists them.
    """
    load = kind(url, token, connections)
    try:
        try:
            async with asyncio.timeout(GREET_S):
                await load.connect()
                await load.greet(*tools)
        except TimeoutError:
            raise NotMeasuredError(f"{url} does not list {', '.join(tools)} within {GREET_S:g} s") from None
        yield load
    finally:
        load.end()
