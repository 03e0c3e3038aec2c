"""Connect to a remote server: streamable HTTP, or the legacy SSE transport before it, with the user's headers."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from ssl import SSLContext
from typing import Any, Final, Self

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord, RemoteCause
from quarterdeck_protocol.link.frames import RemoteServer
from quarterdeck_protocol.secrets import origin_of
from quarterdeck_protocol.tls import CertificateFileError, tls_context
from quarterdeck_worker.access import Access
from quarterdeck_worker.server import ServerFault

from .authorization import BearerAuth
from .bodies import CODINGS, bound
from .client import PatientClient
from .event_filter import ENVELOPE_BYTES
from .internet_only import InternetOnlyTransport
from .legacy import sse_streams
from .recorder import StatusRecorder

CONNECT_S: Final = 15.0
"""To reach a host; what the server then does with a request has the call's own deadline."""

READ_S: Final = 3600.0
"""Longer than any call's usual deadline: the link's clock decides, not the HTTP client's."""


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
        ServerFault: a file of its row's certificates cannot be used.
        BaseExceptionGroup: around whatever the network said, nested as the SDK does.
    """

    async def keep_small(response: httpx2.Response) -> None:
        bound(response, max_bytes)

    async def listen(response: httpx2.Response) -> None:
        if legacy or response.request.method != "GET":  # what a GET means is its stream's to say
            await recorder.listen(response)

    tls = _tls_of(server)

    def client() -> httpx2.AsyncClient:
        return PatientClient(
            origin_of(server.url),
            recorder,
            max_bytes,
            is_legacy=legacy,
            headers={"Accept-Encoding": ", ".join(CODINGS), **server.headers},
            timeout=httpx2.Timeout(CONNECT_S, read=READ_S),
            auth=BearerAuth(server.url, access or Access(), listen),
            event_hooks={"response": [keep_small]},
            verify=tls,
            # A proxy resolves names itself, so this process could check no address.
            transport=InternetOnlyTransport(tls) if server.internet_only and not server.proxy else None,
            proxy=server.proxy or None,
            trust_env=False,  # what our own environment says is not the row's word
        )

    async with client() as http:
        streams: AbstractAsyncContextManager[tuple[Any, Any]] = (
            sse_streams(server.url, http, max_bytes)
            if legacy
            else streamable_http_client(server.url, http_client=http, max_sse_event_size=max_bytes + ENVELOPE_BYTES)
        )
        async with streams as (read, write):
            yield read, write


def _tls_of(server: RemoteServer) -> SSLContext:
    try:
        return tls_context(server.ca_file, server.client_cert, server.client_key)
    except CertificateFileError as error:
        cause = RemoteCause.of(error.__cause__)
        fault = FaultRecord(FaultKind.TRANSPORT, str(error), "config_invalid", Delivery.NOT_SENT, cause)
        raise ServerFault(fault) from error


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
