"""One request over HTTP: its messages go to its exchange, and what is counted of it is given back with its end.

Above it `http_host`, which reads requests; below it `host.session`, which carries them out.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final, Protocol

from quarterdeck.host.session.session import Session
from quarterdeck_protocol.mcp.server.answers import Part
from quarterdeck_protocol.mcp.server.methods import HTTP_STATUS, REQUEST_CANCELLED
from quarterdeck_protocol.mcp.server.requests import Request
from quarterdeck_protocol.tools import Client

from .connection import OK, Exchange
from .sessions import HttpSession

JSON: Final = b"application/json"

EVENTS: Final = b"text/event-stream"


class PostHost(Protocol):
    """Counts requests and what is kept for them."""

    def began(self, post: "Post") -> None:
        """A request is under way."""

    def over(self, post: "Post") -> None:
        """It is not any more."""

    def keep(self, client: Client, size: int) -> str:
        """Keep so much for a client; empty when it was counted, else which bound it met."""

    def kept(self, client: Client, size: int) -> None:
        """Keep it no longer."""


class Post:
    """One request over HTTP: the outlet of its messages, which its exchange carries."""

    def __init__(
        self, host: PostHost, session: Session, exchange: Exchange, http_session: HttpSession | None = None
    ) -> None:
        self.session = session
        self.exchange = exchange
        self.http_session = http_session
        self.client = session.client
        self._host = host
        self._request: Request | None = None
        self._kept = 0

    def begin(self, request: Request) -> None:
        """It is a request that is answered later, perhaps."""
        self._request = request
        self._host.began(self)
        if self.http_session is not None:
            self.http_session.hold()
        self.exchange.on_gone = self._gone
        self.exchange.on_end = partial(self._taken, self.exchange.on_end)

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
        refused = self._host.keep(self.client, size)
        if not refused:
            self._kept += size
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
        request = self._request
        if request is not None and self.session.core.forget(request):
            self._refuse(code, why, request)
            request.work.cancelled(why)

    def end(self) -> None:
        """Give it up because serving ends, and say so."""
        if self._request is not None:
            self._request.work.end()

    def _refuse(self, code: int, why: str, request: Request) -> None:
        if not self.exchange.has_begun:
            # As an event: a client that does not wait any more stumbles over a late answer that is none.
            self.exchange.ping()
        self.exchange.refuse(code, why, id_json=request.id_json)

    def _gone(self) -> None:
        if self._request is not None:
            self._request.work.cancel("the client closed its connection")

    def _taken(self, release: Callable[[], None]) -> None:
        self._host.over(self)
        if self.http_session is not None:
            self.http_session.release()
        self._host.kept(self.client, self._kept)
        release()


def is_json(content_type: bytes) -> bool:
    """Return whether a `Content-Type` says that a body is JSON."""
    return content_type.lower().startswith(JSON)


@lru_cache(maxsize=64)
def accepts(accept: bytes, *kinds: bytes) -> bool:
    """Return whether an `Accept` takes answers of all these media types (RFC 9110, 12.5.1)."""
    given = {each.partition(b";")[0].strip().lower() for each in accept.split(b",")}
    return all(given & {kind, kind.partition(b"/")[0] + b"/*", b"*/*"} for kind in kinds)
