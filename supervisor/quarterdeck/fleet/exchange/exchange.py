"""Pass calls, requests, notifications and questions between clients and one greeted server with its one worker."""

import logging
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Final

import msgspec

from quarterdeck.fleet.core.completion import COMPLETE, bounded_completion
from quarterdeck.fleet.core.linked_uris import LINK_MARK
from quarterdeck.fleet.core.rounds import INPUT_REQUIRED, next_params
from quarterdeck.fleet.core.subscriptions import Subscriptions
from quarterdeck.fleet.core.wakefulness import Use
from quarterdeck.fleet.workers.handle import Asker, WorkerHandle
from quarterdeck.fleet.workers.requests import as_request, not_made, refuse, refused
from quarterdeck_protocol.configs import ServerConfig, ToolFilter
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.identity import CLIENT_NAME, CLIENT_VERSION
from quarterdeck_protocol.link.frames import (
    Answer,
    Asked,
    Call,
    Forward,
    Listening,
    Log,
    Note,
    Reply,
    ServerCard,
    Tell,
    Updated,
)
from quarterdeck_protocol.mcp.client import is_modern
from quarterdeck_protocol.mcp.client.asks import MAX_ASK_BYTES
from quarterdeck_protocol.mcp.client.eras import discovery
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_object, check_result
from quarterdeck_protocol.mcp.tasks import CREATED, NOTES, takes_tasks
from quarterdeck_protocol.offers import LogLine, RawRequest, ResourceUpdated
from quarterdeck_protocol.tools import CallEnd, Client, Deliver, PendingCall, RawCall, WireResult

from .news import TakeNews, news_of, shown
from .questions import DrivenRequest, OpenQuestions
from .standing import SUBSCRIBE, Standing
from .tasks import ServerTasks

SERIOUS: Final = frozenset({"error", "critical", "alert", "emergency"})
"""Log levels of MCP that our own log shows by default."""

SHORTEST_S: Final = 0.001
"""The deadline of a call whose caller has no time left: it is sent and ends at once, for the link takes no past one."""

OWN_METHODS: Final = frozenset(
    {"initialize", "logging/setLevel", "resources/unsubscribe", "server/discover", "subscriptions/listen"}
)
"""Requests that are of the connection, which many clients share: none is passed on for one of them."""

_READY: Final = EndpointPhase.READY

_log = logging.getLogger("quarterdeck.fleet")


class EndpointCall(msgspec.Struct, frozen=True):
    """A client's request at a worker; see `PendingCall`."""

    handle: WorkerHandle
    request_id: int
    exchange: "Exchange"
    asker: Asker
    questions: OpenQuestions | None
    deliver: Deliver

    def cancel(self, reason: str = "") -> Delivery:
        """Give up: tell the server, and deliver nothing."""
        self.handle.cancel(self.request_id, reason)
        if self.questions is not None and self.questions.any_asked:
            self.questions.request_ended(self.handle, self.request_id)
        return Delivery.UNKNOWN

    def end(self, reply: Reply, body: bytes) -> None:
        """Deliver the server's result, if it may be passed on, or a fault."""
        if self.questions is not None and self.questions.any_asked:
            self.questions.request_ended(self.handle, self.request_id)
        if not isinstance(reply, Answer):
            self._fail(ProtocolFault.from_record(reply.fault))
            return
        try:
            members = check_result(body, max_bytes=self.exchange.max_result_bytes)
            if "resultType" in members:
                raise BodyError("the era's envelope was left on it")
        except BodyError as error:
            # A worker checks what it forwards; one that does not is not ours any more.
            self.handle.violated(f"a result that may not be passed on: {error}")
            self._fail(ProtocolFault(FaultKind.TOOL_ERROR, f"the result is broken: {error}", code="protocol_violation"))
            return
        if reply.result_type != "complete" and (fault := self._unexpected(reply)) is not None:
            self._fail(fault)
            return
        if body.find(LINK_MARK) >= 0:  # `in` takes longer: it first tries the mark as a number
            self.handle.linked.note(body)
        is_error = members.get("isError") == _TRUE
        self.deliver(WireResult(body, reply.era, is_error, reply.result_type, members, reply.denied))

    def _fail(self, fault: ProtocolFault) -> None:
        fault.server = self.exchange.config.id
        self.deliver(fault)

    def _unexpected(self, reply: Answer) -> ProtocolFault | None:
        """Return why a result of this type is not passed on, or None."""
        asker = self.asker
        if reply.result_type == INPUT_REQUIRED and asker.answerer is None:
            why, code = f"the server answered {reply.result_type!r} instead of a result", INPUT_REQUIRED
        elif reply.result_type == CREATED and not _takes_task(reply.era, asker):
            why, code = f"{self.exchange.config.id} made a task of a request whose client takes none", "bad_result"
        else:
            return None
        return ProtocolFault(FaultKind.TOOL_ERROR, why, code=code, delivery=Delivery.ANSWERED)


