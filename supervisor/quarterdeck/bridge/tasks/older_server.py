"""A task of a server of 2025-11-25, as a client of 2026-07-28 asks for it.

Such a client looks, and never waits: what came of the task is in its state, and so is what its server asks.  That asks
by requests of its own while somebody waits for the result; so we wait for it, once it says that it needs an answer.
"""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec
from msgspec import Raw

from quarterdeck.common.in_flight import InFlight, who_of
from quarterdeck.fleet.workers.requests import deliver_soon
from quarterdeck_protocol.configs import Revision
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, BodyError, check_object
from quarterdeck_protocol.mcp.task_eras import ENDED, Status, TaskState, newer_end, newer_state, read_state, unrelated
from quarterdeck_protocol.offers import RawRequest, ServerNote
from quarterdeck_protocol.questions import MAX_ANSWER_BYTES, Answerer, Question, QuestionEnd, end_by
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall, WireResult

from .chain import Chain, Forward

QUESTION_S: Final = 5.0
"""How long a server that needs an answer may take to ask for it; till then its client is told that it works."""

RESULT_S: Final = 30.0
"""How long a server may take to give the result of a task that it says has ended."""

MAX_WAITS_EACH: Final = 16
"""Tasks of one client whose servers wait for its answers."""

MAX_WAITS: Final = 256
"""Tasks of all clients, before shares count."""


