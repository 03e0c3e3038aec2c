"""One client's HTTP connection: uvicorn's protocol over a parser in C, with bounds, and no ASGI.

Above it `listener`, which accepts; below it a `Handler`, which judges each request by its head and answers it through
its `Exchange`.

The parser bounds nothing itself.  Here a request's head, what surrounds its body and the requests that wait behind it
are, so that a client without the token costs little, whatever it sends.
"""

from collections import deque
from collections.abc import Callable
from itertools import chain
from math import inf
from time import monotonic
from typing import Final, NoReturn, Protocol
from urllib.parse import unquote

from httptools import HttpParserError, parse_url
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from .admission import HttpAnswer
from .exchange import Exchange

MAX_HEAD_BYTES: Final = 32 * 1024
"""Of a request's head."""

MAX_PIPELINED: Final = 16
"""Requests that wait for the one before them: what comes in one read may hold thousands, each with its objects."""


class SharedState(ServerState):
    """The state that connections share.

    Attributes:
        head_lines: of each response's head, such as the date; set anew once a second.
    """

    head_lines = b""


class Handler(Protocol):
    """Answers requests."""

    def begin(self, exchange: Exchange) -> int:
        """Judge a request by its head.  Return how many bytes its body may have; 0 when it is not wanted."""
        ...

    def serve(self, exchange: Exchange, body: bytes) -> None:
        """Answer a request whose body is wanted, and whole."""
        ...

    def gone(self, exchange: Exchange) -> None:
        """Take note that the client has closed its connection before it was answered; `over` comes next."""
        ...

    def over(self, exchange: Exchange) -> None:
        """Take note, once for each request that began, that its client has most of the answer, or has gone."""
        ...


class Connection(HttpToolsProtocol):
    """One client's connection, as uvicorn knows it; its requests are answered one after the other.

    Attributes:
        is_proven: whether a request on it was admitted.
        latest: the request whose head came last; None before the first.
        current: the request that is answered, until its client has taken most of the answer; None between two.
        idle_since: when the client had its last answer, monotonic seconds; `inf` once something came after that.
        is_last: whether the next request that comes is the last.
    """

    def __init__(self, config: Config, state: SharedState, handler: Handler, admit: Callable[[str], str]) -> None:
        """A connection whose requests `handler` answers; `admit` counts it as a principal's."""
        super().__init__(config, state, {})
        self.server_state: SharedState = state
        self.is_proven = False
        self.latest: Exchange | None = None
        self.current: Exchange | None = None
        self.idle_since = inf
        self.is_last = False
        self._handler = handler
        self._admit = admit
        self._waiting: deque[Exchange] = deque()
        self._allowance = MAX_HEAD_BYTES
        """Bytes that may still come beside bodies."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever answers."""
        current, self.current = self.current, None
        if current is not None:
            if not current.is_over:
                current.is_over = True
                self._handler.gone(current)
            self._handler.over(current)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser."""
        self.idle_since = inf
        # What of this is body is given back as it is found.
        self._allowance -= len(data)
        super().data_received(data)
        if self._allowance < 0:
            self._cut()

    # What the parser finds

    def on_message_begin(self) -> None:
        """A request begins."""
        self.url = b""
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header has come."""
        # The parser keeps trailing white space, which does not belong to the value (RFC 9110, 5.5).
        self.headers.append((name.lower(), value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        """The head is whole: begin the request, or have it wait for the one before it."""
        # A trailer would be added to the new list, for nobody: a request is judged by its head.
        headers, self.headers = self.headers, []
        head_bytes = len(self.url) + sum(map(len, chain.from_iterable(headers)))
        if head_bytes > MAX_HEAD_BYTES or len(self._waiting) >= MAX_PIPELINED:
            self._refuse_head()
        parser, url = self.parser, parse_url(self.url)
        version = parser.get_http_version()
        path = url.path.decode("ascii")
        exchange = self.latest = Exchange(
            self,
            parser.get_method().decode("ascii"),
            unquote(path) if "%" in path else path,
            url.query or b"",
            headers,
            dict(headers),
            version == "1.1",
            version != "1.0" and parser.should_keep_alive() and not self.is_last,
        )
        if self.current is None:
            self._begin(exchange)
        else:
            self.flow.pause_reading()
            self._waiting.append(exchange)

    def on_body(self, body: bytes) -> None:
        """A part of the body has come."""
        self._allowance = min(self._allowance + len(body), MAX_HEAD_BYTES)
        exchange = self.latest
        if exchange is None or exchange.is_over:
            return
        exchange.body += body
        if len(exchange.body) > (exchange.max_body_bytes or MAX_HEAD_BYTES):
            self._hold_back(exchange)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._allowance = MAX_HEAD_BYTES
        exchange = self.latest
        if exchange is not None:
            exchange.is_whole = True
            if exchange.max_body_bytes and not exchange.is_over:
                self._serve(exchange)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request, and close."""
        if self.transport.is_closing():
            return
        if self.current is not None:
            # It would stand in the middle of the answer that is under way.
            self.transport.abort()
            return
        super().send_400_response(msg)

    def shutdown(self) -> None:
        """Close now, or after the requests that came; one of which only a part came is none."""
        current, latest = self.current, self.latest
        is_partial = current is not None and not current.is_over and not current.is_whole
        if is_partial or latest is None or latest.is_over:
            self.transport.close()
        else:
            latest.keep_alive = False

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self.answered()

    def admit(self, who: str) -> str:
        """Count it as one of this principal's; return the bound that refuses it, empty for none."""
        refused = self._admit(who)
        self.is_proven = not refused
        return refused

    def answered(self) -> None:
        """Go on with the next request, once the current one's client has taken most of the answer."""
        exchange = self.current
        if exchange is None or not exchange.is_over or self.flow.write_paused:
            return
        self.current = None
        self._handler.over(exchange)
        if not exchange.keep_alive:
            self.transport.close()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self._waiting:
            self._begin(self._waiting.popleft())
        else:
            self.idle_since = monotonic()

    def _refuse_head(self) -> NoReturn:
        self._cut()
        raise HttpParserError("too much")

    def _cut(self) -> None:
        if not self.transport.is_closing():
            self.logger.warning("closed a connection that sent more than a request may have beside its body")
            self.transport.abort()

    def _begin(self, exchange: Exchange) -> None:
        self.current = exchange
        wanted = self._handler.begin(exchange)
        if exchange.is_over or not wanted:
            return
        exchange.max_body_bytes = wanted
        if exchange.is_whole:
            self._serve(exchange)
        elif len(exchange.body) > wanted:
            self._hold_back(exchange)
        elif b"expect" in exchange.fields and exchange.fields[b"expect"].lower() == b"100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _serve(self, exchange: Exchange) -> None:
        body, exchange.body = bytes(exchange.body), bytearray()
        self._handler.serve(exchange, body)

    def _hold_back(self, exchange: Exchange) -> None:
        """Refuse a body that is too large; one that waits behind another is read on in its turn."""
        if exchange is self.current:
            exchange.respond(HttpAnswer(413, "the request is too large"))
        else:
            self.flow.pause_reading()
