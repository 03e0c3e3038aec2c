"""A call of a client that takes no task, whose server makes one: it is answered when that has ended.

A server of 2025-11-25 says before of which tools that is so.  One of 2026-07-28 refuses such a call, and has done
nothing then; so it is made once more by a client that takes tasks, which is us.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.mcp.task_eras import (
    TaskState,
    asking_for_none,
    asking_for_task,
    end_of,
    needs_task,
    read_state,
    unrelated,
)
from quarterdeck_protocol.mcp.tasks import CREATED, PROGRESS, read_progress, task_created
from quarterdeck_protocol.offers import News, RawRequest, ServerNote
from quarterdeck_protocol.tools import CallEnd, Deliver, ProgressNote, WireResult

from .chain import AskedKeys, Chain, Forward, Pace, Watch
from .newer_server import newer_result
from .taking import Taking

TOLD_S: Final = 5.0
"""Between two notes of progress of a task of 2025-11-25: clients take what says nothing for minutes for lost."""


WatchNews = Callable[[Callable[[News], None]], Callable[[], None]]
"""Has somebody told what servers say; what it returns ends that, and may be repeated."""


class HeldCall(Chain):
    """See the module."""

    def __init__(
        self,
        call: RawRequest,
        forward: Forward,
        deliver: Deliver,
        *,
        config: ServerConfig,
        pace: Pace,
        watch_news: WatchNews,
    ) -> None:
        """Of a client's call, by its server's own names; `begin` is next."""
        super().__init__(forward, deliver)
        self._call = msgspec.structs.replace(call, params=asking_for_none(call.params))
        self._server = config.id
        self._pace = pace
        self._watch_news = watch_news
        self._unwatch: Callable[[], None] = _nothing
        self._tells_itself = False
        self._notes = 0
        self._task = ""
        self._watch: Watch | None = None
        self._telling: asyncio.TimerHandle | None = None
        loop = asyncio.get_running_loop()
        limit_s = config.call_timeout_s
        if call.timeout_s is not None:
            limit_s = min(limit_s, call.timeout_s)
        self._until = loop.time() + limit_s

    def begin(self, *, is_newer: bool) -> "HeldCall":
        """Make it."""
        if is_newer:
            self.ask(self._call, self._answered)
        else:
            params = asking_for_task(self._call.params)
            report = self._pass_on if self._call.on_progress is not None else None
            asked = msgspec.structs.replace(self._call, params=params, on_progress=report)
            self.ask(asked, self._begun_by_older)
        return self

    def end(self, end: CallEnd) -> None:
        """See `Chain`."""
        self._stop_telling()
        super().end(end)

    def cancel(self, reason: str = "") -> Delivery:
        """See `PendingCall`; the server is told that nobody waits for its task."""
        self._stop_telling()
        if self._watch is not None:
            self._watch.cancel(reason)
        was_over = self.is_over
        delivery = super().cancel(reason)
        if not was_over:
            self._give_up_task()
        return Delivery.UNKNOWN if self._task else delivery

    def _left_s(self) -> float:
        return max(self._until - asyncio.get_running_loop().time(), 0.001)

    def _about(self, method: str, timeout_s: float | None = None) -> RawRequest:
        params = msgspec.json.encode({"taskId": self._task})
        return RawRequest(method, params, timeout_s=timeout_s, client=self._call.client)

    def _give_up_task(self) -> None:
        if self._task:
            cancel = self._about("tasks/cancel")
            answerer = Taking.of(self._call.answerer)
            self._forward(msgspec.structs.replace(cancel, answerer=answerer), _ignore)

    # Of a server of 2026-07-28

    def _answered(self, end: CallEnd) -> None:
        if not isinstance(end, ProtocolFault) or not needs_task(end):
            self.end(end)
            return
        taking = Taking.of(self._call.answerer)
        again = msgspec.structs.replace(self._call, answerer=taking, timeout_s=self._left_s())
        self.ask(again, partial(self._begun_by_newer, end))

    def _begun_by_newer(self, refused: ProtocolFault, end: CallEnd) -> None:
        if isinstance(end, ProtocolFault) and needs_task(end):
            self.end(refused)  # its tasks are not approved
            return
        if not isinstance(end, WireResult) or end.result_type != CREATED:
            self.end(end)
            return
        self._task = task_created(end.body, is_modern=True) or ""
        look = msgspec.structs.replace(self._about("tasks/get"), answerer=Taking.of(self._call.answerer))
        self._watch = Watch(
            look,
            self._forward,
            self.end,
            server=self._server,
            pace=self._pace,
            asked=AskedKeys(),
            answerer=self._call.answerer,
            limit_s=self._left_s(),
            on_ended=self._ended,
            on_state=self._tell,
            on_late=self._give_up_task,
        )

    def _ended(self, state: TaskState) -> None:
        end = end_of(state, self._server)
        self.end(end if isinstance(end, ProtocolFault) else newer_result(end))

    # Of a server of 2025-11-25

    def _begun_by_older(self, end: CallEnd) -> None:
        task = task_created(end.body, is_modern=False) if isinstance(end, WireResult) else None
        if not task:
            self.end(end)  # it was none for this once
            return
        self._task = task
        if self._call.on_progress is not None:
            self._unwatch = self._watch_news(self._hear)
        wait = msgspec.structs.replace(self._about("tasks/result", self._left_s()), answerer=self._call.answerer)
        self.ask(wait, self._resulted)
        self._tell_later()

    def _resulted(self, end: CallEnd) -> None:
        if isinstance(end, WireResult):
            body = unrelated(end.body)
            end = end if body is end.body else WireResult(body, end.era, end.is_error, end.result_type)
        elif end.kind is FaultKind.TIMEOUT:
            self._give_up_task()
        self.end(end)

    # Progress

    def _tell(self, state: TaskState) -> None:
        if self._call.on_progress is not None and not self._tells_itself:
            self._notes += 1
            self._call.on_progress(ProgressNote(float(self._notes), None, state.message or None))

    def _tell_later(self) -> None:
        if self._call.on_progress is not None and not self.is_over and not self._tells_itself:
            delay_s = self._pace.delay_s(TOLD_S)
            self._telling = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        self._forward(self._about("tasks/get"), self._looked)

    def _looked(self, end: CallEnd) -> None:
        if self.is_over:
            return
        if isinstance(end, WireResult):
            try:
                self._tell(read_state(end.body))
            except BodyError:
                pass  # what it says of itself is no news
        self._tell_later()

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
        if self._call.on_progress is not None and not self.is_over:
            self._tells_itself = True
            total = None if note.total is None else self._notes + note.total
            self._call.on_progress(ProgressNote(self._notes + note.progress, total, note.message))

    def _stop_telling(self) -> None:
        self._unwatch()
        if self._telling is not None:
            self._telling.cancel()


def _nothing() -> None:
    """Nothing is watched."""


def _ignore(_: CallEnd) -> None:
    """Nobody waits for it."""
