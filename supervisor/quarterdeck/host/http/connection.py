"""One client's HTTP connection: uvicorn's protocol over a parser in C, with bounds, and no ASGI.

Above it `listener`, which accepts; below it a `Handler`, which judges each request by its head and answers it through
an `Exchange`.

The parser bounds nothing itself.  Here a request's head, what surrounds its body and the requests that wait behind it
are, so that a client without the token costs little, whatever it sends.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, NoReturn, Protocol

import msgspec
from httptools import HttpParserError
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from quarterdeck_protocol.mcp.server.answers import Part

from .admission import Header, HttpAnswer

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


class Body(Protocol):
    """Takes the body of a request.

    Attributes:
        max_bytes: a longer one is refused.
    """

    max_bytes: int

    def take(self, body: bytes) -> None:
        """Take the whole of it."""
        ...


class Handler(Protocol):
    """Answers requests."""

    def begin(self, exchange: "Exchange") -> Body | None:
        """Take a request whose head has come; None where its body is not wanted."""
        ...


class Exchange:
    """One request and its response: one JSON value, or events where something comes before it.

    What is written holds no line break, which would end an event.

    Attributes:
        headers: of the response, besides those that describe it.
        on_gone: called when the client has closed its connection before it was answered.
        on_end: called once, when the client has taken most of the answer, or has gone.
        is_silent: set by whoever watches over it, and unset when something is written.
    """

    def __init__(self, connection: "Connection", cycle: RequestResponseCycle) -> None:
        self._connection = connection
        self._cycle = cycle
        scope: Any = cycle.scope
        self.method: Final[str] = scope["method"]
        self.path: Final[str] = scope["path"]
        self.query: Final[bytes] = scope["query_string"]
        self.request_headers: Final[list[Header]] = scope["headers"]
        self._is_chunked = scope["http_version"] == "1.1"
        self.headers: tuple[Header, ...] = ()
        self.on_gone: Callable[[], None] = _nothing
        self.on_end: Callable[[], None] = _nothing
        self.is_silent = False

    @property
    def is_congested(self) -> bool:
        """Whether the client is too slow for what was written."""
        return self._connection.flow.write_paused

    @property
    def is_over(self) -> bool:
        """Whether it is answered, or its client gone."""
        return self._cycle.response_complete or self._cycle.disconnected

    @property
    def has_begun(self) -> bool:
        """Whether a part of the response was sent."""
        return self._cycle.response_started

    async def room(self) -> None:
        """Wait while congested."""
        await self._connection.flow.drain()

    def admit(self, who: str) -> str:
        """Count the connection as one of this principal's; return the bound that refuses it, empty for none."""
        return self._connection.admit(who)

    def tell(self, message: bytes) -> None:
        """Send an event."""
        self._chunk(b"event: message\ndata: ", message, b"\n\n")

    def ping(self) -> None:
        """Send what only keeps the connection open."""
        self._chunk(b": ping\n\n")

    def open(self) -> None:
        """Begin a stream of events."""
        if not self.is_over:
            self._start(_EVENTS + (_CHUNKED if self._is_chunked else b""))

    def close(self) -> None:
        """End a stream of events."""
        if not self.is_over:
            self._write(b"0\r\n\r\n" if self._is_chunked else b"")
            self._complete()

    def answer(self, *parts: Part, status: int = OK) -> None:
        """Send the response's one JSON value, as a whole, with this status, or as the last event."""
        if self.is_over:
            return
        if self.has_begun:
            self._chunk(b"event: message\ndata: ", *parts, b"\n\n")
            self.close()
        else:
            self._start(_JSON % sum(map(len, parts)), *parts, status=status)
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
            self._start(_NO_BODY, status=status)
            self._complete()

    def refuse(self, code: int, message: str, *, id_json: bytes = b"null", status: int = OK) -> None:
        """Send a JSON-RPC error as the answer."""
        error = {"jsonrpc": "2.0", "id": msgspec.Raw(id_json), "error": {"code": code, "message": message}}
        self.answer(msgspec.json.encode(error), status=status)

    def _complete(self) -> None:
        self._cycle.response_complete = True
        self._connection.answered(self, self._cycle)

    def _chunk(self, *parts: Part) -> None:
        if self.is_over:
            return
        if not self.has_begun:
            self.open()
        if self._is_chunked:
            self._write(b"%x\r\n" % sum(map(len, parts)), *parts, b"\r\n")
        else:
            self._write(*parts)

    def _start(self, kind: bytes, *parts: Part, status: int = OK) -> None:
        self._cycle.response_started = True
        given = (*self._connection.server_state.default_headers, *self.headers)
        lines = b"".join([b"%b: %b\r\n" % header for header in given])
        close = b"" if self._cycle.keep_alive else b"connection: close\r\n"
        said = parts if self.method != "HEAD" else ()
        self._write(_STATUS_LINES[status], kind, lines, close, b"\r\n", *said)

    def _write(self, *parts: Part) -> None:
        self.is_silent = False
        transport = self._connection.transport
        if sum(map(len, parts)) <= _JOIN_BYTES:
            transport.write(b"".join(parts))
        else:
            transport.writelines(parts)


