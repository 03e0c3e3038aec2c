"""Serve one client over a pair of descriptors, the process's standard streams by default.

A carrier: it knows lines, back-pressure and the journal, and no method.  Every line is judged by the session's core and
carried out by `host.session`; one sink writes what they say.
"""

import asyncio
import logging
from contextlib import ExitStack
from functools import partial
from typing import Final

import msgspec

from quarterdeck.common.shielding import cancelled_by, carried_through
from quarterdeck.host.calls import GRACE_S, Drain, shut_down
from quarterdeck.host.journal import Interrupted, Journal, RequestKind
from quarterdeck.host.provider import ProviderHostImpl
from quarterdeck.host.results import fault_parts
from quarterdeck.host.session.session import Session
from quarterdeck.host.session.work import TaskWork
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import INVALID_REQUEST, MAX_LINE_BYTES, LineBuffer, LineTooLongError
from quarterdeck_protocol.mcp.server.answers import Part
from quarterdeck_protocol.mcp.server.requests import Request
from quarterdeck_protocol.mcp.server.session import BUSY, Answer, Cancelled, Notice, ServerSession
from quarterdeck_protocol.tools import ANONYMOUS, CancelToken, Client

from .client_streams import claimed_stdio
from .sink import open_sink
from .streams import open_source

_logger = logging.getLogger(__name__)

END_OF_INPUT_S: Final = 0.5
"""How long calls in flight may still take after the end of input: `serve < requests` gets its answers, and a client
that waits for our exit (the SDK's for 2 s) does not notice."""

HAND_ON_S: Final = 10.0
"""How long calls in progress may still take when the session moves to another process.  Meanwhile its client's
further requests wait unread, so the longest calls are given up."""

CLOSE_S: Final = 2.0
"""How long what is left to write may take once the client is gone."""

LOST_WORDS: Final = "the quarterdeck daemon ended while this was under way; whether it was carried out is not known"

LOST: Final = -32603
"""JSON-RPC's internal error: of a request whose process died."""


