"""A call whose client takes no task, or none of its server's era, and whose server makes one: answered at its end.

A server of 2025-11-25 says before of which tools that is so.  One of 2026-07-28 refuses such a call, and has done
nothing then; so it is made once more by a client that takes tasks, which is us.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from msgspec import Raw

from quarterdeck.fleet.core.rounds import RoundError, read_round
from quarterdeck_protocol.configs import Revision
from quarterdeck_protocol.contract import LiveEndpoint
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.client.task_tokens import read_progress
from quarterdeck_protocol.mcp.jsonrpc import METHOD_NOT_FOUND, BodyError
from quarterdeck_protocol.mcp.tasks import (
    CREATED,
    ENDED,
    PROGRESS,
    Status,
    TaskState,
    end_of,
    needs_task,
    read_state,
    related_to,
    taking_tasks,
    task_created,
)
from quarterdeck_protocol.offers import News, RawRequest, ServerNote
from quarterdeck_protocol.questions import Answerer, Question, QuestionEnd
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall, ProgressNote, WireResult

SHORTEST_POLL_S: Final = 0.25
LONGEST_POLL_S: Final = 10.0
"""Between two looks at a task, whatever its server names."""

TOLD_S: Final = 5.0
"""Between two notes of progress of a task of 2025-11-25: clients take what says nothing for minutes for lost."""

LOOKS_A_SECOND: Final = 100
"""At the tasks of all clients together: each is a request of a server."""

MAX_ASKED: Final = 100
"""Questions of one task in all: a person answers them one by one."""

WatchNews = Callable[[Callable[[News], None]], Callable[[], None]]
"""Has somebody told what servers say; what it returns ends that, and may be repeated."""


class Pace:
    """How often tasks are looked at: the more are, the more seldom each.

    Attributes:
        told_s: between two looks at a task of 2025-11-25 for its progress.
        active: how many are looked at.
    """

    def __init__(self, shortest_s: float = SHORTEST_POLL_S, told_s: float = TOLD_S) -> None:
        """None is."""
        self.told_s = told_s
        self.active = 0
        self._shortest_s = shortest_s

    def delay_s(self, wish_s: float) -> float:
        """Return the time until the next look at a task whose server wants one so often."""
        return max(min(max(wish_s, self._shortest_s), LONGEST_POLL_S), self.active / LOOKS_A_SECOND)


class Looks:
    """Looks at one task, one after another."""

    def __init__(
        self, look: Callable[[Deliver], PendingCall], take: Callable[[CallEnd], float | None], pace: Pace
    ) -> None:
        """Begin with `start`.

        Args:
            look: asks for the state.
            take: takes it; returns after how many seconds to look again, None for never.
            pace: of all tasks that are looked at.
        """
        self._look = look
        self._take = take
        self._pace = pace
        self._pending: PendingCall | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False
        pace.active += 1

    def start(self, wish_s: float | None = None) -> "Looks":
        """Look after so many seconds, or at once; returns itself."""
        if wish_s is None:
            self._again()
        else:
            self._timer = asyncio.get_running_loop().call_later(self._pace.delay_s(wish_s), self._again)
        return self

    def look_now(self) -> None:
        """Look without waiting any longer; nothing where it is being looked at."""
        if self._timer is not None and not self._is_over:
            self._timer.cancel()
            self._again()

    def close(self) -> None:
        """Look no more; repeatable."""
        if self._is_over:
            return
        self._is_over = True
        self._pace.active -= 1
        if self._timer is not None:
            self._timer.cancel()
        if self._pending is not None:
            self._pending.cancel("nobody wants to know any more")

    def _again(self) -> None:
        self._timer = None
        self._pending = self._look(self._came)

    def _came(self, end: CallEnd) -> None:
        self._pending = None
        if self._is_over:
            return
        wish_s = self._take(end)
        if wish_s is None:
            self.close()
        elif not self._is_over:
            self.start(wish_s)


class HeldCall:
    """See the module; a `PendingCall`, which ends once."""

    def __init__(
        self, call: RawRequest, endpoint: LiveEndpoint, deliver: Deliver, *, pace: Pace, watch_news: WatchNews
    ) -> None:
        """Of a client's call, by its server's own names; `begin` is next."""
        self._call = msgspec.structs.replace(call, params=_asking_for(call.params))
        self._taking = _Taking(call.answerer)
        self._server = endpoint.config.id
        self._is_newer = endpoint.task_support().is_for(is_modern=True)
        self._forward = endpoint.forward
        self._deliver = deliver
        self._pace = pace
        self._watch_news = watch_news
        self._pending: PendingCall | None = None
        self._is_over = False
        self._task = ""
        self._asked: set[str] = set()
        self._closing: dict[str, Callable[[], None]] = {}
        self._tells_itself = False
        self._notes = 0
        limit_s = endpoint.config.call_timeout_s
        self._limit_s = limit_s if call.timeout_s is None else min(limit_s, call.timeout_s)
        self._until = asyncio.get_running_loop().time() + self._limit_s

    def begin(self) -> "HeldCall":
        """Make it."""
        if self._is_newer:
            self._ask(self._call, self._answered)
        else:
            params = _asking_for(self._call.params, task=Raw(b"{}"))
            report = self._pass_on if self._call.on_progress is not None else None
            asked = msgspec.structs.replace(self._call, params=params, on_progress=report)
            self._ask(asked, self._begun_by_older)
        return self

    def cancel(self, reason: str = "") -> Delivery:
        """See `PendingCall`; the server is told that nobody waits for its task."""
        if self._is_over:
            return Delivery.UNKNOWN
        delivery = self._pending.cancel(reason) if self._pending is not None else Delivery.UNKNOWN
        self._close()
        return Delivery.UNKNOWN if self._task else delivery

    def _ask(self, request: RawRequest, then: Deliver) -> None:
        self._pending = self._forward(request, partial(self._take, then))

    def _take(self, then: Deliver, end: CallEnd) -> None:
        self._pending = None
        if self._is_over:
            return
        try:
            then(end)
        except BodyError as error:
            self._fail(self._broken(error))

    def _about(self, method: str, **more: object) -> RawRequest:
        params = msgspec.json.encode({"taskId": self._task, **more})
        answerer = self._taking if self._is_newer else None
        return RawRequest(method, params, client=self._call.client, answerer=answerer)

    def _left_s(self) -> float:
        return max(self._until - asyncio.get_running_loop().time(), 0.001)

    # Its end

    def _end(self, end: CallEnd) -> None:
        """The task has ended, or there is none."""
        self._task = ""
        self._close()
        self._deliver(end)

    def _fail(self, fault: ProtocolFault) -> None:
        """Nobody waits for the task any more, which may go on."""
        self._close()
        self._deliver(fault)

    def _late(self) -> None:
        words = f"the task of {self._server} was not done within {self._limit_s:g} s"
        self._fail(self._fault(words, "call_timeout", FaultKind.TIMEOUT, Delivery.UNKNOWN))

    def _close(self) -> None:
        self._is_over = True
        closing, self._closing = self._closing, {}
        for close in closing.values():
            close()
        if self._task:
            self._forward(self._about("tasks/cancel"), _ignore)

    def _broken(self, error: Exception) -> ProtocolFault:
        return self._fault(f"the server says of its task what cannot be read: {error}", "bad_result")

    def _fault(
        self, why: str, code: str, kind: FaultKind = FaultKind.TOOL_ERROR, delivery: Delivery = Delivery.ANSWERED
    ) -> ProtocolFault:
        fault = ProtocolFault(kind, why, code=code, delivery=delivery)
        fault.server = self._server
        return fault

    # Of a server of 2026-07-28

    def _answered(self, end: CallEnd) -> None:
        if not isinstance(end, ProtocolFault) or not needs_task(end):
            self._end(end)
            return
        again = msgspec.structs.replace(self._call, answerer=self._taking, timeout_s=self._left_s())
        self._ask(again, self._begun_by_newer)

    def _begun_by_newer(self, end: CallEnd) -> None:
        if not isinstance(end, WireResult) or end.result_type != CREATED:
            self._end(end)  # the same refusal, where its tasks are not approved
            return
        self._task = task_created(end.body, is_modern=True) or ""
        self._closing["deadline"] = asyncio.get_running_loop().call_later(self._left_s(), self._late).cancel
        self._looking(self._looked).start()

    def _looking(self, take: Callable[[CallEnd], float | None]) -> Looks:
        looks = Looks(partial(self._forward, self._about("tasks/get")), take, self._pace)
        self._closing["looks"] = looks.close
        return looks

    def _looked(self, end: CallEnd) -> float | None:
        if isinstance(end, ProtocolFault):
            self._end(end)
            return None
        try:
            state = read_state(end.body)
            if state.status in ENDED:
                found = end_of(state, self._server)
                self._end(found if isinstance(found, ProtocolFault) else WireResult(found, Revision.R2026_07_28))
                return None
            self._tell(state)
            if state.status is Status.INPUT_REQUIRED and "inputRequests" in state.members:
                self._put(state)
        except (BodyError, RoundError) as error:
            self._fail(self._broken(error))
            return None
        return state.poll_s

    def _put(self, state: TaskState) -> None:
        """Ask what the task wants to know and its client was not asked yet: a key is one question for ever.

        Raises:
            RoundError: it asks what nobody could answer.
        """
        for question in read_round(self._server, state.members).questions:
            if question.key in self._asked:
                continue
            if len(self._asked) >= MAX_ASKED:
                raise RoundError(f"it has asked {MAX_ASKED} questions already")
            self._asked.add(question.key)
            if self._call.answerer is None:
                self._told(question.key, QuestionEnd(code=METHOD_NOT_FOUND, message="the client cannot be asked"))
                return
            withdraw = self._call.answerer.ask(question, partial(self._told, question.key))
            self._closing[f"question {question.key}"] = withdraw

    def _told(self, key: str, end: QuestionEnd) -> None:
        """Tell the server; an answer that is an error ends the call, for the newer era has no word for it."""
        self._closing.pop(f"question {key}", None)
        if self._is_over:
            return
        if end.code:
            why = f"{self._server} asks back for its task, and the client answered: {end.message}"
            self._fail(self._fault(why, "input_required"))
            return
        answers = {key: Raw(end.result or b"{}")}
        self._forward(self._about("tasks/update", inputResponses=answers), _ignore)

    # Of a server of 2025-11-25

    def _begun_by_older(self, end: CallEnd) -> None:
        task = task_created(end.body, is_modern=False) if isinstance(end, WireResult) else None
        if not task:
            self._end(end)  # it was none for this once
            return
        self._task = task
        if self._call.on_progress is not None:
            self._closing["news"] = self._watch_news(self._hear)
            self._looking(self._seen).start(self._pace.told_s)
        waiting = self._about("tasks/result")
        answerer, left_s = self._call.answerer, self._left_s()
        self._ask(msgspec.structs.replace(waiting, answerer=answerer, timeout_s=left_s), self._resulted)

    def _resulted(self, end: CallEnd) -> None:
        if isinstance(end, WireResult):
            body = related_to(end.body, "")
            self._end(end if body is end.body else WireResult(body, end.era, end.is_error, end.result_type))
        elif end.kind is FaultKind.TIMEOUT:
            self._fail(end)
        else:
            self._end(end)

    # Progress

    def _seen(self, end: CallEnd) -> float | None:
        if isinstance(end, WireResult):
            try:
                self._tell(read_state(end.body))
            except BodyError:
                pass  # what it says of itself is no news
        return None if self._tells_itself else self._pace.told_s

    def _tell(self, state: TaskState) -> None:
        if self._call.on_progress is not None and not self._tells_itself:
            self._notes += 1
            self._call.on_progress(ProgressNote(float(self._notes), None, state.message or None))

    def _hear(self, news: News) -> None:
        if not isinstance(news, ServerNote) or (news.method, news.server) != (PROGRESS, self._server):
            return
        if self._call.client.key not in news.clients:
            return
        try:
            said = read_progress(news.params)
        except BodyError:
            return  # of a worker that says what none of ours would
        if said.taskId == self._task:
            self._pass_on(ProgressNote(said.progress, said.total, said.message))

    def _pass_on(self, note: ProgressNote) -> None:
        """The server tells of progress itself: it goes on from what was told, and looks tell nothing any more."""
        if self._call.on_progress is not None and not self._is_over:
            self._tells_itself = True
            total = None if note.total is None else self._notes + note.total
            self._call.on_progress(ProgressNote(self._notes + note.progress, total, note.message))


class _Taking(Answerer):
    """A client that takes a task for a result, because we do for it; asked it is by its own answerer."""

    def __init__(self, answerer: Answerer | None) -> None:
        self._answerer = answerer

    @property
    def capabilities(self) -> bytes:
        return taking_tasks(self._answerer.capabilities if self._answerer is not None else b"{}")

    @property
    def bridges(self) -> bool:
        return self._answerer is not None and self._answerer.bridges

    def ask(self, question: Question, answer: Callable[[QuestionEnd], None]) -> Callable[[], None]:
        if self._answerer is not None:
            return self._answerer.ask(question, answer)
        end = QuestionEnd(code=METHOD_NOT_FOUND, message="the client cannot be asked")
        return asyncio.get_running_loop().call_soon(answer, end).cancel


def _asking_for(params: bytes, **wish: Raw) -> bytes:
    """The params of a `tools/call` of 2025-11-25 that is to be a task, or without a wish none."""
    members = msgspec.json.decode(params, type=dict[str, Raw])
    return msgspec.json.encode({key: value for key, value in members.items() if key != "task"} | wish)


def _ignore(_: CallEnd) -> None:
    """Nobody waits for it."""
