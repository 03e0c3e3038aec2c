"""Requests of one server, one after another, as one call that can be given up; and one that looks until a task ends."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from quarterdeck.fleet.core.rounds import RoundError, read_round
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import METHOD_NOT_FOUND, BodyError
from quarterdeck_protocol.mcp.task_eras import ENDED, Status, TaskState, read_state
from quarterdeck_protocol.mcp.tasks import task_named
from quarterdeck_protocol.offers import RawRequest
from quarterdeck_protocol.questions import Answerer, Question, QuestionEnd
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall

LOOKS_A_SECOND: Final = 100
"""At the tasks of all clients together: each is a request of a server."""

MAX_ASKED: Final = 100
"""Questions of one task in all: a person answers them one by one."""

Forward = Callable[[RawRequest, Deliver], PendingCall]
"""Makes a request of the server, by its own names."""


class Chain:
    """Requests one after another; a `PendingCall`, which ends once."""

    def __init__(self, forward: Forward, deliver: Deliver) -> None:
        """Nothing is asked yet."""
        self._forward = forward
        self._deliver = deliver
        self._pending: PendingCall | None = None
        self.is_over = False

    def ask(self, request: RawRequest, then: Deliver) -> "Chain":
        """Make the next request; `then` takes its end, unless the chain is given up."""
        self._pending = self._forward(request, partial(self._take, then))
        return self

    def end(self, end: CallEnd) -> None:
        """It ends so."""
        if not self.is_over:
            self.is_over = True
            self._deliver(end)

    def cancel(self, reason: str = "") -> Delivery:
        """See `PendingCall`."""
        self.is_over = True
        return self._pending.cancel(reason) if self._pending is not None else Delivery.UNKNOWN

    def _take(self, then: Deliver, end: CallEnd) -> None:
        if self.is_over:
            return
        self._pending = None
        try:
            then(end)
        except BodyError as error:
            self.end(broken(error))


def broken(error: object) -> ProtocolFault:
    """The fault of an answer about a task that cannot be read."""
    why = f"the server says of its task what cannot be read: {error}"
    return ProtocolFault(FaultKind.TOOL_ERROR, why, code="bad_result", delivery=Delivery.ANSWERED)


class Pace:
    """How often tasks are looked at: the more are, the more seldom each."""

    def __init__(self) -> None:
        """None is."""
        self.active = 0

    def delay_s(self, wish_s: float) -> float:
        """Until the next look at a task whose server wants one so often."""
        return max(wish_s, self.active / LOOKS_A_SECOND)


class AskedKeys:
    """Which questions of one task of 2026-07-28 have been put to its client: a key is one question for ever."""

    def __init__(self) -> None:
        """None has."""
        self._keys: set[str] = set()

    def take(self, key: str) -> bool:
        """Whether a question is to be put now.

        Raises:
            RoundError: there were too many.
        """
        if key in self._keys:
            return False
        if len(self._keys) >= MAX_ASKED:
            raise RoundError(f"it has asked {MAX_ASKED} questions already")
        self._keys.add(key)
        return True

    def give_back(self, key: str) -> None:
        """A question was withdrawn before it had an answer."""
        self._keys.discard(key)


class Watch(Chain):
    """Looks at a task of 2026-07-28 until it has ended, and has its client answer what it asks meanwhile."""

    def __init__(
        self,
        look: RawRequest,
        forward: Forward,
        deliver: Deliver,
        *,
        server: str,
        pace: Pace,
        asked: AskedKeys,
        answerer: Answerer | None,
        limit_s: float,
        on_ended: Callable[[TaskState], None],
        on_state: Callable[[TaskState], None],
        on_late: Callable[[], None],
    ) -> None:
        """Begin to look.

        Args:
            look: the request for its state.
            forward: makes requests.
            deliver: takes a fault; the end of the task is for `on_ended`.
            server: whose it is.
            pace: of all such.
            asked: what its client was asked.
            answerer: asks its client; None where it cannot be asked.
            limit_s: how long it may take.
            on_ended: takes the last state; it may raise `BodyError`.
            on_state: takes each before.
            on_late: told when the time is over.
        """
        super().__init__(forward, deliver)
        self._look = look
        self._server = server
        self._pace = pace
        self._asked = asked
        self._answerer = answerer
        self._on_ended = on_ended
        self._on_state = on_state
        self._on_late = on_late
        self._withdraw: dict[str, Callable[[], None]] = {}
        loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = loop.call_later(limit_s, self._late, limit_s)
        pace.active += 1
        self._is_counted = True
        self.ask(look, self._came)

    def end(self, end: CallEnd) -> None:
        """See `Chain`."""
        self._close()
        super().end(end)

    def cancel(self, reason: str = "") -> Delivery:
        """See `PendingCall`."""
        self._close()
        return super().cancel(reason)

    def _close(self) -> None:
        if not self._is_counted:
            return
        self._is_counted = False
        self._pace.active -= 1
        self._deadline.cancel()
        if self._timer is not None:
            self._timer.cancel()
        withdrawn, self._withdraw = self._withdraw, {}
        for key, withdraw in withdrawn.items():
            self._asked.give_back(key)
            withdraw()

    def _late(self, limit_s: float) -> None:
        pending = self._pending
        words = f"the task of {self._server} was not done within {limit_s:g} s"
        fault = ProtocolFault(FaultKind.TIMEOUT, words, code="call_timeout", delivery=Delivery.UNKNOWN)
        fault.server = self._server
        self._on_late()
        self.end(fault)
        if pending is not None:
            pending.cancel("the deadline has passed")

    def _came(self, end: CallEnd) -> None:
        if isinstance(end, ProtocolFault):
            self.end(end)
            return
        state = read_state(end.body)
        if state.status in ENDED:
            self._close()
            self._on_ended(state)
            return
        self._on_state(state)
        if state.status is Status.INPUT_REQUIRED and b'"inputRequests"' in end.body:
            try:
                self._put(state)
            except RoundError as error:
                self.end(broken(error))
                return
        delay_s = self._pace.delay_s(state.poll_s)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self.ask, self._look, self._came)

    def _put(self, state: TaskState) -> None:
        """Ask what the task wants to know and its client was not asked yet.

        Raises:
            RoundError: it asks what nobody could answer.
        """
        for question in read_round(self._server, state.members).questions:
            if not self._asked.take(question.key):
                continue
            if self._answerer is None:
                self._answered(question, QuestionEnd(code=METHOD_NOT_FOUND, message="the client cannot be asked"))
            else:
                answer = partial(self._answered, question)
                self._withdraw[question.key] = self._answerer.ask(question, answer)

    def _answered(self, question: Question, end: QuestionEnd) -> None:
        """Tell the server; an answer that is an error ends the wait, for the newer era has no word for it."""
        self._withdraw.pop(question.key, None)
        if self.is_over:
            return
        if end.code:
            self._asked.give_back(question.key)
            self.end(_unanswered(self._server, end))
            return
        answers = {question.key: msgspec.Raw(end.result or b"{}")}
        task = task_named(self._look.params)
        params = msgspec.json.encode({"taskId": task, "inputResponses": answers})
        update = msgspec.structs.replace(self._look, method="tasks/update", params=params)
        self._forward(update, _ignore)


def _ignore(_: CallEnd) -> None:
    """What became of it the next look shows."""


def _unanswered(server: str, end: QuestionEnd) -> ProtocolFault:
    why = f"{server} asks back for its task, and the client answered: {end.message}"
    fault = ProtocolFault(FaultKind.TOOL_ERROR, why, code="input_required", delivery=Delivery.ANSWERED)
    fault.server = server
    return fault