class Exchange:
    """The part of an endpoint that talks to the worker; `tell_news` takes the server's notifications."""

    def __init__(self, config: ServerConfig) -> None:
        self.config: Final = config
        # Read for each call, and a model of pydantic's is slow to read.
        self.max_result_bytes: Final = config.max_result_bytes
        self._limit_s: Final = config.call_timeout_s
        self.phase = EndpointPhase.IDLE
        self.fault: ProtocolFault | None = None
        self._peer: WorkerHandle | None = None
        self._is_filtered: Final = config.tools != ToolFilter()
        self._is_modern = False
        self._questions = OpenQuestions(config.id)
        self._standing = Standing(config)
        self._owners = ServerTasks(config)
        self.tell_news: TakeNews = lambda _: None
        self._mark = 0
        self._used_at = monotonic()

    def use(self) -> Use:
        """Return what of its clients would end with it, and how long it has had no request, as of the last look."""
        now = monotonic()
        if self._peer is not None and self.phase is EndpointPhase.READY:
            # The ids of requests grow: that another one was given since the last look costs no request anything.
            mark = self._peer.next_id()
            if mark != self._mark + 1:
                self._used_at = now
            self._mark = mark
        return Use(
            questions=len(self._questions),
            subscriptions=len(self.wishes.uris),
            tasks=len(self._owners),
            unused_s=now - self._used_at,
        )

    @property
    def wishes(self) -> Subscriptions:
        """The clients' subscriptions and levels; kept over the server's restarts."""
        return self._standing.wishes

    def follow(self, earlier: "Exchange") -> None:
        """Be the next generation's exchange: keep what clients want."""
        self._standing.wishes = earlier.wishes
        self._owners.follow(earlier._owners)  # noqa: SLF001 - of its own kind

    def hear(self, tell_news: TakeNews, on_question: Callable[[Client], None]) -> None:
        """Report notifications, and a legacy server's questions with a client that has a request in progress there."""
        self.tell_news = tell_news
        self._questions.on_question = on_question

    def greeted(self, handle: WorkerHandle, card: ServerCard) -> None:
        """The server is there."""
        self._peer = handle
        self._is_modern = is_modern(card.era)
        self._standing.greeted(handle, card)

    async def renew(self) -> None:
        """Ask the server again for what clients want."""
        await self._standing.renew(self.tell_news)

    def stop(self) -> None:
        """Ask nothing more of the server, nor of any client for it."""
        self._standing.stop()
        self._questions.withdraw_all()
        self._owners.stop()

    # What clients want

    def begin(self, call: RawCall, deliver: Deliver) -> PendingCall | None:
        """Start a call by the server's own name for the tool; None unless the endpoint is ready and offers it."""
        if self.phase is not _READY:
            return None
        if self._is_filtered and not self.config.tools.admits(call.tool):
            return None
        if not self._is_modern:
            return self._send(call, deliver)
        return self._begin_rounds(call, self._owners.watched(call, deliver, is_modern=True))

    def forward(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """See `LiveEndpoint`."""
        if self.phase is not _READY:
            return refuse(deliver, self.not_connected())
        if request.method == SUBSCRIBE:
            return self._standing.subscribe(request, deliver, self._send)
        if (problem := self._problem(request)) is not None:
            return refuse(deliver, problem)
        if request.method == "tools/call":
            deliver = self._owners.watched(request, deliver, is_modern=self._is_modern)
        elif request.method.startswith("tasks/"):
            taken = self._owners.begin(request, deliver, is_modern=self._is_modern)
            if isinstance(taken, ProtocolFault):
                return refuse(deliver, taken)
            deliver = taken
        elif request.method == COMPLETE:
            deliver = partial(_deliver_completion, deliver)
        if not self._is_modern:
            return self._send(_without_answers(request), deliver)
        return self._begin_rounds(request, deliver)

    def not_connected(self) -> ProtocolFault:
        """Return the fault of a request that is not made because the server is not ready."""
        why = f"{self.config.id} is {self.phase}" + (f": {self.fault}" if self.fault else ", not ready")
        fault = ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, why, "not_connected", self.fault)
        fault.server = self.config.id
        return fault

    def ask_era(self, deliver: Deliver, timeout_s: float) -> PendingCall:
        """Ping a legacy server in the newest revision's form, which a server of both eras refuses. Not
        `server/discover`: for that some older SDKs write a hundred lines into the server's log.
        """
        request = RawRequest("ping", b"", discovery(CLIENT_NAME, CLIENT_VERSION), timeout_s)
        return self._send(request, deliver)

    def unsubscribe(self, client: Client, uri: str) -> None:
        """See `LiveEndpoint`; at any time."""
        self._standing.unsubscribe(client, uri)

    def set_level(self, client: Client, level: str) -> None:
        """See `LiveEndpoint`; at any time."""
        self._standing.set_level(client, level)

    def leave(self, client: Client) -> None:
        """See `LiveEndpoint`; at any time."""
        self._standing.leave(client)
        self._owners.leave(client)

    def tell(self, method: str, params: bytes = b"{}") -> None:
        """See `LiveEndpoint`."""
        if self._peer is not None and self.phase is _READY and not self._is_modern:
            self._peer.post(Tell(method), params)

    # What the server says

    def on_news(self, news: Log | Note | Updated | Listening, body: bytes) -> None:
        """See `WorkerListener`."""
        if self._peer is None:
            return
        if isinstance(news, Listening):
            self._standing.listening(news.count)
            return
        try:
            told = news_of(self.config.id, news, body, self._whose(self._peer, news, body))
        except BodyError as error:
            self._peer.violated(f"news that may not be passed on: {error}")
            return
        if isinstance(told, LogLine):
            level = logging.WARNING if told.level in SERIOUS else logging.DEBUG
            if _log.isEnabledFor(level):
                _log.log(level, "%s says: %s", self.config.id, shown(told))
        is_for_some = isinstance(told, ResourceUpdated) or (isinstance(news, Note) and news.method in NOTES)
        if told.clients or not is_for_some:
            self.tell_news(told)

    def on_asked(self, asked: Asked, params: bytes) -> None:
        """See `WorkerListener`."""
        if self._peer is None:
            return
        try:
            check_object(params, max_bytes=MAX_ASK_BYTES)
        except BodyError as error:
            self._peer.violated(f"a question that may not be passed on: {error}")
            return
        self._questions.ask(self._peer, asked.ask_id, asked.method, params)

    def on_ask_ended(self, ask_id: int) -> None:
        """See `WorkerListener`."""
        self._questions.end(ask_id)

    # Helpers

    def _begin_rounds(self, asker: Asker, deliver: Deliver) -> PendingCall:
        """Start a request at a server of 2026-07-28; for a client that does not take its questions, put them to it."""
        if asker.answerer is None or not asker.answerer.bridges:
            return self._send(asker, deliver)
        request = as_request(asker) if isinstance(asker, RawCall) else asker
        driven = DrivenRequest(self.config, request, self._send, deliver)
        return driven.start(partial(self._send, asker))

    def _send(self, asker: Asker, deliver: Deliver) -> PendingCall:
        """Ask the worker to run a tool or to pass any other request on.

        A legacy server asks its `_questions` meanwhile; one of 2026-07-28 is told what this caller can be asked.
        """
        handle = self._peer
        assert handle is not None
        questions = None if self._is_modern else self._questions
        request_id, limit_s, wish_s = handle.next_id(), self._limit_s, asker.timeout_s
        if wish_s is not None and wish_s < limit_s:
            limit_s = max(wish_s, SHORTEST_S)
        capabilities, log_level = b"", ""
        if questions is None:
            capabilities = asker.answerer.capabilities if asker.answerer is not None else b""
            log_level = asker.log_level
        kind, name, body = (
            (Call, asker.tool, asker.arguments) if isinstance(asker, RawCall) else (Forward, asker.method, asker.params)
        )
        frame = kind(request_id, limit_s, name, asker.on_progress is not None, asker.meta, capabilities, log_level)
        call = EndpointCall(handle, request_id, self, asker, questions, deliver)
        refusal = handle.ask(frame, body, call.end, asker)
        if refusal is None:
            return call
        fault = refused(refusal)
        fault.server = self.config.id
        return refuse(deliver, fault)

    def _whose(self, handle: WorkerHandle, news: Log | Note | Updated, body: bytes) -> frozenset[str]:
        if isinstance(news, Note) and news.method in NOTES:
            return self._owners.owner_of_note(body)
        if isinstance(news, Updated):
            return self.wishes.holders_of(news.uri)
        return frozenset(asker.client.address for _, asker in handle.under_way())

    def _problem(self, request: RawRequest) -> ProtocolFault | None:
        server = self.config.id
        if request.method in OWN_METHODS:
            why, code = f"{request.method} is not passed on to {server}, which others use, too", "bad_arguments"
        elif request.method == "tools/call" and not self.config.tools.admits(tool := _tool_of(request.params)):
            why, code = f"{tool[:200]} is not offered: the configuration's tool filter hides it", "unknown_tool"
        else:
            return None
        return not_made(server, why, code)


def _without_answers(request: RawRequest) -> RawRequest:
    """Return the request without answers, which a legacy server, with its own requests for questions, does not get."""
    if b'"inputResponses"' not in request.params or request.method.startswith("tasks/"):
        return request
    return msgspec.structs.replace(request, params=next_params(request.params, {}, b""))


class _Named(msgspec.Struct):
    name: str = ""


_named: Final = msgspec.json.Decoder(_Named)


def _tool_of(params: bytes) -> str:
    try:
        return _named.decode(params).name
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


def _takes_task(era: str, asker: Asker) -> bool:
    is_call = isinstance(asker, RawCall) or (isinstance(asker, RawRequest) and asker.method == "tools/call")
    return is_modern(era) and is_call and asker.answerer is not None and takes_tasks(asker.answerer.capabilities)


def _deliver_completion(deliver: Deliver, end: CallEnd) -> None:
    """Deliver the end of a completion, with no more values than clients may be given."""
    if isinstance(end, WireResult) and (bounded := bounded_completion(end.body)) is not end.body:
        end = WireResult(bounded, end.era, end.is_error, end.result_type)
    deliver(end)


_TRUE: Final = msgspec.Raw(b"true")
