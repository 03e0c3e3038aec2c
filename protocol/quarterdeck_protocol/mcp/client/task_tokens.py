"""Which task a progress token belongs to once its call is answered, and how far that is.  Pure.

2025-11-25 keeps the token of a call that has become a task as long as the task; 2026-07-28 ends it with the answer.
"""

from typing import Final

import msgspec
from msgspec import Raw

from quarterdeck_protocol.mcp.jsonrpc import BodyError, SplitResult
from quarterdeck_protocol.mcp.tasks import MAX_MESSAGE_CHARS, PROGRESS, RELATED, asks_for_task, id_problem, task_created

from .events import Noted, Progressed

MAX_KEPT: Final = 1_000
"""Tasks whose progress is heard; when more have begun, the oldest are forgotten first."""


class TaskProgress(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How far a task of 2025-11-25 is, once the call that has become it is answered."""

    taskId: str  # noqa: N815 - the wire's name
    progress: float
    total: float | None = None
    message: str | None = None

    def encoded(self) -> bytes:
        """Return it as params."""
        return msgspec.json.encode(self)

    def for_client(self, task: str, token: bytes) -> bytes:
        """Return the params of the notification for a client, by its own id and the token that it gave, as JSON."""
        params: dict[str, object] = {"progressToken": Raw(token), "progress": self.progress}
        params |= {} if self.total is None else {"total": self.total}
        params |= {} if self.message is None else {"message": self.message}
        return msgspec.json.encode({**params, "_meta": {RELATED: {"taskId": task}}})


def read_progress(params: bytes) -> TaskProgress:
    """Read such a note; raises `BodyError`."""
    try:
        said = _progress.decode(params)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BodyError("not the progress of a task", error) from None
    is_short = len(said.message or "") <= MAX_MESSAGE_CHARS
    return said if is_short else msgspec.structs.replace(said, message=str(said.message)[:MAX_MESSAGE_CHARS])


_progress: Final = msgspec.json.Decoder(TaskProgress)


class TaskTokens:
    """Progress tokens by the number of their call; `calls` are those in progress that are to be tasks with progress."""

    def __init__(self) -> None:
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
