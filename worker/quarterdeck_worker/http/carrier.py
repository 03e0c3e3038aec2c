"""Carry a connection over streamable HTTP: each message is a POST, and its answer a body or a stream of events.

A request that gets no MCP answer ends in the fault that HTTP's one means, and disturbs no other.  A server of the
handshake's era may have a session, whose end ends the connection, and a standing stream on which it speaks unasked; one
of 2026-07-28 has neither, and a request is given up by closing its stream.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Final

import anyio
import anyio.abc
import httpx2
import msgspec

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord
from quarterdeck_protocol.link.frames import CLOSE_GRACE_S
from quarterdeck_protocol.mcp.client import is_modern
from quarterdeck_protocol.mcp.client.asks import MAX_ASK_BYTES
from quarterdeck_protocol.mcp.client.connection import NO_MESSAGE, OPENING_REQUESTS
from quarterdeck_protocol.mcp.client.events import bad_output
from quarterdeck_protocol.mcp.client.lines import error_line
from quarterdeck_protocol.mcp.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, Message, split_line
from quarterdeck_protocol.secrets import origin_of
from quarterdeck_worker.connection import Connection

from .bodies import HttpFault, coding_of, is_event_stream, pieces_of, read_all
from .client import HTTP_ERRORS, HttpClient
from .faults import (
    BROKEN,
    ENDS_SESSION,
    PASSING,
    Refusal,
    broken,
    fault_of_refusal,
    first_words,
    lost,
    rate_limited,
    refusal_of,
    session_over,
)
from .headers import BOTH_KINDS, EVENTS_ALONE, params_of, routing_headers, session_headers, session_id_of
from .streams import EventStream, StreamEndError, Timing

MAX_PAGE_BYTES: Final = 16_384  # of a web page, to see what it is

MAX_UNASKED_BYTES: Final = MAX_ASK_BYTES + 65_536
"""Of one message on the stream on which a server speaks unasked: no result comes there, and no larger question."""

MAX_NOTES: Final = 1_000
"""Notifications and answers that wait to be posted, one after another: a server that takes none gets no more."""

NOTE_S: Final = 30.0  # for one of them, until it is taken
PING_S: Final = 5.0  # how long a server that broke off may take to say that it is there
PING: Final = b'{"jsonrpc":"2.0","id":"quarterdeck-ping","method":"ping"}'
UNREAD: Final = FaultRecord(FaultKind.TOOL_ERROR, "the server does not take what it is sent", "busy", Delivery.NOT_SENT)


class HttpCarrier:
    """A `Carrier` over HTTP.  Its tasks live in the group that it is given."""

    def __init__(
        self,
        connection: Connection,
        http: HttpClient,
        tasks: anyio.abc.TaskGroup,
        url: str,
        max_bytes: int,
        timing: Timing | None = None,
    ) -> None:
        """Send nothing yet; `http` is the caller's to close, `max_bytes` bounds a body, and an event of a stream."""
        self._connection = connection
        self._http = http
        self._tasks = tasks
        self._url = self._endpoint = url
        self._at = origin_of(url)
        self._max_bytes = max_bytes
        self._timing = timing or Timing()
        self._session_id = ""
        self._quiet_until = 0.0
        self._asked: dict[int | str, anyio.CancelScope] = {}
        self._notes: deque[tuple[Message, bytes]] = deque()
        self._note_came = anyio.Event()
        self._is_ready = anyio.Event()
        self.refused: Refusal | None = None  # the last HTTP refusal; None before the first
        self.error: Exception | None = None  # of the last request that had no answer
        self.loss: FaultRecord | None = None  # why the connection has ended, once it has been greeted

    def start(self) -> None:
        """Begin to greet the server."""
        self._tasks.start_soon(self._post_notes)
        self._connection.begin(self)

    async def close(self) -> None:
        """End the session at the server, if there is one."""
        if self._session_id and self.loss is None:
            with anyio.move_on_after(CLOSE_GRACE_S):
                try:
                    await (await self._http.send("DELETE", self._endpoint, self._headers())).aclose()
                except HTTP_ERRORS:
                    pass  # it ends by itself in time

    # A carrier's

    def refusal(self) -> FaultRecord | None:
        """Return why the server takes no more; None when it does."""
        return UNREAD if len(self._notes) > MAX_NOTES else None

    def write(self, lines: bytes) -> None:
        """Post whole lines: requests side by side, all else in its order."""
        for line in lines.splitlines():
            message = split_line(line)
            if message.method and isinstance(message.id, int):
                scope = self._asked[message.id] = anyio.CancelScope()
                self._tasks.start_soon(self._ask, message.id, message, line, scope)
                continue
            if message.method == "notifications/cancelled":
                if (asked := self._asked.get(params_of(message).requestId)) is not None:
                    asked.cancel()
                if self._is_modern:
                    continue  # that its stream is closed says so
            self._notes.append((message, line))
            self._note_came.set()

    # Requests

    @property
    def _is_modern(self) -> bool:
        return is_modern(self._connection.card.era)

    @property
    def _is_greeted(self) -> bool:
        return bool(self._connection.card.era)

    @property
    def _has_session(self) -> bool:
        return self._is_greeted and not self._is_modern

    async def _ask(self, wire_id: int, message: Message, line: bytes, scope: anyio.CancelScope) -> None:
        fault: FaultRecord | None = None
        try:
            with scope:
                if message.method not in OPENING_REQUESTS and not self._is_modern:
                    await self._is_ready.wait()
                if self._is_greeted and (left_s := self._pause_asked_s(None)):
                    raise HttpFault(rate_limited(self._at, left_s))
                await self._exchange(message, line, partial(self._take_answer, wire_id))
        except HttpFault as refused:
            fault = refused.record
        except HTTP_ERRORS as error:
            self.error = error
            fault = broken(self._at, error)
        finally:
            del self._asked[wire_id]
        if fault is not None:
            self._fail(wire_id, fault)

    async def _exchange(
        self, message: Message, line: bytes, take: Callable[[httpx2.Response], Awaitable[None]]
    ) -> None:
        response = await self._http.send("POST", self._endpoint, self._headers(message), line)
        try:
            if message.method == "initialize" and response.is_success:
                self._session_id = session_id_of(response)
            await take(response)
        finally:
            await response.aclose()

    async def _take_answer(self, wire_id: int, response: httpx2.Response) -> None:
        """Pass the answer to one request on.  Raise HttpFault without one, httpx2.RequestError if it broke off."""
        body = await self._read(response)
        if is_event_stream(response):
            await self._follow(wire_id, response)
        elif body is None:
            raise HttpFault(fault_of_refusal(self._at, refusal_of(response), has_session=self._has_session))
        else:
            self._connection.receive(one_line(body), wire_id)
            if self._connection.awaits(wire_id):
                raise HttpFault(bad_output(NO_MESSAGE))

    async def _read(self, response: httpx2.Response) -> bytes | None:
        """Return an MCP answer's body; None for events, or nothing.  Raise HttpFault or httpx2.RequestError."""
        refusal = refusal_of(response)
        if refusal.is_page:
            refusal = replace(refusal, beginning=first_words(await _beginning(response)))
        if refusal.status >= 400 or refusal.is_page:
            self.refused = refusal
            if refusal.pause_s is not None:
                self._quiet_until = self._timing.clock() + refusal.pause_s
        if response.is_success and not refusal.is_page and refusal.content_type != "application/json":
            coding_of(response)
            return None
        body = b"" if refusal.is_page else await read_all(response, self._max_bytes)
        is_over = refusal.status == 401 or (refusal.status == 404 and self._has_session)
        is_over |= refusal.wanted_scopes is not None  # so for this request, whatever its body says
        if refusal.is_page or is_over or not (response.is_success or _is_error_reply(body)):
            raise HttpFault(fault_of_refusal(self._at, refusal, has_session=self._has_session))
        return body

    async def _follow(self, wire_id: int, response: httpx2.Response) -> None:
        """Pass on what comes of a request's stream, over all connections that it takes, until its answer has come."""
        try:
            async with aclosing(self._stream(self._max_bytes, is_answer=True).events(response)) as events:
                async for event in events:
                    self._receive_event(event.name, event.data, wire_id)
                    if not self._connection.awaits(wire_id):
                        return
        except StreamEndError as end:
            raise HttpFault(self._fault_of_end(end)) from end

    def _fault_of_end(self, end: StreamEndError) -> FaultRecord:
        if end.reason is None:
            message = f"{self._at} ended its answer before the result"
        elif isinstance(end.reason, httpx2.RequestError):
            return broken(self._at, httpx2.ReadError(str(end.reason)))
        elif end.is_session_over:
            fault = fault_of_refusal(self._at, refusal_of(end.reason), has_session=True)
            return replace(fault, delivery=Delivery.UNKNOWN)
        else:
            status = end.reason.status_code
            message = f"{self._at} broke off before its answer, which cannot be had again: it answered {status}"
        return FaultRecord(FaultKind.TOOL_ERROR, message, "server_lost", Delivery.UNKNOWN)

    def _fail(self, wire_id: int, fault: FaultRecord) -> None:
        """End a request; what that means for all the others follows once whoever asked has it."""
        if not self._is_greeted:
            # As the SDK tells its session, which then tries the other era where it may.
            status = self.refused.status if self.refused is not None and self.error is None else 500
            code = METHOD_NOT_FOUND if status == 404 else INTERNAL_ERROR if status >= 400 else INVALID_REQUEST
            self._connection.receive(error_line(wire_id, code, fault.message))
            return
        self._connection.fail(wire_id, fault, is_passing=fault.code in PASSING)
        if fault.code in ENDS_SESSION:
            self._end_session(fault)
        elif fault.code in BROKEN:
            self._tasks.start_soon(self._look_again)

    async def _look_again(self) -> None:
        """Find out whether the server is there: one broken stream may be an accident."""
        fault: FaultRecord | None = None
        with anyio.move_on_after(PING_S):
            try:
                await self._exchange(split_line(PING), PING, self._discard)
            except HttpFault as refused:
                fault = refused.record
            except HTTP_ERRORS as error:
                fault = broken(self._at, error)
        if fault is not None and fault.code in ENDS_SESSION:
            self._end_session(fault)
        elif fault is not None and fault.code in BROKEN:
            self._end(lost(f"{self._at} closed the connection"))

    async def _discard(self, response: httpx2.Response) -> None:
        await self._read(response)

    def _end_session(self, fault: FaultRecord) -> None:
        self._end(session_over(self._url, 401 if fault.code == "auth_needed" else 404))

    def _end(self, loss: FaultRecord) -> None:
        if self.loss is None:
            self.loss = loss
            self._connection.end()

    # What has no answer

    async def _post_notes(self) -> None:
        while True:
            while self._notes:
                message, line = self._notes[0]
                await self._post_note(message, line)
                self._notes.popleft()
                self._connection.flush()
            self._note_came = anyio.Event()
            await self._note_came.wait()

    async def _post_note(self, message: Message, line: bytes) -> None:
        try:
            with anyio.move_on_after(NOTE_S):
                await self._exchange(message, line, self._discard)
        except HttpFault as refused:
            if refused.record.code in ENDS_SESSION:
                self._end_session(refused.record)
        except HTTP_ERRORS:
            pass  # what is told unasked can be missed
        if message.method == "notifications/initialized":
            self._is_ready.set()
            if self._session_id:
                self._tasks.start_soon(self._listen)

    async def _listen(self) -> None:
        try:
            stream = self._stream(min(self._max_bytes, MAX_UNASKED_BYTES), is_answer=False)
            async with aclosing(stream.events(None)) as events:
                async for event in events:
                    self._receive_event(event.name, event.data)
        except StreamEndError as end:
            if end.is_session_over and isinstance(end.reason, httpx2.Response):
                self._end(session_over(self._url, end.reason.status_code))

    # Both

    def _receive_event(self, name: bytes, data: bytes, to: int = 0) -> None:
        if name in {b"", b"message"}:
            self._connection.receive(one_line(data), to)

    def _stream(self, max_bytes: int, *, is_answer: bool) -> EventStream:
        return EventStream(
            max_bytes,
            self._timing,
            reopen=self._reopen,
            pause_asked_s=self._pause_asked_s,
            has_session=self._has_session,
            is_answer=is_answer,
        )

    async def _reopen(self, last_id: bytes) -> httpx2.Response:
        headers = {**EVENTS_ALONE, **session_headers(self._session_id, self._connection.card.era)}
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        return await self._http.send("GET", self._endpoint, [*raw, *([(b"last-event-id", last_id)] if last_id else [])])

    def _pause_asked_s(self, response: httpx2.Response | None) -> float:
        """For how long the server wants to be left alone, by this answer and all before it."""
        asked_s = refusal_of(response).pause_s if response is not None else None
        return max(0.0, self._quiet_until - self._timing.clock(), asked_s or 0.0)

    def _headers(self, message: Message | None = None) -> dict[str, str]:
        return {
            **BOTH_KINDS,
            **session_headers(self._session_id, self._connection.card.era),
            **routing_headers(message),
        }


def one_line(body: bytes) -> bytes:
    """A message whose line breaks, which can only stand between its values, are spaces."""
    return body.translate(_SPACES) if b"\n" in body or b"\r" in body else body


_SPACES: Final = bytes.maketrans(b"\r\n", b"  ")


async def _beginning(response: httpx2.Response) -> bytes:
    start = b""
    try:
        async for piece in pieces_of(response):
            start += piece[:MAX_PAGE_BYTES]
            if len(start) >= MAX_PAGE_BYTES:
                break
    except (*HTTP_ERRORS, HttpFault):
        pass  # what came of it will do
    return start


class _ErrorReply(msgspec.Struct):
    class Error(msgspec.Struct):
        code: int

    error: Error


def _is_error_reply(body: bytes) -> bool:
    """Whether the body is JSON-RPC's own word: then it says more than the status."""
    try:
        msgspec.json.decode(body, type=_ErrorReply)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
