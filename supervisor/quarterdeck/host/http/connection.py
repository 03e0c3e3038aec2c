"""One client's HTTP connection: uvicorn's protocol over a parser in C, with bounds, and answers that need no ASGI.

Above it `listener`, which accepts; `short_way` may take a request whose body has come, and then writes its response
through an `Exchange`.  Every other request is uvicorn's, and goes to the application.

The parser bounds nothing itself.  Here a request's head, what surrounds its body and the requests that wait behind it
are, so that a client without the token costs little, whatever it sends.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, Protocol

import msgspec
from httptools import HttpParserError
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from quarterdeck.host.wire_call import Part

from .admission import Header

ADMITTED: Final = "quarterdeck.admitted"
"""Key in the state of a request's scope: a function that takes the principal of the request once it is admitted.
Its connection may exceed a bound; the return value names that bound."""

COMING: Final = "quarterdeck.coming"
"""In the state of a request's scope: called when its body, which was counted, has come, or will not."""

TAKEN: Final = "quarterdeck.taken"
"""In the state of a request's scope: waits until the client has taken most of what was written, or is gone."""

MAX_HEAD_BYTES: Final = 32 * 1024
"""Of a request's head."""

MAX_PIPELINED: Final = 16
"""Requests that wait for the one before them: what comes in one read may hold thousands, each with its objects."""

MAX_HELD_BYTES: Final = 1024 * 1024
"""Of a body that is kept for the short way; a larger one goes the long way, where it is bounded, too."""

_JOIN_BYTES: Final = 64 * 1024
"""Parts that are smaller together are joined: a copy is cheaper than a second write."""

OK: Final = 200

_STATUS_LINES: Final = {each.value: b"HTTP/1.1 %d %b\r\n" % (each.value, each.phrase.encode()) for each in HTTPStatus}
_NO_BODY: Final = b"content-length: 0\r\n"
_JSON: Final = b"content-type: application/json\r\ncontent-length: %d\r\n"
_EVENTS: Final = (
    b"content-type: text/event-stream\r\ncache-control: no-cache, no-transform\r\n"
    b"x-accel-buffering: no\r\ntransfer-encoding: chunked\r\n"
)

Scope = Mapping[str, Any]


class RawAnswer(Protocol):
    """Who answers an exchange."""

    def gone(self) -> None:
        """The client closed its connection: nobody reads the answer."""
        ...


class ShortWay(Protocol):
    """Takes requests past the application."""

    def may_take(self, scope: Scope) -> bool:
        """Whether a request with this head is worth waiting for its body."""
        ...

    def take(self, scope: Scope, body: bytes, exchange: "Exchange") -> RawAnswer | None:
        """Answer the request through `exchange`, now or later; None to leave it to the application."""
        ...