class Connection(HttpToolsProtocol):
    """One client's connection, as uvicorn knows it."""

    def __init__(self, config: Config, state: ServerState, handler: Handler, admit: Callable[[str], str]) -> None:
        """A connection whose requests `handler` answers.

        Args:
            config: uvicorn's.
            state: likewise.
            handler: answers its requests.
            admit: counts it as a principal's; see `Exchange.admit`.
        """
        super().__init__(config, state, {})
        self.admit: Final = admit
        self._handler = handler
        self._is_in_head = True
        self._allowance = MAX_HEAD_BYTES
        self._head_bytes = 0
        self._current: tuple[Exchange, RequestResponseCycle] | None = None
        self._body: Body | None = None
        self._undrained: tuple[Exchange, RequestResponseCycle] | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever answers."""
        current, self._current = self._current, None
        undrained, self._undrained = self._undrained, None
        self._body = None
        if current is not None:
            current[1].disconnected = True
            current[0].on_gone()
            current[0].on_end()
        elif undrained is not None:
            undrained[0].on_end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser."""
        # What of this is body is given back as it is found.
        self._allowance -= len(data)
        super().data_received(data)
        if self._allowance < 0:
            self._cut()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._is_in_head = True
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        """A part of its head has come."""
        self._head_bytes += len(url)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse_head()
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header has come; a trailer is none, since a request is judged by its head."""
        if not self._is_in_head:
            return
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse_head()
        # The parser keeps trailing white space, which does not belong to the value (RFC 9110, 5.5).
        name, value = name.lower(), value.strip(b" \t")
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._is_in_head = False
        if len(self.pipeline) >= MAX_PIPELINED:
            self._refuse_head()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body has come; uvicorn would stop to read at its high-water mark."""
        self._allowance = min(self._allowance + len(body), MAX_HEAD_BYTES)
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.body += body
        if self._current is None or self._current[1] is not cycle:
            if len(cycle.body) > MAX_HEAD_BYTES:
                self.flow.pause_reading()  # it waits behind another
        elif self._body is not None and len(cycle.body) > self._body.max_bytes:
            self._too_large(self._current[0])

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._allowance = MAX_HEAD_BYTES
        super().on_message_complete()
        if self._current is not None and self._current[1] is self.cycle:
            self._hand_over(self.cycle)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request, and close."""
        if self.transport.is_closing():
            return
        if self._current is not None:
            # It would stand in the middle of the answer that is under way.
            self.transport.abort()
            return
        super().send_400_response(msg)

    def shutdown(self) -> None:
        """Close now, or after the request that is under way; one of which only a part came is none."""
        if self._body is not None:
            self.transport.close()
        else:
            super().shutdown()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if (undrained := self._undrained) is not None:
            self._undrained = None
            self._finish(*undrained)

    def answered(self, exchange: Exchange, cycle: RequestResponseCycle) -> None:
        """An exchange is over: go on with the next request, once the client has taken most of the answer."""
        self._current = self._body = None
        if self.flow.write_paused:
            self._undrained = exchange, cycle
        else:
            self._finish(exchange, cycle)

    def _refuse_head(self) -> NoReturn:
        self._cut()
        raise HttpParserError("too much")

    def _cut(self) -> None:
        if not self.transport.is_closing():
            self.logger.warning("closed a connection that sent more than a request may have beside its body")
            self.transport.abort()

    def _finish(self, exchange: Exchange, cycle: RequestResponseCycle) -> None:
        exchange.on_end()
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ARG002 - uvicorn's
        exchange = Exchange(self, cycle)
        self._current = exchange, cycle
        body = self._handler.begin(exchange)
        if body is None or cycle.response_complete:
            return
        self._body = body
        if cycle.waiting_for_100_continue and cycle.more_body:
            cycle.waiting_for_100_continue = False
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not cycle.more_body:
            self._hand_over(cycle)
        elif len(cycle.body) > body.max_bytes:
            self._too_large(exchange)
        else:
            self.flow.resume_reading()

    def _hand_over(self, cycle: RequestResponseCycle) -> None:
        body, self._body = self._body, None
        if body is not None:
            data = bytes(cycle.body)
            cycle.body = bytearray()
            body.take(data)

    def _too_large(self, exchange: Exchange) -> None:
        self._body = None
        exchange.respond(HttpAnswer(413, "the request is too large"))


def _nothing() -> None:
    """Nobody is to be told."""
