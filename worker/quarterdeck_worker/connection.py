"""One MCP connection: carries the relay's lines, hands its events on, and gives it the time.

The relay knows the protocol and judges every line (`quarterdeck_protocol.mcp.client`).  A carrier brings the lines to
the server and back: its pipes (`stdio.pipe`), HTTP (`http.carrier`), or a session of the SDK in the supervisor.
"""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final, Protocol, assert_never

from msgspec.structs import replace

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord
from quarterdeck_protocol.identity import CLIENT_NAME, CLIENT_VERSION
from quarterdeck_protocol.link.frames import AskAnswer, Call, Forward, List, OpenOrder, ServerCard
from quarterdeck_protocol.mcp.client import METHODS, Client, Relay, events
from quarterdeck_protocol.mcp.jsonrpc import SplitResult
from quarterdeck_protocol.questions import askable

from .notifications import Notifier
from .server import OnEnd, first_of

CLIENT: Final = Client(CLIENT_NAME, CLIENT_VERSION)  # our name to servers

UNASKABLE: Final = (-32603, "too much waits already: this cannot be asked now")
"""The error that answers a server's request that cannot be passed on."""

TOO_MANY: Final = FaultRecord(FaultKind.TOOL_ERROR, "too many calls wait already", "busy", Delivery.NOT_SENT)

KEPT_ARGUMENTS: Final = 4096
"""Bytes of a call's arguments that are kept until it ends: its error may be about a path in them."""


class Carrier(Protocol):
    """Brings lines to one server; calls its connection's `receive`, `fail`, `flush` and `end`."""

    def refusal(self) -> FaultRecord | None:
        """Return why the server takes no more; None when it does."""

    def write(self, lines: bytes) -> None:
        """Send whole lines, each a message with its end."""


