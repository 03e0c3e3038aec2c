"""Serve one client over a pair of descriptors, the process's standard streams by default.

Every line is read here once.  Calls of servers' tools may be raw calls, from bytes to bytes, as `raw_calls` decides;
everything else goes to the client's `session`, which does without the SDK as long as it can.  One sink writes the
answers of both.
"""

import asyncio
import logging
from contextlib import ExitStack
from functools import partial
from typing import Final

import anyio
import msgspec
from msgspec import UNSET

from quarterdeck.common.shielding import carried_through
from quarterdeck.host.asks.requests import Asking, ClientRequests
from quarterdeck.host.caller import Caller
from quarterdeck.host.calls import ANSWER_S, GRACE_S, shut_down
from quarterdeck.host.journal import Interrupted, Journal, RequestKind
from quarterdeck.host.offers.offer_news import OfferNews
from quarterdeck.host.offers.views import ClientOffers
from quarterdeck.host.provider import ProviderHostImpl
from quarterdeck.host.raw_call_gate import GREETED_ALREADY, RawCallGate
from quarterdeck.host.raw_calls import (
    MAX_LINE_BYTES,
    ClientMessage,
    Key,
    UnreadableError,
    read_cancellation,
    read_capabilities,
    read_introduction,
    read_message,
)
from quarterdeck.host.results import fault_parts
from quarterdeck.host.wire_call import Part, WireCall
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import INVALID_REQUEST, LineBuffer, LineTooLongError
from quarterdeck_protocol.offers import Listing
from quarterdeck_protocol.tools import ANONYMOUS, Client

from .early_reply import FirstLine, claimed_stdio
from .session import Session
from .sink import Sink, open_sink
from .streams import open_source

_logger = logging.getLogger(__name__)

MAX_IN_FLIGHT: Final = 4096
"""Requests of one client under way at once; more are refused, so that cancellations are always still read."""

BUSY: Final = -32000
"""JSON-RPC's first implementation-defined code: too many requests under way."""

END_OF_INPUT_S: Final = 0.5
"""How long calls in flight may still take after the end of input: `serve < requests` gets its answers, and a client
that waits for our exit (the SDK's for 2 s) does not notice."""

HAND_ON_S: Final = 10.0
"""How long calls in progress may still take when the session moves to another process.  Meanwhile its client's
further requests wait unread, so the longest calls are given up."""

CLOSE_S: Final = 2.0
"""How long the session, and then what is left to write, may take once the client is gone."""

NOTHING: Final = FirstLine()
"""Nothing was read before."""

_GREETING_METHODS: Final = frozenset({"initialize", "notifications/initialized"})

LOST_WORDS: Final = "the quarterdeck daemon ended while this was under way; whether it was carried out is not known"

LOST: Final = -32603
"""JSON-RPC's internal error: of a request whose process died."""


async def serve_stdio(
    host: ProviderHostImpl,
    *,
    stdin_fd: int | None = None,
    stdout_fd: int | None = None,
    stderr_fd: int = 2,
    head: FirstLine = NOTHING,
    journal: Journal | None = None,
    interrupted: Interrupted | None = None,
    client: Client = ANONYMOUS,
) -> None:
    """Serve one client until it closes its end, or this is cancelled; then what is under way ends.

    Calls have a short grace (`END_OF_INPUT_S`, or `GRACE_S` when cancelled), new ones are refused meanwhile, and what
    is left then is answered with a fault: every request that was read has its answer.

    Args:
        host: what is served.
        stdin_fd: read instead of the process's stdin; give both or neither.
        stdout_fd: written instead of its stdout.
        stderr_fd: what shares its description with this is never made non-blocking.
        head: what was read and answered before.
        journal: told what the session would need to go on without us.
        interrupted: the session to go on with, in place of `head`: what it was asked and did not answer is answered
            with a fault, and its client told that the tools changed.
        client: who it is.

    Raises:
        ProtocolFault: `transport`, when serving cannot start or breaks.
    """
    client = msgspec.structs.replace(client, is_local=True)  # who is further away comes over HTTP
    with ExitStack() as stack:
        if stdin_fd is None or stdout_fd is None:
            stdin_fd, stdout_fd = stack.enter_context(claimed_stdio())
        fds = stdin_fd, stdout_fd, stderr_fd
        host.content.on_opened(client.key)
        try:
            await _Connection(host, fds, head, journal or Journal(), interrupted, client).serve()
        finally:
            host.content.on_ended(client.key)


