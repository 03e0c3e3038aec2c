"""One request over HTTP: its messages go to its exchange, and what is counted of it is given back with its end.

Above it `http_host`, which reads requests; below it `host.session`, which carries them out.
"""

from functools import lru_cache
from typing import Final, Protocol

import msgspec

from quarterdeck.host.session.session import Session
from quarterdeck_protocol.mcp.server.answers import Part
from quarterdeck_protocol.mcp.server.methods import HTTP_STATUS, REQUEST_CANCELLED
from quarterdeck_protocol.mcp.server.requests import Request

from .connection import OK, Exchange
from .sessions import HttpSession

JSON: Final = b"application/json"

EVENTS: Final = b"text/event-stream"


class PostHost(Protocol):
    """Counts what is kept for requests."""

    def keep(self, client: str, size: int) -> str:
        """Keep so much for a client, until its post is over; empty when it was counted, else which bound it met."""


class Post(msgspec.Struct, eq=False):
    """One request over HTTP: the outlet of its messages, which its exchange carries.

    Attributes:
        host: counts it.
        session: carries it out.
        exchange: carries its messages.
        http_session: the legacy session that it is of, if any.
        request: what is under way.
        kept: bytes that are kept of its answer.
    """

    host: PostHost
    session: Session
    exchange: Exchange
    http_session: HttpSession | None
    request: Request
    kept: int = 0

    # The outlet

    @property
    def is_congested(self) -> bool:
        """Whether the client is too slow for what was written."""
        return self.exchange.is_congested

    async def room(self) -> None:
        """Wait while congested."""
        await self.exchange.room()

    def tell(self, message: bytes) -> None:
        """Send an event."""
        self.exchange.tell(message)

    def keep(self, size: int) -> str:
        """Count an answer until the client has taken it."""
        refused = self.host.keep(self.session.client.key, size)
        if not refused:
            self.kept += size
        return refused

    def answer(self, request: Request, parts: tuple[Part, ...], code: int) -> None:
        """Send the answer; in 2026-07-28 some errors have a status of their own, which proxies go by."""
        self.exchange.answer(*parts, status=HTTP_STATUS.get(code, OK) if request.is_modern else OK)

    def drop(self, request: Request) -> None:
        """Say that it was cancelled: in the legacy era a stream ends with an answer alone."""
        self._refuse(REQUEST_CANCELLED, "Request cancelled", request)

    # Its end

    def give_up(self, code: int, why: str) -> None:
        """Give it up, and say why."""
        request = self.request
        if self.session.core.forget(request):
            self._refuse(code, why, request)
            request.work.cancelled(why)

    def end(self) -> None:
        """Give it up because serving ends, and say so."""
        if (work := self.request.work) is not None:
            work.end()

    def gone(self) -> None:
        """Give it up because its client is gone."""
        self.request.work.cancel("the client closed its connection")

    def _refuse(self, code: int, why: str, request: Request) -> None:
        if not self.exchange.has_begun:
            # As an event: a client that does not wait any more stumbles over a late answer that is none.
            self.exchange.ping()
        self.exchange.refuse(code, why, id_json=request.id_json)


def is_json(content_type: bytes) -> bool:
    """Return whether a `Content-Type` says that a body is JSON."""
    return content_type.lower().startswith(JSON)


@lru_cache(maxsize=64)
def accepts(accept: bytes, *kinds: bytes) -> bool:
    """Return whether an `Accept` takes answers of all these media types (RFC 9110, 12.5.1)."""
    given = {each.partition(b";")[0].strip().lower() for each in accept.split(b",")}
    return all(given & {kind, kind.partition(b"/")[0] + b"/*", b"*/*"} for kind in kinds)