class Exchange:
    """One request's response, written without ASGI: one JSON value, or events where something comes before it.

    What is written holds no line break, which would end an event.
    """

    def __init__(self, connection: "Connection", cycle: RequestResponseCycle) -> None:
        """The response to the request of `cycle`."""
        self._connection = connection
        self._cycle = cycle
        self.headers: tuple[Header, ...] = ()
        """Of the response, beside those that say what it is."""
        self.is_silent = False
        """Set by who watches over it, and unset when something is written."""

    @property
    def is_congested(self) -> bool:
        """Whether the client is too slow for what was written."""
        return self._connection.flow.write_paused

    @property
    def is_over(self) -> bool:
        """Whether it is answered, or its client gone."""
        return self._cycle.response_complete or self._cycle.disconnected

    def tell(self, message: bytes) -> None:
        """Send an event."""
        self._chunk(b"event: message\ndata: ", message, b"\n\n")

    def ping(self) -> None:
        """Send what only keeps the connection open."""
        self._chunk(b": ping\n\n")

    def answer(self, *parts: Part, status: int = OK) -> None:
        """Send the response's one JSON value, as a whole, with this status, or as the last event."""
        if self.is_over:
            return
        if self._cycle.response_started:
            self._chunk(b"event: message\ndata: ", *parts, b"\n\n")
            self._write(b"0\r\n\r\n")
        else:
            self._start(_JSON % sum(map(len, parts)), *parts, status=status)
        self._cycle.response_complete = True
        self._connection.answered(self._cycle)

    def accept(self) -> None:
        """Answer that what came was taken; there is nothing to say to it."""
        if not self.is_over:
            self._start(_NO_BODY, status=202)
            self._cycle.response_complete = True
            self._connection.answered(self._cycle)

    def when_taken(self, act: Callable[[], None]) -> None:
        """Do this once the client has taken most of the answer, which was given, or has gone; one act at the most."""
        self._connection.when_taken(self._cycle, act)

    def refuse(self, id_json: bytes, code: int, message: str) -> None:
        """Send a JSON-RPC error as the answer."""
        if self.is_over:
            return
        if not self._cycle.response_started:
            # As the SDK does: its client, which waits no more, stumbles over a late answer that is no event.
            self.ping()
        error = {"jsonrpc": "2.0", "id": msgspec.Raw(id_json), "error": {"code": code, "message": message}}
        self.answer(msgspec.json.encode(error))

    def _chunk(self, *parts: Part) -> None:
        if self.is_over:
            return
        size = b"%x\r\n" % sum(map(len, parts))
        if self._cycle.response_started:
            self._write(size, *parts, b"\r\n")
        else:
            self._start(_EVENTS, size, *parts, b"\r\n")

    def _start(self, kind: bytes, *parts: Part, status: int = OK) -> None:
        self._cycle.response_started = True
        given = (*self._connection.server_state.default_headers, *self.headers)
        lines = b"".join([b"%b: %b\r\n" % header for header in given])
        close = b"" if self._cycle.keep_alive else b"connection: close\r\n"
        self._write(_STATUS_LINES[status], kind, lines, close, b"\r\n", *parts)

    def _write(self, *parts: Part) -> None:
        self.is_silent = False
        transport = self._connection.transport
        if sum(map(len, parts)) <= _JOIN_BYTES:
            transport.write(b"".join(parts))
        else:
            transport.writelines(parts)


