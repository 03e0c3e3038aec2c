"""One client's HTTP connection: uvicorn's protocol over a parser in C, with bounds, and no ASGI.

Above it `listener`, which accepts; below it a `Handler`, which judges each request by its head and answers it through
its `Exchange`.

The parser bounds nothing itself.  Here a request's head, what surrounds its body and the requests that wait behind it
are, so that a client without the token costs little, whatever it sends.
"""

from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from itertools import chain
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final, NoReturn, Protocol
from urllib.parse import unquote

import msgspec
from httptools import HttpParserError, parse_url
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from quarterdeck_protocol.mcp.server.answers import Part

from .admission import Admitted, Header, HttpAnswer

if TYPE_CHECKING:
    from .sessions import HttpSession

MAX_HEAD_BYTES: Final = 32 * 1024
"""Of a request's head."""

MAX_PIPELINED: Final = 16
"""Requests that wait for the one before them: what comes in one read may hold thousands, each with its objects."""

_JOIN_BYTES: Final = 64 * 1024
"""Parts that are smaller together are joined: a copy is cheaper than a second write."""

OK: Final = 200

_STATUS_LINES: Final = {each.value: b"HTTP/1.1 %d %b\r\n" % (each.value, each.phrase.encode()) for each in HTTPStatus}
_NO_BODY: Final = b"content-length: 0\r\n"
_JSON: Final = b"content-type: application/json\r\ncontent-length: %d\r\n"
_EVENTS: Final = (
    b"content-type: text/event-stream\r\ncache-control: no-cache, no-transform\r\nx-accel-buffering: no\r\n"
)
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"


class Handler(Protocol):
    """Answers requests."""

    def begin(self, exchange: "Exchange") -> int:
        """Judge a request by its head.  Return how many bytes its body may have; 0 when it is not wanted."""
        ...

    def serve(self, exchange: "Exchange", body: bytes) -> None:
        """Answer a request whose body is wanted, and whole."""
        ...


def _nothing() -> None:
    """Nobody is to be told."""


