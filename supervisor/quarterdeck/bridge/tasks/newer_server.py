"""A task of a server of 2026-07-28, as a client of 2025-11-25 asks for it.

Its result is a request of its own, which waits: the server is looked at until the task has ended, and what it asks
meanwhile is asked of whoever waits.  A task that its client has cancelled stays so, whatever becomes of it.
"""

from collections.abc import Callable
from functools import partial

import msgspec

from quarterdeck.fleet.workers.requests import refuse
from quarterdeck_protocol.configs import Revision
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.mcp.jsonrpc import INVALID_PARAMS
from quarterdeck_protocol.mcp.task_eras import (
    ENDED,
    Status,
    TaskState,
    cancelled,
    end_of,
    older_state,
    older_status,
    read_state,
    related,
)
from quarterdeck_protocol.offers import RawRequest, ServerNote
from quarterdeck_protocol.questions import Answerer, ForwardingAnswerer, Question, QuestionEnd
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall, WireResult

from .chain import AskedKeys, Chain, Forward, Pace, Watch
from .taking import Taking


class NewerTask:
    """See the module.

    Attributes:
        own: what the server calls it.
        public: what its client calls it.
    """

    def __init__(
        self, server: str, own: str, public: str, state: TaskState, *, pace: Pace, tell: Callable[[ServerNote], None]
    ) -> None:
        """It was begun, and in this state.

        Args:
            server: who works on it.
            own: what the server calls it.
            public: what its client calls it.
            state: the first.
            pace: of all tasks that are looked at.
            tell: tells its client of a state that is another one.
        """
        self.own = own
        self.public = public
        self._server = server
        self._pace = pace
        self._tell = tell
        self._asked = AskedKeys()
        self._status = older_status(state)

    def begin(self, request: RawRequest, forward: Forward, limit_s: float, deliver: Deliver) -> PendingCall:
        """Start a request about it, which may take so long."""
        look = self._looking(request)
        if request.method == "tasks/result" and self._status is Status.CANCELLED:
            return refuse(deliver, cancelled(self._server))
        if request.method == "tasks/result":
            return self._wait(request, look, forward, limit_s, deliver)
        chain = Chain(forward, deliver)
        then = self._to_cancel if request.method == "tasks/cancel" else self._looked
        return chain.ask(look, partial(then, chain, look))

    def noted(self, note: ServerNote) -> ServerNote:
        """What its server says of it unasked, in its client's words.

        Raises:
            BodyError: it cannot be read.
        """
        state = read_state(note.params)
        self._status = self._status_in(state)
        params = older_state(state, self.public, self._status)
        return msgspec.structs.replace(note, method="notifications/tasks/status", params=params)

    def close(self) -> None:
        """Nobody asks for it any more; nothing is kept open for it but what its client waits for."""

    def _looking(self, request: RawRequest) -> RawRequest:
        params = msgspec.json.encode({"taskId": self.own})
        answerer = Taking.of(request.answerer)
        return RawRequest("tasks/get", params, timeout_s=request.timeout_s, client=request.client, answerer=answerer)

    def _status_in(self, state: TaskState) -> Status:
        return self._status if self._status in ENDED else older_status(state)

    def _saw(self, request: RawRequest, state: TaskState) -> bytes:
        """The state for its client, which is told where it is another one."""
        status = self._status_in(state)
        said = older_state(state, self.public, status)
        if status is not self._status:
            self._status = status
            clients = frozenset((request.client.key,))
            self._tell(ServerNote(self._server, "notifications/tasks/status", said, clients))
        return said

    def _looked(self, chain: Chain, look: RawRequest, end: CallEnd) -> None:
        if isinstance(end, WireResult):
            end = _older(self._saw(look, read_state(end.body)))
        chain.end(end)

    def _to_cancel(self, chain: Chain, look: RawRequest, end: CallEnd) -> None:
        if isinstance(end, WireResult):
            self._saw(look, read_state(end.body))
            if self._status not in ENDED:
                cancel = msgspec.structs.replace(look, method="tasks/cancel")
                chain.ask(cancel, partial(self._cancelled, chain, look))
                return
            end = _replied(self._server, ReplyError(INVALID_PARAMS, f"the task is {self._status} already"))
        chain.end(end)

    def _cancelled(self, chain: Chain, look: RawRequest, end: CallEnd) -> None:
        if isinstance(end, ProtocolFault):
            chain.end(end)
        else:
            chain.ask(look, partial(self._looked_after_cancel, chain, look))

    def _looked_after_cancel(self, chain: Chain, look: RawRequest, end: CallEnd) -> None:
        """The newer era takes its time to cancel; an older client is told that it is cancelled, and stays so."""
        if isinstance(end, WireResult):
            state = read_state(end.body)
            if state.status not in ENDED:
                state = msgspec.structs.replace(state, status=Status.CANCELLED)
            end = _older(self._saw(look, state))
        chain.end(end)

    def _wait(
        self, request: RawRequest, look: RawRequest, forward: Forward, limit_s: float, deliver: Deliver
    ) -> PendingCall:
        answerer = None if request.answerer is None else _Naming(request.answerer, self.public)
        watch = Watch(
            look,
            forward,
            deliver,
            server=self._server,
            pace=self._pace,
            asked=self._asked,
            answerer=answerer,
            limit_s=limit_s,
            on_ended=lambda state: watch.end(self._result(look, state)),
            on_state=lambda state: (self._saw(look, state), None)[1],
            on_late=_nothing,
        )
        return watch

    def _result(self, look: RawRequest, state: TaskState) -> CallEnd:
        """What came of it.

        Raises:
            BodyError: its server does not say.
        """
        self._saw(look, state)
        if self._status is Status.CANCELLED:
            return cancelled(self._server)
        end = end_of(state, self._server)
        return end if isinstance(end, ProtocolFault) else newer_result(related(end, self.public))


def newer_result(body: bytes) -> WireResult:
    """The result of a tool of a server of 2026-07-28."""
    return WireResult(body, Revision.R2026_07_28)


def _older(body: bytes) -> WireResult:
    return WireResult(body, Revision.R2025_11_25)


def _replied(server: str, reply: ReplyError) -> ProtocolFault:
    fault = ProtocolFault(
        FaultKind.TOOL_ERROR, reply.message, code="reply_error", delivery=Delivery.ANSWERED, reply=reply
    )
    fault.server = server
    return fault


def _nothing() -> None:
    """The task goes on, and may be asked for again."""


class _Naming(ForwardingAnswerer):
    """Puts the questions of a task with its client's id of it, as 2025-11-25 does."""

    def __init__(self, answerer: Answerer, public: str) -> None:
        super().__init__(answerer)
        self._public = public

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        params = related(question.params, self._public)
        return self._answerer.ask(msgspec.structs.replace(question, params=params, key=""), answer)