class _LineOutlet:
    """Writes what a call says as lines."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    @property
    def is_congested(self) -> bool:
        return self._sink.is_congested

    def tell(self, message: bytes) -> None:
        self._sink.write(message, b"\n")

    def answer(self, id_json: bytes, *parts: Part, error: int = 0) -> None:  # noqa: ARG002 - a line has no status
        self._sink.write(*parts, b"\n", answers=id_json)


class _Connection:
    """One client: its lines, its session, its calls under way."""

    def __init__(
        self,
        host: ProviderHostImpl,
        fds: tuple[int, int, int],
        head: FirstLine,
        journal: Journal,
        interrupted: Interrupted | None,
        client: Client,
    ) -> None:
        self._host = host
        self._client = client
        self._head = head if interrupted is None else FirstLine(interrupted.unread, interrupted.greeted_id)
        self._interrupted = interrupted
        self._journal = journal
        self._is_introduced = False
        self._server_info = host.server_info
        self._gate: RawCallGate[WireCall] = RawCallGate(journal)
        self._call_lines: dict[Key, bytes] = {}
        """The lines of raw calls in progress, to put back if the session is handed on before they are sent."""
        self._over = asyncio.Event()
        self._progress = asyncio.Event()
        self._is_gone = False
        self._is_ending = False
        self._is_handing_on = False
        self._lines = LineBuffer(MAX_LINE_BYTES)
        stdin_fd, stdout_fd, stderr_fd = fds
        self._sink = open_sink(
            stdout_fd, on_broken=self._on_gone, on_room=self._balance, journal=journal, stderr_fd=stderr_fd
        )
        self._outlet = _LineOutlet(self._sink)
        loop, content = asyncio.get_running_loop(), host.content
        self._asking = ClientRequests(loop.call_soon)
        self._caller = Caller(content, client, Asking(self._asking, self._outlet.tell))
        self._source = open_source(stdin_fd, self._take, self._over.set, journal, stderr_fd=stderr_fd)
        self._session = Session(
            host,
            client,
            self._sink,
            on_answered=self._answered,
            on_refused=self._refuse,
            on_room=self._balance,
            on_closed=self._on_gone,
            on_listed=self._on_listed,
            on_level=self._on_level,
            greeted_id=self._head.greeted_id,
            greets_with_change=interrupted is not None,
        )
        self._news = self._listen(content.offers_for(client))

    def _listen(self, offers: ClientOffers | None) -> OfferNews | None:
        """Tell a client of an older era what servers say unasked; log lines that it has no room for are dropped."""
        if offers is None:
            return None

        def tell(notification: bytes) -> None:
            if not self._sink.is_congested:
                self._outlet.tell(notification)

        return OfferNews(offers, self._client, tell, lambda: self._session.is_open)

    def _on_level(self, level: str) -> None:
        if self._news is not None:
            self._news.level = level

    def _on_listed(self, listing: Listing) -> None:
        if self._news is not None:
            self._news.listed.add(listing)

    async def serve(self) -> None:
        try:
            answers = answers_if_lost(self._server_info)
            if self._interrupted is not None:
                self._answer_lost(self._interrupted, answers)
            self._journal.answers_if_lost(answers)
            if self._interrupted is not None:
                for line in filter(None, self._interrupted.greeting.split(b"\n")):
                    self._read(line, len(self._interrupted.unread))
            if self._head.unsent:
                self._sink.write(self._head.unsent)
                self._sink.then(self._journal.greeting_answered)
            self._feed(self._head.data)
            self._balance()
            await self._over.wait()
        finally:
            await carried_through(self._end)
        if self._session.fault is not None:
            raise self._session.fault
        if (failure := self._sink.failure) is not None:
            why = f"the answer to the client cannot be written: {failure.strerror}"
            raise ProtocolFault(FaultKind.TRANSPORT, why, failure)

    async def _end(self) -> None:
        """Let what is under way end, then have it end, each with its answer."""
        session = self._session
        if self._journal.hands_on and not self._over.is_set():
            await self._hand_on()
        self._is_ending = True
        await session.stop_listening()
        with anyio.move_on_after(END_OF_INPUT_S if self._over.is_set() else GRACE_S):
            await self._finished()
        self._source.close()
        self._asking.close()
        for call in self._gate.calls:
            call.end()
        session.end_calls()
        with anyio.move_on_after(ANSWER_S):
            await self._finished()
        await session.end(CLOSE_S)
        self._leave()
        await self._sink.close(CLOSE_S)

    async def _hand_on(self) -> None:
        """Stop reading, let pending requests end, and put back the requests that were not sent to a server."""
        self._is_handing_on = True
        self._balance()
        session = self._session
        back = session.hand_on()
        for line in back:
            self._withdraw(line)
        with anyio.move_on_after(HAND_ON_S):
            await self._finished()
        for call in self._gate.calls:
            line = self._call_lines[call.key]
            if call.give_back():
                back.append(line)
                self._journal.ended(call.id_json)
        if back and not self._journal.put_back(b"".join(line + b"\n" for line in back)):
            for line in back:  # the journal has no room
                message = read_message(line)
                if isinstance(message.id, int | str) and message.method is not UNSET:
                    self._refuse(message.id, LOST, f"{shut_down(Delivery.NOT_SENT).message}")

    def _withdraw(self, line: bytes) -> None:
        """Forget a request that has not begun and is put back."""
        message = read_message(line)
        if isinstance(message.id, int | str) and message.method is not UNSET:
            self._gate.answered(message.id, is_success=False)
            self._journal.ended(msgspec.json.encode(message.id))

    def _leave(self) -> None:
        """End what its client has with the servers beside calls."""
        if self._news is not None:
            self._news.close()
        self._host.content.leave(self._client)

    async def _finished(self) -> None:
        """Wait until nothing is under way that could still be answered."""
        while self._gate.in_flight and not self._is_gone:
            self._progress.clear()
            await self._progress.wait()

    def _on_gone(self) -> None:
        """The client is gone: nothing is read or written any more."""
        self._is_gone = True
        self._progress.set()
        self._over.set()

    def _answer_lost(self, interrupted: Interrupted, answers: tuple[bytes, ...]) -> None:
        """Answer the requests that the dead process left unanswered, and that its door could not answer."""
        if interrupted.is_half_written:
            self._sink.write(b"\n")
            self._sink.then(partial(self._journal.writing, is_half=False))
        for id_json, kind in interrupted.under_way.items():
            if kind is RequestKind.INITIALIZE and interrupted.greeting:
                continue  # it is asked again
            self._sink.write(answers[kind].replace(b"\0", id_json, 1), answers=id_json)
            self._forget(id_json)

    def _forget(self, id_json: bytes) -> None:
        """A request has its answer once all that is held has left: until then another process could have to give it."""
        self._sink.then(partial(self._journal.ended, id_json))

    def _take(self, data: bytes) -> None:
        self._feed(data)
        self._balance()

    def _feed(self, data: bytes) -> None:
        """Take up what the journal has received; each line is taken up before it can do harm, so that it does once.

        A request is noted at the same moment: whenever this process dies, the next one has it, or answers it.
        """
        lines, journal = self._lines, self._journal
        try:
            for line in lines.feed(data):
                self._read(line, lines.ahead_bytes)
            journal.unread(lines.pending_bytes)
        except LineTooLongError as error:
            # Where the next message begins is not known any more: the client must connect again.
            self._refuse(None, INVALID_REQUEST, str(error))
            self._over.set()

    def _balance(self) -> None:
        if self._is_handing_on or self._over.is_set() or self._session.is_full or self._sink.is_congested:
            self._source.pause()
        else:
            self._source.resume()

    def _read(self, line: bytes, unread: int) -> None:
        try:
            message = read_message(line)
        except UnreadableError as error:
            self._journal.unread(unread)
            self._refuse(None, error.code, str(error))
            return
        is_request = message.method is not UNSET and message.id is not UNSET
        if is_request and isinstance(message.id, int | str):
            kind = RequestKind.INITIALIZE if message.method == "initialize" else RequestKind.OTHER
            self._journal.took(msgspec.json.encode(message.id), kind, unread)
        else:
            self._journal.unread(unread)
        if not is_request and (self._asking.take(message) or self._cancel(message)):
            return
        # At the end the session says why nothing is begun any more.
        request = self._gate.admit(message) if not self._is_ending else None
        if request is not None and self._gate.in_flight < MAX_IN_FLIGHT:
            call = WireCall(request, self._outlet, self._server_info, partial(self._on_end, request.id_json))
            # Before `begin`, which may end the call at once.
            self._call_lines[request.key] = line
            if call.begin(self._caller):
                self._gate.began(request, call)
                return
            self._call_lines.pop(request.key, None)
        self._forward(line, message)

    def _cancel(self, message: ClientMessage) -> bool:
        """Whether `message` cancelled a raw call, so that the session need not know."""
        cancelled = read_cancellation(message)
        call = self._gate.call(cancelled.key) if cancelled is not None else None
        if cancelled is None or call is None:
            return False
        call.cancel(cancelled.reason)
        return True

    def _forward(self, line: bytes, message: ClientMessage) -> None:
        request_id = message.id if isinstance(message.id, int | str) else None
        if request_id is not None and self._gate.in_flight >= MAX_IN_FLIGHT:
            self._journal.refused()
            self._refuse(request_id, BUSY, f"more than {MAX_IN_FLIGHT:,} requests are under way")
            return
        if request_id is not None and message.method == "initialize" and self._gate.has_greeted:
            self._refuse(request_id, INVALID_REQUEST, GREETED_ALREADY)
            return
        if message.method in _GREETING_METHODS:
            self._journal.greeted(line)
            if message.method == "initialize":
                self._asking.capabilities = read_capabilities(message)
        self._gate.forwarded(message)
        if not self._is_introduced and (client := read_introduction(message)) is not None:
            self._is_introduced = True
            self._journal.introduced(client.name, client.version)
            self._host.content.programs.introduce(self._client, client.name)
        self._session.take(line, message)

    def _on_end(self, id_json: bytes, key: Key) -> None:
        self._call_lines.pop(key, None)
        self._gate.ended(key)
        self._forget(id_json)
        self._progress.set()

    def _answered(self, request_id: int | str | None, *, is_success: bool) -> None:
        self._gate.answered(request_id, is_success=is_success)
        if request_id is not None:
            self._forget(msgspec.json.encode(request_id))
        self._progress.set()

    def _refuse(self, request_id: int | str | None, code: int, reason: str) -> None:
        _logger.warning("a client's message was refused: %s", reason)
        refusal = {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": reason}}
        self._sink.write(msgspec.json.encode(refusal), b"\n")
        if request_id is not None:
            self._forget(msgspec.json.encode(request_id))


def answers_if_lost(server_info: bytes) -> tuple[bytes, ...]:
    """Return the answer to each kind of request if its process dies: a line, with NUL instead of the id."""
    fault = ProtocolFault(FaultKind.TOOL_ERROR, LOST_WORDS, code="daemon_lost", delivery=Delivery.UNKNOWN)
    error = b'"error":' + msgspec.json.encode({"code": LOST, "message": LOST_WORDS})
    said = {
        RequestKind.CALL: b'"result":' + b"".join(fault_parts(fault, None)),
        RequestKind.MODERN_CALL: b'"result":' + b"".join(fault_parts(fault, server_info)),
    }
    return tuple(b'{"jsonrpc":"2.0","id":\0,' + said.get(kind, error) + b"}\n" for kind in RequestKind)
