"""One MCP connection over a server's pipes: carries the relay's lines, hands its events on, gives it the time.

The relay knows the protocol and judges every line (`quarterdeck_protocol.mcp.client`); here it meets pipes and a loop.
"""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final, assert_never

from msgspec.structs import replace

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord
from quarterdeck_protocol.identity import CLIENT_NAME, CLIENT_VERSION
from quarterdeck_protocol.link.frames import AskAnswer, Call, Forward, ListKind, OpenOrder, ServerCard
from quarterdeck_protocol.mcp.client import METHODS, Client, Refusal, Relay, events
from quarterdeck_protocol.mcp.jsonrpc import LineTooLongError, SplitResult
from quarterdeck_protocol.questions import askable
from quarterdeck_sandbox import ConfinedProcess
from quarterdeck_worker.notifications import Notifier
from quarterdeck_worker.server import UNASKABLE, Done

from .pipe import ServerPipe

CLIENT: Final = Client(CLIENT_NAME, CLIENT_VERSION)
"""Who we say we are to servers."""

NO_STDIN: Final = FaultRecord(FaultKind.TOOL_ERROR, "the server has closed its stdin", "server_lost", Delivery.NOT_SENT)
UNREAD: Final = FaultRecord(FaultKind.TOOL_ERROR, "the server does not read what it is sent", "busy", Delivery.NOT_SENT)
TOO_MANY: Final = FaultRecord(FaultKind.TOOL_ERROR, "too many calls wait already", "busy", Delivery.NOT_SENT)