class Connection(HttpToolsProtocol):
    """One client's connection, as uvicorn knows it."""

    def __init__(
        self, config: Config, state: ServerState, app_state: dict[str, Any], short_way: ShortWay | None
    ) -> None:
        """A connection whose requests have `app_state`; without a short way the application has them all."""
        super().__init__(config, state, app_state)
        self._short_way = short_way
        self._is_in_head = True
        self._allowance = MAX_HEAD_BYTES
        self._head_bytes = 0
        self._started: RequestResponseCycle | None = None
        self._held: tuple[RequestResponseCycle, Any] | None = None
        self._raw: RawAnswer | None = None
        self._undrained: RequestResponseCycle | None = None
        self._when_taken: Callable[[], None] = _nothing

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if (raw := self._raw) is not None:
            self._raw = None
            if self._started is not None:
                self._started.disconnected = True
            raw.gone()
        elif self._started is not None and not self._started.response_complete:
            # Uvicorn tells the request that came last, which may wait behind this one.
            self._started.disconnected = True
            self._started.message_event.set()
        if self._held is not None:
            _has_come(self._held[0])
            self._held = None
        self._was_taken()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        # What of this is body is given back as it is found.
        self._allowance -= len(data)
        super().data_received(data)
        if self._allowance < 0:
            self._cut()

    def on_message_begin(self) -> None:
        """See `httptools`."""
        super().on_message_begin()
        self._is_in_head = True
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        """See `httptools`."""
        self._count(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """See `httptools`; a trailer is none, since a request is judged by its head."""
        if self._is_in_head:
            self._count(name, value)
            # The parser keeps trailing white space, which does not belong to the value (RFC 9110, 5.5).
            super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        """See `httptools`."""
        self._is_in_head = False
        if len(self.pipeline) >= MAX_PIPELINED:
            self._cut()
            raise HttpParserError("too much")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """See `httptools`."""
        self._allowance = min(self._allowance + len(body), MAX_HEAD_BYTES)
        if self._held is None or self._held[0] is not self.cycle:
            super().on_body(body)
            return
        self.cycle.body += body
        if len(self.cycle.body) > MAX_HELD_BYTES:
            self._let_go()

    def on_message_complete(self) -> None:
        """See `httptools`."""
        self._allowance = MAX_HEAD_BYTES
        super().on_message_complete()
        if self._held is not None and self._held[0] is self.cycle:
            self._decide()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request, and close."""
        if self.transport.is_closing():
            return
        if self._started is not None and not self._started.response_complete:
            # It would stand in the middle of the answer that is under way.
            self.transport.abort()
            return
        super().send_400_response(msg)

    def shutdown(self) -> None:
        """See uvicorn: close now, or after the request that is under way; one of which only a part came is none."""
        if self._held is not None:
            self.transport.close()
        else:
            super().shutdown()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        super().resume_writing()
        if (cycle := self._undrained) is not None:
            self._undrained = None
            self._was_taken()
            self._finish(cycle)

    def answered(self, cycle: RequestResponseCycle) -> None:
        """An exchange is over: go on with the next request, once the client has taken most of the answer."""
        self._raw = None
        if self.flow.write_paused:
            self._undrained = cycle
        else:
            self._finish(cycle)

    def when_taken(self, cycle: RequestResponseCycle, act: Callable[[], None]) -> None:
        """See `Exchange`."""
        if self._undrained is cycle:
            self._when_taken = act
        else:
            act()

    def _was_taken(self) -> None:
        act, self._when_taken = self._when_taken, _nothing
        act()

    def _count(self, *parts: bytes) -> None:
        self._head_bytes += sum(map(len, parts))
        if self._head_bytes > MAX_HEAD_BYTES:
            self._cut()
            raise HttpParserError("too much")

    def _cut(self) -> None:
        if not self.transport.is_closing():
            self.logger.warning("closed a connection that sent more than a request may have beside its body")
            self.transport.abort()

    def _finish(self, cycle: RequestResponseCycle) -> None:
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._started = cycle
        cycle.scope["state"][TAKEN] = self.flow.drain
        if self._short_way is None or cycle.waiting_for_100_continue or not self._short_way.may_take(cycle.scope):
            super()._start_asgi_task(cycle, app)
            return
        self._held = cycle, app
        if not cycle.more_body:
            self._decide()

    def _decide(self) -> None:
        """Give the request, which is whole, to whoever takes it."""
        assert self._short_way is not None
        assert self._held is not None
        cycle, _ = self._held
        _has_come(cycle)
        # Set before, for one that is answered at once.
        self._raw = NOBODY
        raw = self._short_way.take(cycle.scope, bytes(cycle.body), Exchange(self, cycle))
        if raw is None:
            self._raw = None
            self._let_go()
            return
        self._held = None
        if self._raw is NOBODY:
            self._raw = raw

    def _let_go(self) -> None:
        """Leave the request to the application."""
        assert self._held is not None
        (cycle, app), self._held = self._held, None
        _has_come(cycle)
        super()._start_asgi_task(cycle, app)


def _has_come(cycle: RequestResponseCycle) -> None:
    """The body of this request waits no more; said once."""
    if (tell := cycle.scope["state"].pop(COMING, None)) is not None:
        tell()


def _nothing() -> None:
    """Nobody waits."""


class _Nobody:
    """Answers nothing."""

    def gone(self) -> None:
        """Nothing is under way."""


NOBODY: Final = _Nobody()
"""Who answers an exchange that has its answer."""