class OlderTask:
    """See the module.

    Attributes:
        own: what the server calls it.
        public: what its client calls it.
    """

    def __init__(self, server: str, own: str, public: str, waits: InFlight) -> None:
        """It was begun."""
        self.own = own
        self.public = public
        self._server = server
        self._waits = waits
        self._questions = _Questions()
        self._waiting: PendingCall | None = None
        self._waiter = ""
        self._end: Status | None = None

    def begin(self, request: RawRequest, forward: Forward, limit_s: float, deliver: Deliver) -> PendingCall:  # noqa: ARG002
        """Start a request about it."""
        if request.method == "tasks/update":
            return self._update(request, deliver)
        chain = Chain(forward, deliver)
        if request.method == "tasks/cancel":
            return chain.ask(self._about("tasks/cancel", request), partial(self._cancelled, chain, request))
        return chain.ask(self._about("tasks/get", request), partial(self._looked, chain, request, forward))

    def noted(self, note: ServerNote) -> ServerNote | None:
        """What its server says of it unasked: nothing that a client of 2026-07-28 is told so."""

    def close(self) -> None:
        """Nobody asks for it any more."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._waits.end(self._waiter)
            waiting.cancel("its client does not ask for the task any more")
        self._questions.drop()

    def _about(self, method: str, request: RawRequest, answerer: Answerer | None = None) -> RawRequest:
        params = msgspec.json.encode({"taskId": self.own})
        return RawRequest(method, params, timeout_s=request.timeout_s, client=request.client, answerer=answerer)

    # Its state

    def _looked(self, chain: Chain, request: RawRequest, forward: Forward, end: CallEnd) -> None:
        if isinstance(end, ProtocolFault):
            chain.end(end)
            return
        state = read_state(end.body)
        if self._end in (Status.COMPLETED, Status.FAILED) and state.status not in ENDED:
            raise BodyError(f"it is {state.status}, and had ended")
        status = self._end or state.status
        if status in ENDED:
            self._end = status
            if status is Status.CANCELLED:
                chain.end(_newer(newer_state(state, self.public, status)))
            else:
                asked = msgspec.structs.replace(self._about("tasks/result", request), timeout_s=RESULT_S)
                chain.ask(asked, partial(self._resulted, chain, state))
        elif status is Status.INPUT_REQUIRED or self._questions.open:
            self._ask_client(chain, request, forward, state)
        else:
            chain.end(_newer(newer_state(state, self.public)))

    def _resulted(self, chain: Chain, state: TaskState, end: CallEnd) -> None:
        if isinstance(end, ProtocolFault) and end.reply is None:
            chain.end(end)
            return
        reply = end.reply if isinstance(end, ProtocolFault) else None
        status, more = newer_end(end.body if isinstance(end, WireResult) else reply)  # type: ignore[arg-type]
        chain.end(_newer(newer_state(state, self.public, status, **more)))

    # What its server asks

    def _ask_client(self, chain: Chain, request: RawRequest, forward: Forward, state: TaskState) -> None:
        """End with what the server wants to know, once it has asked."""
        if self._waiting is None and not self._wait(request, forward):
            why = f"{MAX_WAITS_EACH} tasks of this client wait for its answers already: answer those first"
            chain.end(ProtocolFault(FaultKind.TOOL_ERROR, why, code="busy", delivery=Delivery.ANSWERED))
            return

        def tell() -> None:
            asked = self._questions.open
            status = Status.INPUT_REQUIRED if asked else Status.WORKING
            chain.end(_newer(newer_state(state, self.public, status, **({"inputRequests": asked} if asked else {}))))

        if self._questions.open:
            tell()
        else:
            self._questions.when_asked(tell)

    def _wait(self, request: RawRequest, forward: Forward) -> bool:
        """Wait for its result, so that its server can ask; whether that may be."""
        if self._waits.begin(who_of(request.client.key)):
            return False
        self._waiter = who_of(request.client.key)
        self._questions.capabilities = b"{}" if request.answerer is None else request.answerer.capabilities
        asked = msgspec.structs.replace(self._about("tasks/result", request, self._questions), timeout_s=None)
        self._waiting = forward(asked, self._waited)
        return True

    def _waited(self, _: CallEnd) -> None:
        """It has ended, or its server waits no longer: whoever looks next sees which."""
        if self._waiting is not None:
            self._waiting = None
            self._waits.end(self._waiter)
            self._questions.drop()

    def _update(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        try:
            answers = _answers_in(request.params)
        except BodyError as error:
            why = f"its inputResponses cannot be read: {error}"
            return deliver_soon(deliver, ProtocolFault.not_sent(FaultKind.TOOL_ERROR, why, "bad_arguments"))
        self._questions.answer(answers)
        return deliver_soon(deliver, _newer(b"{}"))

    # Its end

    def _cancelled(self, chain: Chain, request: RawRequest, end: CallEnd) -> None:
        """The newer era takes every wish to cancel, of a task that has ended too, or of one that cannot be."""
        reply = end.reply if isinstance(end, ProtocolFault) else None
        if reply is not None and reply.code == INVALID_PARAMS:
            chain.ask(self._about("tasks/get", request), partial(self._cancelled_late, chain, end))
        elif isinstance(end, ProtocolFault) and (reply is None or reply.code != METHOD_NOT_FOUND):
            chain.end(end)
        else:
            chain.end(_newer(b"{}"))

    def _cancelled_late(self, chain: Chain, refused: CallEnd, end: CallEnd) -> None:
        has_ended = isinstance(end, WireResult) and read_state(end.body).status in ENDED
        chain.end(_newer(b"{}") if has_ended else refused)


def _newer(body: bytes) -> WireResult:
    return WireResult(body, Revision.R2026_07_28)


def _answers_in(params: bytes) -> Mapping[str, Raw]:
    members = check_object(params, max_bytes=MAX_ANSWER_BYTES)
    return check_object(bytes(members.get("inputResponses", b"{}")), max_bytes=MAX_ANSWER_BYTES)


class _Questions(Answerer):
    """What one task's server asks, until its client brings the answers; see `Answerer`.

    Attributes:
        capabilities: what the client can be asked.
    """

    capabilities = b"{}"
    bridges = True

    def __init__(self) -> None:
        self._names = itertools.count(1)
        self._asked: dict[str, tuple[Question, Callable[[QuestionEnd], None]]] = {}
        self._waiting: dict[Callable[[], None], asyncio.TimerHandle] = {}

    @property
    def open(self) -> dict[str, object]:
        """Those without an answer, as `inputRequests`."""
        return {
            name: {"method": question.method, "params": Raw(question.params or b"{}")}
            for name, (question, _) in self._asked.items()
        }

    def when_asked(self, tell: Callable[[], None]) -> None:
        """Call `tell` when something is asked, or nothing was in time."""
        self._waiting[tell] = asyncio.get_running_loop().call_later(QUESTION_S, self._tell, tell)

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        """See `Answerer`."""
        try:
            params = unrelated(question.params)
        except BodyError:
            refused = QuestionEnd(code=INVALID_REQUEST, message="the question cannot be read")
            return asyncio.get_running_loop().call_soon(answer, refused).cancel
        name = str(next(self._names))
        self._asked[name] = msgspec.structs.replace(question, params=params), answer
        self._stir()

        def withdraw() -> None:
            self._asked.pop(name, None)

        return withdraw

    def answer(self, answers: Mapping[str, Raw]) -> None:
        """These have come; those to nothing that is asked are nothing."""
        for name, said in answers.items():
            if (asked := self._asked.pop(name, None)) is not None:
                asked[1](end_by(bytes(said)))

    def drop(self) -> None:
        """Nobody waits for answers any more."""
        self._asked.clear()
        self._stir()

    def _stir(self) -> None:
        # Not at once: what is asked in one turn of the loop is told together.
        for tell in self._waiting:
            asyncio.get_running_loop().call_soon(self._tell, tell)

    def _tell(self, tell: Callable[[], None]) -> None:
        if (timer := self._waiting.pop(tell, None)) is not None:
            timer.cancel()
            tell()
