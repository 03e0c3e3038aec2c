"""The worker's side of a link: requests in, one server's life behind them, replies and news out.

Knows no socket and no process: it is given a driver and a life to live, so that the supervisor can run the same
code in its own process for a session that somebody else made.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol, assert_never

import anyio
import anyio.abc
import msgspec
from mcp.shared.exceptions import MCPError

from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord, RemoteCause
from quarterdeck_protocol.frames import (
    Answer,
    Call,
    Cancel,
    Close,
    Failed,
    List,
    ListChanged,
    Log,
    Lost,
    Open,
    OpenOrder,
    Progress,
    Reply,
)
from quarterdeck_protocol.link import Arrived, Expired, Greeted, LinkEvent, Overdue, Settled, Silent, Violated
from quarterdeck_worker.calls import Ended, refusal
from quarterdeck_worker.listing import ListingError
from quarterdeck_worker.news import Newsroom
from quarterdeck_worker.session import Life, OpenServer, ServerFault

LiveServer = Callable[[OpenOrder, Life], Awaitable[None]]
"""`run_server`, or its in-process twin."""


class LinkEnd(Protocol):
    """What a worker needs of its driver."""

    def reply(self, frame: Reply, body: bytes = b"") -> None:
        """See `Link.reply`."""
        ...

    def post(self, frame: Progress | Log | ListChanged | Lost) -> bool:
        """See `Link.post`."""
        ...


class Worker:
    """Serves one link; `finished` is set when there is nothing left to serve."""

    def __init__(self, tasks: anyio.abc.TaskGroup, live: LiveServer, clock: Callable[[], float]) -> None:
        self._tasks = tasks
        self._live = live
        self._clock = clock
        self._end: LinkEnd | None = None
        self._life: Life | None = None
        self._life_scope = anyio.CancelScope()
        self._server: OpenServer | None = None
        self._requests: dict[int, Open | List | Call | Close] = {}
        self._scopes: dict[int, anyio.CancelScope] = {}
        self.finished = anyio.Event()
        self.link_lost: str | None = None

    def attach(self, end: LinkEnd) -> None:
        """Where replies go; before the first event."""
        self._end = end

    def on_event(self, event: LinkEvent) -> None:
        """Take what the link says."""
        match event:
            case Arrived(frame=Call() as call, body=body):
                self._call(call, body)
            case Arrived(frame=Cancel(request_id=request_id, reason=reason)):
                self._give_up(request_id, reason, FaultRecord(FaultKind.TOOL_ERROR, "cancelled", "cancelled"))
            case Arrived(frame=Open() as request, body=body):
                self._requests[request.request_id] = request
                self._tasks.start_soon(self._own_life, request, body)
            case Arrived(frame=List() as request):
                self._requests[request.request_id] = request
                self._tasks.start_soon(self._list, request)
            case Arrived(frame=Close() as request):
                self._close(request)
            case Expired(request_id=request_id):
                self._expire(request_id)
            case Silent(silence_s=silence_s):
                self._abandon_ship(f"the supervisor is silent for {silence_s:.0f} s")
            case Violated(reason=reason):
                self._abandon_ship(reason)
            case Greeted() | Arrived() | Settled() | Overdue():
                pass  # the link admits no other frame on this side, and we ask nothing
            case _:
                assert_never(event)

    # Calls

    def _call(self, call: Call, arguments: bytes) -> None:
        self._requests[call.request_id] = call
        if self._server is None:
            self._fail(call.request_id, _not_connected())
            return
        if not self._server.can_take():
            record = FaultRecord(
                FaultKind.TOOL_ERROR, "the server does not read what it is sent", "busy", Delivery.NOT_SENT
            )
            self._fail(call.request_id, record)
            return

        def done(ended: Ended) -> None:
            if isinstance(ended.outcome, FaultRecord):
                self._fail(call.request_id, ended.outcome)
            else:
                result = ended.outcome
                assert self._server is not None
                answer = Answer(call.request_id, self._server.card.era, result.result_type, result.is_error)
                self._answer(answer, result.body)

        self._server.calls.begin(call, arguments, done)

    def _give_up(self, request_id: int, reason: str, record: FaultRecord) -> None:
        """Stop a request of any kind, and answer it with `record`."""
        request = self._requests.get(request_id)
        match request:
            case Call():
                if self._server is not None:
                    self._server.calls.cancel(request_id, reason)
            case List() if (scope := self._scopes.get(request_id)) is not None:
                scope.cancel()
            case Open():
                self._life_scope.cancel()
            case _:
                pass
        self._fail(request_id, record)

    def _expire(self, request_id: int) -> None:
        match self._requests.get(request_id):
            case Call(tool=tool, timeout_s=timeout_s):
                record = _timeout("call_timeout", f"{tool} did not answer within {timeout_s:g} s")
            case List(timeout_s=timeout_s):
                record = _timeout("list_timeout", f"the server did not list its tools within {timeout_s:g} s")
            case Open(timeout_s=timeout_s):
                dossier = self._life.diagnose() if self._life is not None else None
                record = _timeout(
                    "handshake_timeout", f"the server did not answer the handshake within {timeout_s:g} s", dossier
                )
            case _:
                record = _timeout("closed", "the server did not stop in time")
        self._give_up(request_id, "the deadline has passed", record)

    # The server's life

    async def _own_life(self, request: Open, body: bytes) -> None:
        order = msgspec.json.decode(body, type=OpenOrder)
        end = self._link_end()
        newsroom = Newsroom(end.post, self._clock)

        def on_open(server: OpenServer) -> None:
            self._server = server
            self._answer(Answer(request.request_id, server.card.era), msgspec.json.encode(server.card))

        self._life = Life(newsroom, on_open)
        lost: FaultRecord | None = None
        with self._life_scope:
            try:
                await self._live(order, self._life)
            except ServerFault as fault:
                lost = fault.record
            except Exception as error:
                lost = FaultRecord(
                    FaultKind.TRANSPORT, f"the worker failed: {error!r}", "worker_lost", cause=RemoteCause.of(error)
                )
        was_open, self._server = self._server is not None, None
        for scope in self._scopes.values():
            scope.cancel()
        for left in list(self._requests.values()):
            self._fail_left(left, lost, self._life)
        if lost is not None and was_open:
            end.post(Lost(lost))
        self.finished.set()

    def _fail_left(self, request: Open | List | Call | Close, lost: FaultRecord | None, life: Life) -> None:
        match request:
            case Close():
                self._answer(Answer(request.request_id), msgspec.json.encode(life.diagnose() or Dossier()))
            case Open() if lost is not None:
                self._fail(request.request_id, lost)
            case _:
                self._fail(request.request_id, _not_connected())

    def _close(self, request: Close) -> None:
        self._requests[request.request_id] = request
        if self._life is None:
            self._answer(Answer(request.request_id), msgspec.json.encode(Dossier()))
            self.finished.set()
        elif self._server is None:
            self._life_scope.cancel()
        else:
            self._life.stop.set()

    async def _list(self, request: List) -> None:
        scope = self._scopes[request.request_id] = anyio.CancelScope()
        with scope:
            if self._server is None:
                self._fail(request.request_id, _not_connected())
                return
            assert self._life is not None
            self._life.newsroom.listing()
            try:
                tools = await self._server.list_tools()
                self._answer(Answer(request.request_id, self._server.card.era if self._server else ""), tools)
            except ListingError as error:
                self._fail(request.request_id, FaultRecord(FaultKind.PROTOCOL, str(error), error.code))
            except MCPError as error:
                text = refusal(error.error.code, error.error.message).message
                self._fail(request.request_id, FaultRecord(FaultKind.PROTOCOL, text, "reply_error"))
            finally:
                del self._scopes[request.request_id]

    def _abandon_ship(self, reason: str) -> None:
        self.link_lost = reason
        self._requests.clear()
        self._life_scope.cancel()
        if self._life is None:
            self.finished.set()

    # Replies

    def _answer(self, answer: Answer, body: bytes) -> None:
        if self._requests.pop(answer.request_id, None) is not None:
            self._link_end().reply(answer, body)

    def _fail(self, request_id: int, record: FaultRecord) -> None:
        if self._requests.pop(request_id, None) is not None:
            self._link_end().reply(Failed(request_id, record))

    def _link_end(self) -> LinkEnd:
        assert self._end is not None
        return self._end


def _not_connected() -> FaultRecord:
    return FaultRecord(FaultKind.NOT_CONNECTED, "the server is not ready", "not_connected", Delivery.NOT_SENT)


def _timeout(code: str, message: str, dossier: Dossier | None = None) -> FaultRecord:
    return FaultRecord(FaultKind.TIMEOUT, message, code, dossier=dossier)
