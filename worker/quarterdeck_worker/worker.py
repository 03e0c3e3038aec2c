"""Serve one link in a worker: requests in, one server behind them, replies and notifications out.

Knows no socket and no process: it is given a driver and a function that runs a server, so that the supervisor can run
the same code in its own process for a session that somebody else made.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol, assert_never

import anyio
import anyio.abc
import msgspec

from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord, RemoteCause, ReplyError
from quarterdeck_protocol.link import events, frames
from quarterdeck_protocol.mcp.client.paging import noun
from quarterdeck_protocol.secrets import Redactor

from .connection import Connection
from .notifications import Notifier
from .server import Access, Outcome, RunServer, ServerFault, ServerRun

NOT_CONNECTED: Final = FaultRecord(
    FaultKind.NOT_CONNECTED, "the server is not ready", "not_connected", Delivery.NOT_SENT
)

MAX_TOKENS: Final = 8
"""Access tokens, the last ones, that no message repeats: a server may still speak of one that was renewed."""

CLOSED: Final = FaultRecord(FaultKind.NOT_CONNECTED, "the server was closed meanwhile", "closed")


class LinkEnd(Protocol):
    """What a worker needs of its driver, as in `Link`."""

    def reply(self, frame: frames.Reply, body: bytes = b"") -> None:
        """See `Link.reply`."""

    def post(self, frame: frames.News, body: bytes = b"") -> bool:
        """See `Link.post`."""

    def pause(self) -> None:
        """See `Link.pause`."""

    def resume(self) -> None:
        """See `Link.resume`."""


class Worker:
    """Serves one link; `finished` is set when there is nothing left to serve."""

    _link: LinkEnd

    def __init__(self, tasks: anyio.abc.TaskGroup, run_server: RunServer, clock: Callable[[], float]) -> None:
        self._tasks = tasks
        self._run_server = run_server
        self._clock = clock
        self._run: ServerRun | None = None
        self._run_scope = anyio.CancelScope()
        self._server: Connection | None = None
        self._requests: dict[int, frames.Request] = {}
        self._secrets: tuple[str, ...] = ()
        self._tokens: deque[str] = deque(maxlen=MAX_TOKENS)
        self._redactor = Redactor(())
        self._asks: set[int] = set()
        self.finished = anyio.Event()
        self.link_lost: str | None = None

    def attach(self, end: LinkEnd) -> None:
        """Where replies go; before the first event."""
        self._link = end

    def on_event(self, event: events.LinkEvent) -> None:
        """Take what the link says."""
        match event:
            case events.Arrived(frame=frames.Call() | frames.Forward() | frames.List() as asked, body=body):
                self._ask(asked, body)
            case events.Arrived(frame=frames.Cancel(request_id=request_id, reason=reason)):
                self._give_up(request_id, reason, FaultRecord(FaultKind.TOOL_ERROR, "cancelled", "cancelled"))
            case events.Arrived(frame=frames.Condemn(limit=limit, detail=detail)):
                if self._run is not None:
                    self._run.condemn(limit, detail)
            case events.Arrived(frame=frames.AskAnswer() | frames.Tell() | frames.Listen() as told, body=body):
                if self._server is not None:
                    _tell(self._server, told, body)
                if isinstance(told, frames.AskAnswer):
                    self._ask_over(told.ask_id)
            case events.Arrived(frame=frames.Authorize(), body=body):
                self._authorize(body)
            case events.Arrived(frame=frames.Open() as request, body=body):
                self._requests[request.request_id] = request
                self._tasks.start_soon(self._serve, request, body)
            case events.Arrived(frame=frames.Close() as request):
                self._close(request)
            case events.Expired(request_id=request_id):
                self._expire(request_id)
            case events.Silent(silence_s=silence_s):
                self.stop(f"the supervisor has sent nothing for {silence_s:.0f} s")
            case events.Violated(reason=reason):
                self.stop(reason)
            case events.Greeted() | events.Arrived() | events.Replied() | events.Late() | events.Overdue():
                pass  # the link admits no other frame on this side, and we ask nothing
            case _:
                assert_never(event)

    # Requests of a server that is open

    def _ask(self, request: frames.Call | frames.Forward | frames.List, body: bytes) -> None:
        self._requests[request.request_id] = request
        refusal = self._server.ask(request, body) if self._server is not None else NOT_CONNECTED
        if refusal is not None:
            self._fail(request.request_id, refusal)

    def _end(self, request_id: int, outcome: Outcome) -> None:
        if isinstance(outcome, FaultRecord):
            is_list = isinstance(self._requests.get(request_id), frames.List)
            self._fail(request_id, replace(outcome, kind=FaultKind.PROTOCOL) if is_list else outcome)
        elif self._server is not None:
            era, kind = self._server.card.era, outcome.result_type
            answer = frames.Answer(request_id, era, kind, outcome.is_error, outcome.denied)
            self._answer(answer, outcome.body)

    def _give_up(self, request_id: int, reason: str, record: FaultRecord) -> None:
        request = self._requests.get(request_id)
        match request:
            case frames.Call() | frames.Forward() | frames.List():
                if self._server is not None:
                    self._server.cancel(request_id, reason)
            case frames.Open():
                self._run_scope.cancel()
            case _:
                pass
        self._fail(request_id, record)

    def _expire(self, request_id: int) -> None:
        match self._requests.get(request_id):
            case frames.Call(tool=tool, timeout_s=timeout_s):
                record = _timeout("call_timeout", f"{tool} did not answer within {timeout_s:g} s")
            case frames.Forward(method=method, timeout_s=timeout_s):
                record = _timeout("call_timeout", f"{method} was not answered within {timeout_s:g} s")
            case frames.List(kind=kind, timeout_s=timeout_s):
                record = _timeout("list_timeout", f"the server did not list its {noun(kind)} within {timeout_s:g} s")
            case frames.Open(timeout_s=timeout_s):
                dossier = self._run.diagnose() if self._run is not None else None
                record = _timeout(
                    "handshake_timeout", f"the server did not answer the handshake within {timeout_s:g} s", dossier
                )
            case _:
                record = _timeout("closed", "the server did not stop in time")
        self._give_up(request_id, "the deadline has passed", record)

    # The server

    async def _serve(self, request: frames.Open, body: bytes) -> None:
        order = msgspec.json.decode(body, type=frames.OpenOrder)
        self._secrets = order.secrets
        self._redactor = Redactor(self._secrets)
        notifier = Notifier(self._post, self._clock)
        bearer = order.server.bearer if isinstance(order.server, frames.RemoteServer) else ""
        access = Access(bearer, lambda scopes: self._post(frames.Unauthorized(scopes)))

        def on_open(server: Connection) -> None:
            self._server = server
            self._answer(frames.Answer(request.request_id, server.card.era), msgspec.json.encode(server.card))

        def on_started(started: frames.ServerStart) -> None:
            self._link.post(frames.Started(), msgspec.json.encode(started))

        self._run = ServerRun(notifier, on_open, self._lose, self._end, on_started, access=access)
        with self._run_scope:
            try:
                await self._run_server(order, self._run)
            except ServerFault as fault:
                self._lose(fault.record)
            except Exception as error:
                message = f"the worker failed: {error!r}"
                self._lose(FaultRecord(FaultKind.TRANSPORT, message, "worker_lost", cause=RemoteCause.of(error)))
        self._server = None
        self._fail_all(CLOSED)
        for close in list(self._requests.values()):
            self._answer(frames.Answer(close.request_id), msgspec.json.encode(self._run.diagnose() or Dossier()))
        self.finished.set()

    def _lose(self, fault: FaultRecord) -> None:
        """Fail everything that is asked of a server that is gone, before what is left of it is cleared away."""
        was_open, self._server = self._server is not None, None
        self._fail_all(fault)
        if was_open:
            self._link.post(frames.Lost(self._redacted(fault)))

    def _fail_all(self, fault: FaultRecord) -> None:
        """End everything that is asked of the server; only a `Close` still gets its answer."""
        at_call = replace(fault, kind=FaultKind.TOOL_ERROR)
        for request in list(self._requests.values()):
            if not isinstance(request, frames.Close):
                self._fail(request.request_id, fault if isinstance(request, frames.Open) else at_call)

    def _authorize(self, token: bytes) -> None:
        if self._run is None:
            return
        if token:
            self._tokens.append(token.decode("ascii", "replace"))
            self._redactor = Redactor((*self._secrets, *self._tokens))
        self._run.access.give(token)

    def _close(self, request: frames.Close) -> None:
        self._requests[request.request_id] = request
        if self._run is None:
            self._answer(frames.Answer(request.request_id), msgspec.json.encode(Dossier()))
            self.finished.set()
        elif self._server is None:
            self._run_scope.cancel()
        else:
            self._run.stop.set()

    def stop(self, reason: str) -> None:
        """End the server and finish: the supervisor is gone."""
        self.link_lost = reason
        self._requests.clear()
        self._run_scope.cancel()
        if self._run is None:
            self.finished.set()

    # Replies and news

    def _post(self, frame: frames.News, body: bytes = b"") -> bool:
        """Pass news on; while the server waits for an answer no deadline of a request passes."""
        taken = self._link.post(frame, body)
        if taken and isinstance(frame, frames.Asked):
            self._asks.add(frame.ask_id)
            self._link.pause()
        elif isinstance(frame, frames.AskEnded):
            self._ask_over(frame.ask_id)
        return taken

    def _ask_over(self, ask_id: int) -> None:
        if ask_id in self._asks:
            self._asks.remove(ask_id)
            if not self._asks:
                self._link.resume()

    def _answer(self, answer: frames.Answer, body: bytes) -> None:
        if self._requests.pop(answer.request_id, None) is not None:
            self._link.reply(answer, body)

    def _fail(self, request_id: int, record: FaultRecord) -> None:
        if self._requests.pop(request_id, None) is not None:
            self._link.reply(frames.Failed(request_id, self._redacted(record)))

    def _redacted(self, record: FaultRecord) -> FaultRecord:
        """The fault without what the server was given in confidence: it is shown, logged and written down."""
        clean, cause, dossier = self._redactor.clean_text, record.cause, record.dossier
        if cause is not None:
            cause = replace(cause, message=clean(cause.message))
        if dossier is not None:
            dossier = replace(dossier, hints=tuple(map(clean, dossier.hints)))
        reply = record.reply and _redacted_reply(record.reply, clean)
        redacted = replace(record, message=clean(record.message), cause=cause, dossier=dossier, reply=reply)
        return record if redacted == record else redacted


def _tell(server: Connection, told: frames.AskAnswer | frames.Tell | frames.Listen, body: bytes) -> None:
    match told:
        case frames.AskAnswer():
            server.answer(told, body)
        case frames.Tell(method=method):
            server.tell(method, body)
        case frames.Listen():
            server.listen(_uris.decode(body))


def _redacted_reply(reply: ReplyError, clean: Callable[[str], str]) -> ReplyError:
    """A server's own error without it; data that is no JSON any more is left out."""
    data = clean(reply.data.decode()).encode()
    if data != reply.data:
        try:
            msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            data = b""
    return replace(reply, message=clean(reply.message), data=data)


_uris: Final = msgspec.json.Decoder(tuple[str, ...])


def _timeout(code: str, message: str, dossier: Dossier | None = None) -> FaultRecord:
    return FaultRecord(FaultKind.TIMEOUT, message, code, dossier=dossier)
