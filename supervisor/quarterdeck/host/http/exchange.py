"""One request over HTTP, with its response: where its messages go, and what is counted for it.

Above it `connection`, which reads requests and sends responses one after the other; beside it `http_host`, which has
a request carried out, with its exchange as the outlet.
"""

from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from quarterdeck_protocol.mcp.server.answers import Part
from quarterdeck_protocol.mcp.server.methods import HTTP_STATUS, REQUEST_CANCELLED
from quarterdeck_protocol.mcp.server.requests import Request

from .admission import Admitted, Header, HttpAnswer

if TYPE_CHECKING:
    from .connection import Connection
    from .sessions import HttpSession

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


class ExchangeHost(Protocol):
    """Carries out requests."""

    def keep(self, client: str, size: int) -> str:
        """Keep so much for a client; empty when it was counted, else which bound it met."""
        ...

    def gone(self, exchange: "Exchange") -> None:
        """Give up a request: its client has closed its connection before it was answered."""
        ...

    def over(self, exchange: "Exchange") -> None:
        """Give back what was counted for a request: its client has most of the answer, or has gone."""
        ...


class Exchange(msgspec.Struct, eq=False):
    """One request and its response: one JSON value, or events where something comes before it.

    It is the outlet of its messages.  They hold no line break, which would end an event.

    Attributes:
        connection: carries it.
        query: of the URL, raw.
        request_headers: as they came; names in lower case.
        fields: the same by their names; of a repeated one, the last.
        is_chunked: whether the client reads responses in chunks, as HTTP/1.1 has them.
        keep_alive: whether the connection stays open for another request.
        headers: lines of the response's head, besides those that describe it.
        admitted: what its head was found to be; None until then, and where it was refused.
        session: the legacy session that it is of, where its client has it.
        client_key: of the client that it is of.
        is_counted: whether it is, as one that is under way.
        counted_bytes: of its body, with that.
        kept_bytes: of its answer, until its client has taken them.
        host: carries it out, once its body is whole.
        request: what is under way for it, once it is known.
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
    headers: bytes = b""
    admitted: Admitted | None = None
    session: "HttpSession | None" = None
    client_key: str = ""
    is_counted: bool = False
    counted_bytes: int = 0
    kept_bytes: int = 0
    host: ExchangeHost | None = None
    request: Request | None = None
    is_silent: bool = False
    has_begun: bool = False
    is_over: bool = False
    body: bytearray = bytearray()
    max_body_bytes: int = 0
    is_whole: bool = False

    # The outlet

    @property
    def is_congested(self) -> bool:
        """Whether the client is too slow for what was written."""
        return self.connection.flow.write_paused

    async def room(self) -> None:
        """Wait while congested."""
        await self.connection.flow.drain()

    def tell(self, message: bytes) -> None:
        """Send an event."""
        self._chunk(b"event: message\ndata: ", message, b"\n\n")

    def keep(self, size: int) -> str:
        """Count an answer until the client has taken it; empty when it was counted, else which bound it met."""
        assert self.host is not None
        refused = self.host.keep(self.client_key, size)
        if not refused:
            self.kept_bytes += size
        return refused

    def answer(self, request: Request, parts: tuple[Part, ...], code: int) -> None:
        """Send the answer; in 2026-07-28 some errors have a status of their own, which proxies go by."""
        self.send(parts, HTTP_STATUS.get(code, OK) if request.is_modern else OK)

    def drop(self, request: Request) -> None:
        """Say that it was cancelled: in the legacy era a stream ends with an answer alone."""
        self._refuse_late(REQUEST_CANCELLED, "Request cancelled", request)

    # Its end

    def give_up(self, code: int, why: str) -> None:
        """Give up what is under way for it, and say why."""
        request = self.request
        if request is not None and (work := request.work) is not None and work.core.forget(request):
            self._refuse_late(code, why, request)
            work.cancelled(why)

    # The response

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

    def send(self, parts: tuple[Part, ...], status: int = OK, kind: bytes = _JSON) -> None:
        """Send the response's one JSON value, as a whole, with this status, or as the last event.

        `kind` are the lines that describe another body, with its length as `%d`.
        """
        if self.is_over:
            return
        if self.has_begun:
            self._chunk(b"event: message\ndata: ", *parts, b"\n\n")
            self.close()
        else:
            self._start(status, kind % sum(map(len, parts)), parts)
            self._complete()

    def respond(self, answer: HttpAnswer) -> None:
        """Send what a request gets in place of the protocol's answer."""
        self.headers += header_lines(answer.headers)
        if answer.error:
            self.send((msgspec.json.encode({"error": answer.error}),), answer.status)
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
        self.send((msgspec.json.encode(error),), status)

    def _refuse_late(self, code: int, why: str, request: Request) -> None:
        if not self.has_begun:
            # As an event: a client that does not wait any more stumbles over a late answer that is none.
            self.ping()
        self.refuse(code, why, id_json=request.id_json)

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
        lines = self.connection.server_state.head_lines
        end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        self._write(_STATUS_LINES[status], kind, lines, self.headers, end, *(parts if self.method != "HEAD" else ()))

    def _write(self, *parts: Part) -> None:
        self.is_silent = False
        if sum(map(len, parts)) <= _JOIN_BYTES:
            self.connection.transport.write(b"".join(parts))
        else:
            self.connection.transport.writelines(parts)


def header_lines(headers: Iterable[Header]) -> bytes:
    """Return headers as they stand in the head of a response."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])
