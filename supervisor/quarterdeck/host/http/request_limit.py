"""Refuse the HTTP requests of a client that has too much open, with 429: each keeps a connection from the others.

Too much are requests, the bytes of their bodies, and those of answers that it does not read.
"""

from functools import partial
from typing import Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from quarterdeck.common.in_flight import InFlight
from quarterdeck.host.client_use import ClientUses
from quarterdeck.host.held_bytes import HeldBytes
from quarterdeck.host.mcp_server import CLIENT
from quarterdeck.host.sdk_requests import HOLD
from quarterdeck_protocol.tools import ANONYMOUS, Client

from .connection import TAKEN

MAX_REQUESTS_EACH: Final = 256
"""Of one client: of a session, or of a token without sessions."""

MAX_REQUESTS: Final = 768
"""Of all, before shares count: three quarters of the connections that are accepted."""

MAX_HELD_EACH: Final = 32 * 1024 * 1024
"""Bytes of one client: of large requests under way, and of large answers that it has not read."""

MAX_HELD: Final = 128 * 1024 * 1024
"""Of all, before shares count."""

RETRY_S: Final = 1
"""Whole seconds: most calls take less."""


class RequestLimit:
    """Lets through what may be served now."""

    def __init__(
        self, app: ASGIApp, in_flight: InFlight, held: HeldBytes, max_body_bytes: int, uses: ClientUses
    ) -> None:
        """For the requests of `app`; what is counted here is counted with what does not come here."""
        self._app = app
        self._in_flight = in_flight
        self._held = held
        self._max_body_bytes = max_body_bytes
        self._uses = uses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http" or scope["method"] == "DELETE":
            await self._app(scope, receive, send)
            return
        client: Client = scope["state"].get(CLIENT, ANONYMOUS)
        size = self._size(scope)
        limit, refused = "requests", self._in_flight.begin(client.key)
        if not refused and (refused := self._held.begin(client.key, size)):
            limit = "bytes"
            self._in_flight.end(client.key)
        if refused:
            self._uses.refused(client, limit)
            error = f"too many requests: {refused}; try again when some have been answered, and their answers read"
            answer = JSONResponse({"error": error}, 429, headers={"Retry-After": str(RETRY_S)})
            await answer(scope, receive, send)
            return
        kept = [size]
        scope["state"][HOLD] = partial(self._hold, kept)
        try:
            await self._app(scope, receive, send)
            if len(kept) > 1 and (taken := scope["state"].get(TAKEN)) is not None:
                await taken()  # an answer that is written as a whole has left the app, and not us
        finally:
            self._in_flight.end(client.key)
            self._held.end(client.key, sum(kept))

    def _hold(self, kept: list[int], client: Client, size: int) -> str:
        """Keep a result for a client until its request is over, when it has been read; else which bound it met."""
        refused = self._held.begin(client.key, size)
        if not refused:
            kept.append(size)
        return refused

    def _size(self, scope: Scope) -> int:
        """Of the body, as it is declared; else as large as it may be."""
        if scope["method"] != "POST":
            return 0
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        return min(int(declared), self._max_body_bytes) if declared.isdigit() else self._max_body_bytes