class StdioConnection:
    """See the module; a `Server` once it is greeted.

    Attributes:
        greeting: what came of the greeting; never set when the pipes end first.
        ended: set when nothing more will be read.
        overflow: the line that was too long, if that was the end.
        junk_lines: of the server's lines, those that are no messages.
        lines: all that it wrote.
        on_junk: takes each line that is no message.
        on_answer: takes each answer and returns the answer to send; None to send answers unchanged.
    """

    def __init__(self, process: ConfinedProcess, order: OpenOrder, notifier: Notifier, *, max_line_bytes: int) -> None:
        """Begin to greet; the process and its pipes are the caller's."""
        self._notifier = notifier
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._waiting: dict[int, Done] = {}
        self._listened = 0
        self.greeting: asyncio.Future[events.Server | events.GreetingFailed] = self._loop.create_future()
        self.ended = asyncio.Event()
        self.overflow: LineTooLongError | None = None
        self.junk_lines = 0
        self.lines = 0
        self.on_junk: Callable[[bytes], None] = lambda _: None
        self.on_answer: Callable[[SplitResult | FaultRecord], SplitResult | FaultRecord] | None = None
        self.card = ServerCard(era="", pid=process.pid)
        self.pipe = ServerPipe(
            process.stdin_fd,
            process.stdout_fd,
            max_line_bytes=max_line_bytes,
            on_line=self._receive,
            on_drain=self._flush,
            on_end=self._end,
        )
        capabilities = order.capabilities.encode()
        self._relay = Relay(
            replace(CLIENT, handshake=capabilities),
            now=monotonic(),
            max_bytes=order.max_result_bytes,
            forced=order.protocol,
            newer_first=order.newer_first,
            offers=askable(capabilities),
        )
        self._flush()

    # What is asked of the server

    def refusal(self) -> FaultRecord | None:
        """See `Server`."""
        if self.pipe.can_write:
            return None
        return UNREAD if self.pipe.is_heard else NO_STDIN

    def call(self, call: Call, arguments: bytes, done: Done) -> None:
        """See `Server`."""
        number, given = call.request_id, arguments or b"{}"
        client = _caller(call) if call.capabilities or call.log_level else None
        refusal = self._relay.call(number, call.tool, given, meta=call.meta, progress=call.progress, client=client)
        self._book(number, done, refusal)

    def forward(self, request: Forward, params: bytes, done: Done) -> None:
        """See `Server`."""
        number, method = request.request_id, request.method
        client = _caller(request) if request.capabilities or request.log_level else None
        refusal = self._relay.request(
            number, method, params, meta=request.meta, progress=request.progress, client=client
        )
        self._book(number, done, refusal)

    def list_items(self, request_id: int, kind: ListKind, done: Done) -> None:
        """See `Server`."""
        self._book(request_id, done, self._relay.list_all(request_id, METHODS[kind], monotonic()))

    def answer(self, answer: AskAnswer, body: bytes) -> None:
        """See `Server`."""
        if answer.code:
            self._relay.refuse(answer.ask_id, answer.code, answer.message, body)
        else:
            self._relay.answer(answer.ask_id, body)
        self._flush()

    def tell(self, method: str, params: bytes) -> None:
        """See `Server`; dropped when it does not read: what is told unasked can be missed."""
        if self.pipe.can_write:
            self._relay.notify(method, params)
            self._flush()

    def listen(self, uris: tuple[str, ...]) -> None:
        """See `Server`."""
        server = self._relay.server
        if server is not None and server.is_modern:
            self._listened = len(uris)
            self._relay.listen(self.card.announces, uris)
            self._flush()

    @property
    def is_at_rest(self) -> bool:
        """Whether nobody waits for the server: it is greeted, no call is open, no line begun."""
        return self.greeting.done() and not self._waiting and not self.pipe.waits_for_a_line

    def cancel(self, request_id: int, reason: str) -> bool:
        """See `Server`."""
        if self._waiting.pop(request_id, None) is None:
            return False
        self._relay.cancel(request_id, reason)
        self._flush()
        return True

    def close(self) -> None:
        """Leave the loop; the descriptors can be closed now."""
        self.pipe.close()
        self.greeting.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _book(self, request_id: int, done: Done, refusal: Refusal | None) -> None:
        if refusal is not None:
            done(TOO_MANY)
            return
        self._waiting[request_id] = done
        self._write()

    # What the server says

    def _receive(self, line: bytes) -> None:
        self.lines += 1
        happened = self._relay.receive(line, monotonic())
        if len(happened) == 1 and isinstance(answered := happened[0], events.Answered):
            self._finish(answered.request_id, answered.result)  # and nothing else follows, which is most of all lines
        else:
            self._take(happened)

    def _take(self, happened: Sequence[events.Event]) -> None:
        for event in happened:
            match event:
                case events.Answered(request_id, result):
                    self._finish(request_id, result)
                case events.Progressed(request_id, progress, total, message):
                    self._notifier.progress(request_id, progress, total, message)
                case events.Listed(request_id, items):
                    self._finish(request_id, SplitResult(items))
                case events.Refused() | events.Spoiled() | events.ListingFailed():
                    self._finish(event.request_id, events.fault_of(event))
                case events.Logged() | events.Changed() | events.Updated() | events.Noted():
                    self._notifier.said(event)
                case events.Asked(ask_id, method, params):
                    if not self._notifier.asked(ask_id, method, params):
                        self._relay.refuse(ask_id, *UNASKABLE)
                case events.AskEnded(ask_id):
                    self._notifier.ask_ended(ask_id)
                case events.Greeted(server):
                    self._greeted(server)
                case events.GreetingFailed():
                    self._settle(event)
                case events.Junk(line):
                    self.junk_lines += 1
                    self.on_junk(line)
                case events.Listening():
                    if self._listened:
                        self._notifier.listening(self._listened)
                case events.Expired():
                    pass  # deadlines are the link's
                case _:
                    assert_never(event)
        self._flush()

    def _finish(self, request_id: int, outcome: SplitResult | FaultRecord) -> None:
        if (done := self._waiting.pop(request_id, None)) is not None:
            done(outcome if self.on_answer is None else self.on_answer(outcome))

    def _greeted(self, server: events.Server) -> None:
        self.card = ServerCard(
            server.era,
            self.card.pid,
            server.name,
            server.version,
            server.instructions,
            tuple(sorted(server.announces)),
            server.title,
            server.capabilities,
            server.info,
        )
        if server.announces and server.is_modern:
            self._relay.listen(self.card.announces)
        self._settle(server)

    def _settle(self, outcome: events.Server | events.GreetingFailed) -> None:
        if not self.greeting.done():
            self.greeting.set_result(outcome)

    def _end(self, error: LineTooLongError | None) -> None:
        self.overflow = error
        self.ended.set()

    # What the relay owes

    def _flush(self) -> None:
        """Write what the relay has to say, and have it called again when it wants to be."""
        self._write()
        if (wake_at := self._relay.wake_at) < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = wake_at
            self._timer = self._loop.call_at(wake_at, self._ring)

    def _write(self) -> None:
        if self.pipe.can_write and (lines := self._relay.take()):
            self.pipe.write(lines)

    def _ring(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        self._take(self._relay.advance(monotonic()))


def _caller(request: Call | Forward) -> Client:
    """As whom a request is made, where the era says so with each."""
    level = request.log_level or CLIENT.log_level
    return replace(CLIENT, capabilities=request.capabilities or CLIENT.capabilities, log_level=level)
