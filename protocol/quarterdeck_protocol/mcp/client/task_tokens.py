"""Which task a progress token belongs to once its call is answered.  Pure.

2025-11-25 keeps the token of a call that has become a task as long as the task; 2026-07-28 ends it with the answer.
"""

from typing import Final

from quarterdeck_protocol.mcp.jsonrpc import BodyError, SplitResult
from quarterdeck_protocol.mcp.tasks import (
    MAX_MESSAGE_CHARS,
    PROGRESS,
    TaskProgress,
    asks_for_task,
    id_problem,
    task_created,
)

from .events import Noted, Progressed

MAX_KEPT: Final = 1_000
"""Tasks whose progress is heard; when more have begun, the oldest are forgotten first."""


class TaskTokens:
    """See the module; a call has one number, by which its token is found.

    Attributes:
        calls: those under way that are to be tasks, and whose progress is wanted.
    """

    def __init__(self) -> None:
        """No call is to be a task."""
        self.calls: set[int] = set()
        self._tasks: dict[int, str] = {}

    def began(self, request_id: int, params: bytes) -> None:
        """A call has begun whose progress is wanted, at a server of 2025-11-25."""
        if asks_for_task(params):
            self.calls.add(request_id)

    def ended(self, request_id: int, result: SplitResult | None = None) -> None:
        """A call has ended, in a result or without one; any call."""
        if request_id not in self.calls:
            return
        self.calls.remove(request_id)
        try:
            task = task_created(result.body, is_modern=False) if result is not None else None
        except BodyError:
            return
        if task and not id_problem(task):
            self._tasks[request_id] = task
            if len(self._tasks) > MAX_KEPT:
                del self._tasks[next(iter(self._tasks))]

    def has(self, request_id: int) -> bool:
        """Whether a call has become a task."""
        return request_id in self._tasks

    def said(self, progress: Progressed) -> Progressed | Noted:
        """The progress of a call; of its task, once it has become one."""
        if (task := self._tasks.get(progress.request_id)) is None:
            return progress
        message = progress.message and progress.message[:MAX_MESSAGE_CHARS]
        return Noted(PROGRESS, TaskProgress(task, progress.progress, progress.total, message).encoded())