async def serve_stdio(
    host: ProviderHostImpl,
    *,
    stdin_fd: int | None = None,
    stdout_fd: int | None = None,
    stderr_fd: int = 2,
    journal: Journal | None = None,
    interrupted: Interrupted | None = None,
    client: Client = ANONYMOUS,
    drain: Drain | None = None,
) -> None:
    """Serve one client until it closes its end, or this is cancelled; then what is under way ends.

    Calls have a short grace (`END_OF_INPUT_S`, or as `drain` says when cancelled), new ones are refused meanwhile, and
    what is left then is answered with a fault: every request that was read has its answer.

    Args:
        host: what is served.
        stdin_fd: read instead of the process's stdin; give both or neither.
        stdout_fd: written instead of its stdout.
        stderr_fd: what shares its description with this is never made non-blocking.
        journal: told what the session would need to go on without us.
        interrupted: the session to go on with, which another process began: what it was asked and did not answer is
            answered with a fault, and its client told that the tools changed.
        client: who it is.
        drain: read at the end; None for `GRACE_S`.

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
            await _Connection(host, fds, journal or Journal(), interrupted, client, drain).serve()
        finally:
            host.content.on_ended(client.key)


class _Connection:
    """One client: its lines, and its session, whose one outlet it is."""

    def __init__(
        self,
        host: ProviderHostImpl,
        fds: tuple[int, int, int],
        journal: Journal,
        interrupted: Interrupted | None,
        client: Client,
        drain: Drain | None,
    ) -> None:
        self._host = host
        self._client = client
        self._interrupted = interrupted
        self._drain = drain or Drain(GRACE_S, GRACE_S)
        self._journal = journal
        self._is_introduced = self._is_gone = self._is_handing_on = False
        self._over = asyncio.Event()
        self._progress: asyncio.Event | None = None  # of whoever waits for it
        self._lines = LineBuffer(MAX_LINE_BYTES)
        stdin_fd, stdout_fd, stderr_fd = fds
        self._sink = open_sink(
            stdout_fd, on_broken=self._on_gone, on_room=self._balance, journal=journal, stderr_fd=stderr_fd
        )
        self._source = open_source(stdin_fd, self._take, self._over.set, journal, stderr_fd=stderr_fd)
        self._closing = CancelToken()
        self._core = ServerSession(asyncio.get_running_loop().call_soon, has_offers=host.content.offers is not None)
        self._session = Session(
            host, client, self._core, self._closing, outlet=self, knows_tools=interrupted is not None
        )

    async def serve(self) -> None:
        try:
            answers = answers_if_lost(self._host.server_info)
            if self._interrupted is not None:
                self._answer_lost(self._interrupted, answers)
            self._journal.answers_if_lost(answers)
            if self._interrupted is not None:
                for line in filter(None, self._interrupted.greeting.split(b"\n")):
                    self._read(line, len(self._interrupted.unread))
                self._feed(self._interrupted.unread)
            self._balance()
            await self._over.wait()
        finally:
            await carried_through(self._end)
        if (failure := self._sink.failure) is not None:
            why = f"the answer to the client cannot be written: {failure.strerror}"
            raise ProtocolFault(FaultKind.TRANSPORT, why, failure)

    # What the client says

    def _take(self, data: bytes) -> None:
        self._feed(data)
        if self._sink.is_congested or self._over.is_set():
            self._source.pause()

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
            self._refuse(b"null", INVALID_REQUEST, str(error))
            self._over.set()

    def _balance(self) -> None:
        if self._is_handing_on or self._over.is_set() or self._sink.is_congested:
            self._source.pause()
        else:
            self._source.resume()

    def _read(self, line: bytes, unread: int) -> None:
        journal = self._journal
        match self._core.receive(line):
            case Request() as request:
                journal.took(request.id_json, _kind_of(request), unread)
                if not self._is_introduced:
                    self._introduce(request, line)
                if journal.hands_on:
                    request.line = line
                self._session.serve(request, self)
            case Answer(id_json=b"") as answer:
                journal.unread(unread)
                _logger.warning("a client's message was refused: %s", b"".join(answer.parts).decode())
                self._sink.write(*answer.parts, b"\n")
            case Answer() as answer:
                journal.took(answer.id_json, RequestKind.OTHER, unread)
                if answer.code == BUSY:
                    journal.refused()
                self._sink.write(*answer.parts, b"\n", answers=answer.id_json)
            case event:
                journal.unread(unread)
                self._take_note(event, line)

    def _take_note(self, event: Cancelled | Notice | None, line: bytes) -> None:
        if isinstance(event, Cancelled):
            event.request.work.cancelled(event.reason)
        elif event is not None:
            if event is Notice.OPENED:
                self._journal.greeted(line)
            self._session.take_notice(event)

    def _introduce(self, request: Request, line: bytes) -> None:
        """Note the client's greeting, and who it says it is."""
        if request.method == "initialize":
            self._journal.greeted(line)
        if (client := self._core.client) is not None:
            self._is_introduced = True
            self._journal.introduced(client.name, client.version)
            self._host.content.programs.introduce(self._client, client.name)

    # What the client is told

    @property
    def is_congested(self) -> bool:
        """Whether the client is too slow for what was written."""
        return self._sink.is_congested

    async def room(self) -> None:
        """Wait while congested."""
        await self._sink.room()

    def tell(self, message: bytes) -> None:
        """Send a message."""
        self._sink.write(message, b"\n")

    def keep(self, _: int) -> str:
        """Nothing is refused: a client that does not read is not read."""
        return ""

    def answer(self, request: Request, parts: tuple[Part, ...], _: int) -> None:
        """Send an answer, unless it is that of a greeting that was answered before."""
        if request.method == "initialize" and self._was_greeted(request):
            self.drop(request)
            return
        self._sink.write(*parts, b"\n", answers=request.id_json)
        if self._progress is not None:
            self._progress.set()

    def drop(self, request: Request) -> None:
        """A request is over without an answer."""
        self._journal.ended(request.id_json)
        if self._progress is not None:
            self._progress.set()

    def _was_greeted(self, request: Request) -> bool:
        """Whether another process answered this greeting."""
        greeted_id = self._interrupted.greeted_id if self._interrupted is not None else None
        return greeted_id is not None and msgspec.json.encode(greeted_id) == request.id_json

    def _refuse(self, id_json: bytes, code: int, reason: str) -> None:
        _logger.warning("a client's message was refused: %s", reason)
        refusal = {"jsonrpc": "2.0", "id": msgspec.Raw(id_json), "error": {"code": code, "message": reason}}
        self._sink.write(msgspec.json.encode(refusal), b"\n")

    def _answer_lost(self, interrupted: Interrupted, answers: tuple[bytes, ...]) -> None:
        """Answer the requests that the dead process left unanswered, and that its door could not answer."""
        if interrupted.is_half_written:
            self._sink.write(b"\n")
            self._sink.then(partial(self._journal.writing, is_half=False))
        for id_json, kind in interrupted.under_way.items():
            if kind is RequestKind.INITIALIZE and interrupted.greeting:
                continue  # it is asked again
            self._sink.write(answers[kind].replace(b"\0", id_json, 1), answers=id_json)

    # The end

    async def _end(self) -> None:
        """Let what is under way end, then have it end, each with its answer."""
        if self._journal.hands_on and not self._over.is_set():
            await self._hand_on()
        self._closing.cancel()
        with cancelled_by(self._drain.hurry, END_OF_INPUT_S if self._over.is_set() else self._drain.within_s):
            await self._finished()
        self._source.close()
        self._core.asking.close()
        for request in self._core.requests:
            request.work.end()
        self._session.leave()
        await self._sink.close(CLOSE_S)

    async def _hand_on(self) -> None:
        """Stop reading, let pending requests end, and put back the requests that were not sent to a server."""
        self._is_handing_on = True
        self._balance()
        back = [request for request in self._core.requests if type(request.work) is TaskWork]
        back = [request for request in back if request.work.give_back()]
        self._closing.cancel()
        with cancelled_by(self._drain.hurry, HAND_ON_S):
            await self._finished()
        back += [request for request in self._core.requests if request.work.give_back()]
        for request in back:
            self._journal.ended(request.id_json)
        if back and not self._journal.put_back(b"".join(request.line + b"\n" for request in back)):
            for request in back:  # the journal has no room
                self._refuse(request.id_json, LOST, shut_down(Delivery.NOT_SENT).message)

    async def _finished(self) -> None:
        """Wait until nothing is under way that could still be answered."""
        progress = self._progress = asyncio.Event()
        while self._core.under_way and not self._is_gone:
            progress.clear()
            await progress.wait()

    def _on_gone(self) -> None:
        """The client is gone: nothing is read or written any more."""
        self._is_gone = True
        if self._progress is not None:
            self._progress.set()
        self._over.set()


_CALLS: Final = (RequestKind.CALL, RequestKind.MODERN_CALL)


def _kind_of(request: Request) -> RequestKind:
    if request.method == "tools/call" and not request.task:
        # A client that asks for a task takes no result of a call for one.
        return _CALLS[request.is_modern]
    return RequestKind.INITIALIZE if request.method == "initialize" else RequestKind.OTHER


def answers_if_lost(server_info: bytes) -> tuple[bytes, ...]:
    """Return the answer to each kind of request if its process dies: a line, with NUL instead of the id."""
    fault = ProtocolFault(FaultKind.TOOL_ERROR, LOST_WORDS, code="daemon_lost", delivery=Delivery.UNKNOWN)
    error = b'"error":' + msgspec.json.encode({"code": LOST, "message": LOST_WORDS})
    said = {
        RequestKind.CALL: b'"result":' + b"".join(fault_parts(fault, None)),
        RequestKind.MODERN_CALL: b'"result":' + b"".join(fault_parts(fault, server_info)),
    }
    return tuple(b'{"jsonrpc":"2.0","id":\0,' + said.get(kind, error) + b"}\n" for kind in RequestKind)