class Connection:
    """One MCP connection; a worker asks through it once it is greeted."""

    def __init__(
        self,
        order: OpenOrder,
        notifier: Notifier,
        on_end: OnEnd,
        on_junk: Callable[[bytes], None] = lambda _: None,
        pid: int | None = None,
    ) -> None:
        """Prepare a connection; `begin` starts it.

        `order` names the revision, the bounds, and the asker's capabilities; `notifier` takes what the server says
        unasked, `on_end` the end of each request that is not cancelled, once, `on_junk` each line that is no message;
        `pid` is None for a process that is not ours.
        """
        self._notifier = notifier
        self._on_end = on_end
        self._on_junk = on_junk
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._listened = 0
        self._arguments: dict[int, bytes] = {}
        self._carrier: Carrier
        # The outcome of the greeting; never set if the connection ends first
        self.greeting: asyncio.Future[events.Server | events.GreetingFailed] = self._loop.create_future()
        self.ended = asyncio.Event()  # set when nothing more will be read
        self.junk_lines = 0
        self.lines = 0  # that the server wrote; `junk_lines` of them are no messages
        self.card = ServerCard(era="", pid=pid)  # the server's description of itself; empty until it is greeted
        capabilities = order.capabilities.encode()
        self._relay = Relay(
            replace(CLIENT, handshake=capabilities),
            now=monotonic(),
            max_bytes=order.max_result_bytes,
            forced=order.protocol,
            newer_first=order.newer_first,
            offers=askable(capabilities),
        )

    def begin(self, carrier: Carrier) -> None:
        """Greet the server; the carrier is the caller's to close."""
        self._carrier = carrier
        self.flush()

    async def greeted(self) -> events.Server | events.GreetingFailed | None:
        """Wait for the outcome of the greeting; None where the connection ends first."""
        await first_of(lambda: asyncio.wait((self.greeting,)), self.ended.wait)
        return self.greeting.result() if self.greeting.done() else None

    # What is asked of the server

    def ask(self, request: Call | Forward | List, body: bytes = b"") -> FaultRecord | None:
        """Begin a request, and return why not, or None.  A list ends in one JSON array as the result's body."""
        if (refused := self._carrier.refusal()) is not None:
            return refused
        number = request.request_id
        match request:
            case Call(tool=tool, meta=meta, progress=progress):
                given, client = body or b"{}", _caller(request)
                refusal = self._relay.call(number, tool, given, meta=meta, progress=progress, client=client)
            case List(kind=kind):
                self._notifier.listing(kind)
                refusal = self._relay.list_all(number, METHODS[kind], monotonic())
            case Forward(method=method, meta=meta, progress=progress):
                client = _caller(request)
                refusal = self._relay.request(number, method, body, meta=meta, progress=progress, client=client)
        if refusal is not None:
            return TOO_MANY
        if self.card.pid is not None and len(body) <= KEPT_ARGUMENTS and isinstance(request, Call):
            self._arguments[number] = body
        self._carrier.write(self._relay.take())
        return None

    def answer(self, answer: AskAnswer, body: bytes) -> None:
        """Answer what the server asked; harmless when that has ended."""
        if answer.code:
            self._relay.refuse(answer.ask_id, answer.code, answer.message, body)
        else:
            self._relay.answer(answer.ask_id, body)
        self.flush()

    def tell(self, method: str, params: bytes) -> None:
        """Pass a notification on; dropped when the server takes no more: what is told unasked can be missed."""
        if self._carrier.refusal() is None:
            self._relay.notify(method, params)
            self.flush()

    def listen(self, uris: tuple[str, ...]) -> None:
        """Have a modern server tell of changes of these resources and no others; an older one is asked."""
        server = self._relay.server
        if server is not None and server.is_modern:
            self._listened = len(uris)
            self._relay.listen(self.card.announces, uris)
            self.flush()

    def cancel(self, request_id: int, reason: str) -> None:
        """Give a request up and tell the server; harmless when it has ended."""
        self._arguments.pop(request_id, None)
        self._relay.cancel(request_id, reason)
        self.flush()

    def take_arguments(self, request_id: int) -> bytes:
        """Return the arguments of a call of a process of ours, for the only time; nothing for long ones."""
        return self._arguments.pop(request_id, b"")

    def close(self) -> None:
        """Leave the loop."""
        self.greeting.cancel()
        if self._timer is not None:
            self._timer.cancel()

    @property
    def is_at_rest(self) -> bool:
        """Whether nobody waits for the server: it is greeted, and no request is open."""
        return self.greeting.done() and self._relay.is_idle

    def awaits(self, wire_id: int) -> bool:
        """Whether the request with this id on the wire still waits for its answer."""
        return self._relay.awaits(wire_id)

    # What the carrier brings

    def receive(self, line: bytes, to: int = 0) -> None:
        """Take a line without its end; `to` as for `Relay.receive`."""
        self.lines += 1
        happened = self._relay.receive(line, monotonic(), to)
        if len(happened) == 1 and isinstance(answered := happened[0], events.Answered):
            self._on_end(answered.request_id, answered.result)  # and nothing else follows: most of all lines
        else:
            self._take(happened)

    def fail(self, wire_id: int, fault: FaultRecord, *, is_passing: bool = False) -> None:
        """End a request that cannot be delivered, or answered; arguments as for `Relay.fail`."""
        self._take(self._relay.fail(wire_id, fault, monotonic(), is_passing=is_passing))

    def end(self) -> None:
        """Nothing more will be read."""
        self.ended.set()

    def flush(self) -> None:
        """Write what the relay has to say, and have it called again when it wants to be."""
        if self._carrier.refusal() is None and (lines := self._relay.take()):
            self._carrier.write(lines)
        if (wake_at := self._relay.wake_at) < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = wake_at
            self._timer = self._loop.call_at(wake_at, self._ring)

    def _ring(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        self._take(self._relay.advance(monotonic()))

    def _take(self, happened: Sequence[events.Event]) -> None:
        for event in happened:
            match event:
                case events.Answered(request_id, result):
                    self._on_end(request_id, result)
                case events.Progressed(request_id, progress, total, message):
                    self._notifier.progress(request_id, progress, total, message)
                case events.Listed(request_id, items):
                    self._on_end(request_id, SplitResult(items))
                case events.Refused() | events.Spoiled() | events.ListingFailed():
                    self._on_end(event.request_id, events.fault_of(event))
                case events.Failed(request_id, fault):
                    self._on_end(request_id, fault)
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
                    self._on_junk(line)
                case events.Listening():
                    if self._listened:
                        self._notifier.listening(self._listened)
                case _:
                    assert_never(event)
        self.flush()

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


def _caller(request: Call | Forward) -> Client | None:
    """Return the client that a request is made as, if it differs; an era may say so with each."""
    if not (request.capabilities or request.log_level):
        return None
    level = request.log_level or CLIENT.log_level
    return replace(CLIENT, capabilities=request.capabilities or CLIENT.capabilities, log_level=level)
