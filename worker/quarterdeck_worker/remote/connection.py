"""Connect to a remote server: streamable HTTP, or the legacy SSE transport before it, with the user's headers."""

from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager
from typing import Any, Final, Self

import anyio
import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from quarterdeck_protocol.link.frames import RemoteServer
from quarterdeck_worker.access import Access

from .authorization import BearerAuth
from .handshake import is_modern

CONNECT_S: Final = 15.0
"""To reach a host; what the server then does with a request has the call's own deadline."""

READ_S: Final = 3600.0
"""Longer than any call's usual deadline: the link's clock decides, not the HTTP client's."""


MOST_EXPANSION: Final = 1024
"""How many times its size a compressed body can have (deflate, RFC 1951): we ask for none, and still may get one."""


class StatusRecorder:
    """What HTTP said that the SDK does not pass on: it turns every bad status into one opaque error."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.fatal: Container[int] = ()
        self.rejected = anyio.Event()

    async def listen(self, response: httpx2.Response) -> None:
        """Remember the last bad status; `rejected` is set once a message is refused with a fatal one."""
        if response.status_code >= 400:
            self.status = response.status_code
            if response.status_code in self.fatal and response.request.method == "POST":
                self.rejected.set()

    def expect(self, era: str, *, legacy: bool) -> None:
        """From here on, know what says that this connection is of no use any more: each transport has its own words."""
        if legacy:
            self.fatal = range(400, 600)  # the SDK's writer ends with the first of them, and says nothing
        elif is_modern(era):
            self.fatal = (401,)
        else:
            self.fatal = (401, 404)  # 404: the server knows no such session (2025-11-25, "Session Management")

    @property
    def wants_credentials(self) -> bool:
        """Whether the server refused us for who we are."""
        return self.status in (401, 403)

    @property
    def is_another_transport(self) -> bool:
        """Whether the refusal is what a legacy SSE server says to a POST."""
        return self.status in (400, 404, 405)


class BoundedBody(httpx2.AsyncByteStream):
    """A body that ends in an error where it exceeds its bound: the SDK takes whole bodies into memory."""

    def __init__(self, body: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._body = body
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The body's pieces.

        Raises:
            httpx2.StreamError: they are more than the bound.
        """
        left = self._max_bytes
        async for piece in self._body:
            left -= len(piece)
            if left < 0:
                raise httpx2.StreamError(f"a body of more than {self._max_bytes:,} bytes")
            yield piece

    async def aclose(self) -> None:
        """See `AsyncByteStream`."""
        await self._body.aclose()


@asynccontextmanager
async def dial(
    server: RemoteServer, max_bytes: int, recorder: StatusRecorder, access: Access | None = None, *, legacy: bool
) -> AsyncIterator[tuple[Any, Any]]:
    """The stream pair of a connection to `server.url`; nothing was sent yet on streamable HTTP.

    Args:
        server: its headers go to its origin only (the SDK follows no other redirect).
        max_bytes: of one body, and of one event of a stream.
        recorder: learns of bad statuses.
        access: the token of our login there; None without one.
        legacy: dial the SSE transport of 2024-11-05.

    Raises:
        BaseExceptionGroup: around whatever the network said, nested as the SDK does.
    """

    async def bound(response: httpx2.Response) -> None:
        is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        if is_stream and response.is_success:
            return  # without an end; each event is bounded
        is_plain = response.headers.get("content-encoding", "identity").lower() == "identity"
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = BoundedBody(response.stream, max_bytes // (1 if is_plain else MOST_EXPANSION))

    def client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,  # noqa: ARG001 - the factory's shape; ours is longer
        auth: httpx2.Auth | None = None,  # noqa: ARG001
    ) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers={"Accept-Encoding": "identity", **server.headers, **(headers or {})},
            timeout=httpx2.Timeout(CONNECT_S, read=READ_S),
            auth=BearerAuth(server.url, access or Access(), recorder.listen),
            event_hooks={"response": [bound]},
        )

    if legacy:
        async with sse_client(server.url, httpx_client_factory=client) as (read, write):
            yield read, write
    else:
        async with (
            client() as http,
            streamable_http_client(server.url, http_client=http, max_sse_event_size=max_bytes) as (
                read,
                write,
            ),
        ):
            yield read, write


class EndNotice:
    """A read stream that says when it ends; the SDK's session keeps that to itself."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.ended = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self.ended.set()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> Any:
        return await self._stream.__aexit__(*exc)
