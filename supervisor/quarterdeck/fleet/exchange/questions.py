"""Put a server's questions to the client whose request is in progress, and bring the answers back.

`core.asks` decides whose a legacy server's question is, `core.rounds` reads the questions of a server of 2026-07-28.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import msgspec

from quarterdeck.fleet.core.asks import Asks, Refused, UnderWay
from quarterdeck.fleet.core.rounds import (
    INPUT_REQUIRED,
    MAX_ROUNDS,
    PAUSE_S,
    Round,
    RoundError,
    next_params,
    read_round,
)
from quarterdeck.fleet.workers.handle import Asker, WorkerHandle
from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault, ReplyError
from quarterdeck_protocol.link.frames import AskAnswer
from quarterdeck_protocol.mcp.client.asks import ASK_S
from quarterdeck_protocol.mcp.jsonrpc import METHOD_NOT_FOUND
from quarterdeck_protocol.mcp.tasks import task_named, task_of_question
from quarterdeck_protocol.offers import RawRequest
from quarterdeck_protocol.questions import Answerer, Question, QuestionEnd, askable
from quarterdeck_protocol.tools import CallEnd, Client, Deliver, PendingCall, WireResult

CONFLICT: Final = -32603
"""The error of a question that cannot be routed: the server may try again."""

_NEVER: Final = frozenset({Refused.NOBODY, Refused.UNABLE})
"""Refusals of questions that would also be refused when asked again."""

_NONE: Final = frozenset[str]()

_log = logging.getLogger("quarterdeck.fleet")

Withdraw = Callable[[], None]


def can_be_asked(asker: Asker) -> frozenset[str]:
    """Return what the maker of this request can be asked."""
    if asker.answerer is None:
        return _NONE
    try:
        return askable(asker.answerer.capabilities)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _NONE


class OpenQuestions:
    """One legacy server's open questions; `any_asked` tells whether a client was asked one, and `on_question` is called
    with the client of the oldest request that a question may belong to.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self.on_question: Callable[[Client], None] = lambda _: None
        self._asks = Asks()
        self._questions: dict[int, Question] = {}
        self._withdraw: dict[int, Withdraw] = {}
        self.any_asked = False

    def __len__(self) -> int:
        return len(self._questions)

    def ask(self, handle: WorkerHandle, ask_id: int, method: str, params: bytes) -> None:
        """Put a question to its client; the server is told of its end."""
        askers = _candidates(dict(handle.under_way()), params)
        whose = self._asks.begin(ask_id, method, _under_way(askers), len(params))
        if not isinstance(whose, Refused) or whose is Refused.SEVERAL:
            self.on_question(next(iter(askers.values())).client)
        if isinstance(whose, Refused):
            code = METHOD_NOT_FOUND if whose in _NEVER else CONFLICT
            handle.post(AskAnswer(ask_id, code, whose.value))
            return
        self.any_asked = True
        self._questions[ask_id] = Question(self._server, method, params)
        self._put(handle, ask_id, askers[whose])

    def _put(self, handle: WorkerHandle, ask_id: int, asker: Asker) -> None:
        assert asker.answerer is not None
        question = self._questions[ask_id]
        self._withdraw[ask_id] = _put(asker.answerer, question, partial(self._answered, handle, ask_id))

    def end(self, ask_id: int) -> None:
        """The server needs no answer any more."""
        if self._asks.end(ask_id):
            self._withdraw.pop(ask_id)()
            del self._questions[ask_id]

    def request_ended(self, handle: WorkerHandle, request_id: int) -> None:
        """End the questions of a request that has ended, unless they may belong to another one."""
        if handle.lost is not None:
            return  # nothing is under way there any more, and all questions are withdrawn together
        ended = self._asks.forget(request_id)
        for ask_id in ended.ended:
            self._withdraw.pop(ask_id)()
            del self._questions[ask_id]
            handle.post(AskAnswer(ask_id, CONFLICT, "the request that this was asked for has ended"))
        if ended.moved:
            askers = dict(handle.under_way())
            for ask_id, whose in ended.moved.items():
                self._withdraw.pop(ask_id)()
                self._put(handle, ask_id, askers[whose])

    def withdraw_all(self) -> None:
        """The server is gone."""
        withdrawn, self._withdraw = self._withdraw, {}
        self._asks = Asks()
        self._questions = {}
        for each in withdrawn.values():
            each()

    def _answered(self, handle: WorkerHandle, ask_id: int, end: QuestionEnd) -> None:
        if self._asks.end(ask_id):
            del self._withdraw[ask_id], self._questions[ask_id]
            if not handle.post(AskAnswer(ask_id, end.code, end.message), end.data if end.code else end.result):
                # No frame can carry it: the number and the text of an error are whatever a client wrote.
                handle.post(AskAnswer(ask_id, CONFLICT, "the client's answer cannot be passed on"))


