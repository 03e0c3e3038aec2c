"""Which task a progress token belongs to once its call is answered.  Pure.

2025-11-25 keeps the token of a call that has become a task as long as the task; 2026-07-28 ends it with the answer.
"""

from typing import Final

from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.mcp.tasks import id_problem, task_created

from .events import Answered, Refused, Spoiled

MAX_KEPT: Final = 1_000
"""Tasks whose progress is heard; when more have begun, the oldest are forgotten first."""


class TaskTokens:
    """See the module; a call has one number, for its token and on the wire.

    Attributes:
        calls: those under way that are to be tasks, and whose progress is wanted.
    """

    def __init__(self) -> None:
        """No call is to be a task."""
        self.calls: set[int] = set()
        self._tasks: dict[int, str] = {}

    def ended(self, wire_id: int, end: Answered | Refused | Spoiled | None = None) -> None:
        """A call has ended, in an answer or without one; any call."""
        if wire_id not in self.calls:
            return
        self.calls.remove(wire_id)
        try:
            task = task_created(end.result.body, is_modern=False) if isinstance(end, Answered) else None
        except BodyError:
            return
        if task and not id_problem(task):
            self._tasks[wire_id] = task
            if len(self._tasks) > MAX_KEPT:
                del self._tasks[next(iter(self._tasks))]

    def task_of(self, wire_id: int) -> str:
        """The task that a call has become; empty for none."""
        return self._tasks.get(wire_id, "")
