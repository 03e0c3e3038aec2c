"""Refuse the HTTP requests of a client that has too many open, with 429: each keeps a connection from the others."""

from typing import Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from quarterdeck.host.in_flight import InFlight
from quarterdeck.host.mcp_server import CLIENT
from quarterdeck_protocol.tools import ANONYMOUS, Client

MAX_REQUESTS_EACH: Final = 256
"""Of one client: of a session, or of a token without sessions."""

MAX_REQUESTS: Final = 768
"""Of all, before shares count: three quarters of the connections that are accepted."""

RETRY_S: Final = 1
"""Whole seconds: most calls take less."""


class RequestLimit:
    """Lets through what may be served now."""

    def __init__(self, app: ASGIApp, in_flight: InFlight) -> None:
        """For the requests of `app`; `in_flight` counts what is open, with what does not come here."""
        self._app = app
        self._in_flight = in_flight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http" or scope["method"] == "DELETE":
            await self._app(scope, receive, send)
            return
        client: Client = scope["state"].get(CLIENT, ANONYMOUS)
        if refused := self._in_flight.begin(client.key):
            error = f"too many requests: {refused}; try again when some have been answered"
            answer = JSONResponse({"error": error}, 429, headers={"Retry-After": str(RETRY_S)})
            await answer(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._in_flight.end(client.key)