def _candidates(askers: dict[int, Asker], params: bytes) -> dict[int, Asker]:
    """Return the requests that a question may belong to: those of the task that it names, else calls before others."""
    of_tasks = {key: asker for key, asker in askers.items() if _task_of(asker)}
    if task := task_of_question(params):
        return {key: asker for key, asker in of_tasks.items() if _task_of(asker) == task}
    others = {key: asker for key, asker in askers.items() if key not in of_tasks}
    return others or of_tasks


def _task_of(asker: Asker) -> str:
    """Return the task that a request is about, or an empty string."""
    if isinstance(asker, RawRequest) and asker.method.startswith("tasks/"):
        return task_named(asker.params)  # which was read before it was made
    return ""


def _under_way(askers: dict[int, Asker]) -> Iterator[UnderWay]:
    for key, asker in askers.items():
        yield UnderWay(key, asker.client.key, can_be_asked(asker), asker.client.part)


def _put(answerer: Answerer, question: Question, answer: Callable[[QuestionEnd], None]) -> Withdraw:
    """Put a question; if that fails, answer so in the loop's next turn."""
    try:
        return answerer.ask(question, answer)
    except Exception:
        _log.exception("a question of %s could not be put", question.server)
        end = QuestionEnd(code=CONFLICT, message="the client cannot be asked")
        return asyncio.get_running_loop().call_soon(answer, end).cancel


BeginRound = Callable[[RawRequest, Deliver], PendingCall]
"""Makes a request of the server."""


class DrivenRequest:
    """A request whose server asks back, question by question, until it has a result; see `PendingCall`. Each round is
    the same request with the answers; rounds, questions and time are bounded.
    """

    def __init__(self, config: ServerConfig, request: RawRequest, begin: BeginRound, deliver: Deliver) -> None:
        self._server = config.id
        self._request = request
        self._begin = begin
        self._deliver = deliver
        self._pending: PendingCall | None = None
        self._withdraw: dict[str, Withdraw] = {}
        self._answers: dict[str, bytes] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rounds = 0

    def start(self, begin: Callable[[Deliver], PendingCall]) -> "DrivenRequest":
        """Make the request for the first time."""
        self._pending = begin(self._take)
        return self

    def cancel(self, reason: str = "") -> Delivery:
        """See `PendingCall`."""
        self._stop_asking()
        delivery = self._pending.cancel(reason) if self._pending is not None else Delivery.UNKNOWN
        return Delivery.UNKNOWN if self._rounds else delivery

    def _take(self, end: CallEnd) -> None:
        self._pending = None
        if not isinstance(end, WireResult) or end.result_type != INPUT_REQUIRED:
            self._deliver(end)
            return
        self._rounds += 1
        try:
            if self._rounds > MAX_ROUNDS:
                raise RoundError(f"it has asked {MAX_ROUNDS} times already")
            asked = read_round(self._server, end.members or {})
        except RoundError as error:
            self._fail(f"{self._server} asks back, and {error}")
            return
        loop = asyncio.get_running_loop()
        if not asked.questions:
            self._timer = loop.call_later(PAUSE_S, self._go_on, asked)
            return
        self._answers = {}
        self._timer = loop.call_later(ASK_S, self._fail, f"nobody answered what {self._server} asks back")
        answerer = self._request.answerer
        assert answerer is not None
        for question in asked.questions:
            self._withdraw[question.key] = _put(answerer, question, partial(self._answered, asked, question.key))

    def _answered(self, asked: Round, key: str, end: QuestionEnd) -> None:
        if self._withdraw.pop(key, None) is None:
            return
        if end.code:
            reply = ReplyError(end.code, end.message, end.data)
            self._fail(f"{self._server} asks back, and the client answered: {end.message}", reply)
            return
        self._answers[key] = end.result
        if not self._withdraw:
            self._go_on(asked)

    def _go_on(self, asked: Round) -> None:
        self._stop_asking()
        params = next_params(self._request.params, self._answers, asked.state)
        self._answers = {}
        self._pending = self._begin(msgspec.structs.replace(self._request, params=params), self._take)

    def _fail(self, why: str, reply: ReplyError | None = None) -> None:
        self._stop_asking()
        fault = ProtocolFault(FaultKind.TOOL_ERROR, why, code=INPUT_REQUIRED, delivery=Delivery.ANSWERED, reply=reply)
        fault.server = self._server
        self._deliver(fault)

    def _stop_asking(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        withdrawn, self._withdraw = self._withdraw, {}
        for withdraw in withdrawn.values():
            withdraw()