class Exchange(msgspec.Struct, eq=False):
    """One request and its response: one JSON value, or events where something comes before it.

    What is written holds no line break, which would end an event.

    Attributes:
        connection: carries it.
        query: of the URL, raw.
        request_headers: as they came; names in lower case.
        fields: the same by their names; of a repeated one, the last.
        is_chunked: whether the client reads responses in chunks, as HTTP/1.1 has them.
        keep_alive: whether the connection stays open for another request.
        headers: of the response, besides those that describe it.
        on_gone: called when the client has closed its connection before it was answered.
        on_end: called once, when the client has taken most of the answer, or has gone.
        admitted: what its head was found to be; None until then, and where it was refused.
        session: the legacy session that it names, where its client has it.
        is_silent: set by whoever watches over it, and unset when something is written.
        has_begun: whether a part of the response was sent.
        is_over: whether it is answered, or its client gone.
        body: what came of it.
        max_body_bytes: how much may come; 0 until it is wanted.
        is_whole: whether the body is.
    """

    connection: "Connection"
    method: str
    path: str
    query: bytes
    request_headers: list[Header]
    fields: dict[bytes, bytes]
    is_chunked: bool
    keep_alive: bool
    headers: tuple[Header, ...] = ()
    on_gone: Callable[[], None] = _nothing
    on_end: Callable[[], None] = _nothing
    admitted: Admitted | None = None
    session: "HttpSession | None" = None
    is_silent: bool = False
    has_begun: bool = False
    is_over: bool = False
    body: bytearray = bytearray()
    max_body_bytes: int = 0
    is_whole: bool = False

    @property
    def is_congested(self) -> bool:
        """Whether the client is too slow for what was written."""
        return self.connection.flow.write_paused

    async def room(self) -> None:
        """Wait while congested."""
        await self.connection.flow.drain()

    def admit(self, who: str) -> str:
        """Count the connection as one of this principal's; return the bound that refuses it, empty for none."""
        connection = self.connection
        return "" if connection.is_proven else connection.admit(who)

    def tell(self, message: bytes) -> None:
        """Send an event."""
        self._chunk(b"event: message\ndata: ", message, b"\n\n")

    def ping(self) -> None:
        """Send what only keeps the connection open."""
        self._chunk(b": ping\n\n")

    def open(self) -> None:
        """Begin a stream of events."""
        if not self.is_over:
            self._start(OK, _EVENTS + (_CHUNKED if self.is_chunked else b""))

    def close(self) -> None:
        """End a stream of events."""
        if not self.is_over:
            self._write(b"0\r\n\r\n" if self.is_chunked else b"")
            self._complete()

    def answer(self, *parts: Part, status: int = OK) -> None:
        """Send the response's one JSON value, as a whole, with this status, or as the last event."""
        if self.is_over:
            return
        if self.has_begun:
            self._chunk(b"event: message\ndata: ", *parts, b"\n\n")
            self.close()
        else:
            self._start(status, _JSON % sum(map(len, parts)), parts)
            self._complete()

    def respond(self, answer: HttpAnswer) -> None:
        """Send what a request gets in place of the protocol's answer."""
        self.headers = (*self.headers, *answer.headers)
        if answer.error:
            self.answer(msgspec.json.encode({"error": answer.error}), status=answer.status)
        else:
            self.acknowledge(answer.status)

    def acknowledge(self, status: int = 202) -> None:
        """Answer that what came was taken; there is nothing to say to it."""
        if not self.is_over:
            self._start(status, _NO_BODY)
            self._complete()

    def refuse(self, code: int, message: str, *, id_json: bytes = b"null", status: int = OK) -> None:
        """Send a JSON-RPC error as the answer."""
        error = {"jsonrpc": "2.0", "id": msgspec.Raw(id_json), "error": {"code": code, "message": message}}
        self.answer(msgspec.json.encode(error), status=status)

    def _complete(self) -> None:
        self.is_over = True
        self.connection.answered()

    def _chunk(self, *parts: Part) -> None:
        if self.is_over:
            return
        if not self.has_begun:
            self.open()
        if self.is_chunked:
            self._write(b"%x\r\n" % sum(map(len, parts)), *parts, b"\r\n")
        else:
            self._write(*parts)

    def _start(self, status: int, kind: bytes, parts: tuple[Part, ...] = ()) -> None:
        self.has_begun = True
        given = (*self.connection.server_state.default_headers, *self.headers)
        lines = b"".join([b"%b: %b\r\n" % header for header in given])
        end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        self._write(_STATUS_LINES[status], kind, lines, end, *(parts if self.method != "HEAD" else ()))

    def _write(self, *parts: Part) -> None:
        self.is_silent = False
        if sum(map(len, parts)) <= _JOIN_BYTES:
            self.connection.transport.write(b"".join(parts))
        else:
            self.connection.transport.writelines(parts)


class Connection(HttpToolsProtocol):
    """One client's connection, as uvicorn knows it; its requests are answered one after the other.

    Attributes:
        is_proven: whether a request on it was admitted.
        latest: the request whose head came last; None before the first.
        current: the request that is answered, until its client has taken most of the answer; None between two.
        idle_since: when the client had its last answer, monotonic seconds; `inf` once something came after that.
        is_last: whether the next request that comes is the last.
    """

    def __init__(self, config: Config, state: ServerState, handler: Handler, admit: Callable[[str], str]) -> None:
        """A connection whose requests `handler` answers; `admit` counts it as a principal's, see `Exchange.admit`."""
        super().__init__(config, state, {})
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
                current.on_gone()
            current.on_end()
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
        """See `Exchange.admit`."""
        refused = self._admit(who)
        self.is_proven = not refused
        return refused

    def answered(self) -> None:
        """Go on with the next request, once the current one's client has taken most of the answer."""
        exchange = self.current
        if exchange is None or not exchange.is_over or self.flow.write_paused:
            return
        self.current = None
        exchange.on_end()
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
