"""The tasks of one server, as far as its clients may ask for them, and what the server says of each.

The server is not trusted: an answer that names another client's task, or another than requested, is not passed on.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from quarterdeck.common.in_flight import client_with_most
from quarterdeck.fleet.workers.requests import not_made
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.mcp.tasks import (
    CREATED,
    METHODS,
    RESULT,
    asks_for_task,
    id_problem,
    related_to,
    takes_tasks,
    task_created,
    task_named,
)
from quarterdeck_protocol.offers import RawRequest
from quarterdeck_protocol.tools import CallEnd, Client, Deliver, RawCall, WireResult

MAX_EACH: Final = 1_000
"""Tasks of one client that are known; each was a call."""

MAX_TOGETHER: Final = 10_000
"""Known tasks of all clients of the server."""

MAX_AGE_S: Final = 24 * 3600.0
"""Seconds since a task was last used: a client that wants its result asks within a day."""

MAX_SHOWN_CHARS: Final = 80
"""Characters of a client's id in a message."""

_log = logging.getLogger("quarterdeck.fleet")


class TaskOwners:
    """The owner of each task; pure. Clients are told apart by their keys, times are monotonic seconds.

    Where a client, or all together, have too many, the least recently used are forgotten, and counted in `forgotten`;
    the server may still have them, but no client can ask for them.
    """

    def __init__(self) -> None:
        self.forgotten = 0
        self._owner: dict[str, str] = {}
        self._used_at: dict[str, dict[str, float]] = {}

    def __len__(self) -> int:
        return len(self._owner)

    def note(self, task: str, client: str, now: float) -> bool:
        """Note a task of this client. Return False if it is another client's."""
        self._forget_old(now)
        if self._owner.setdefault(task, client) != client:
            return False
        own = self._used_at.setdefault(client, {})
        own.pop(task, None)
        own[task] = now
        if len(own) > MAX_EACH:
            self._forget_first_of(client)
            self.forgotten += 1
        elif len(self._owner) > MAX_TOGETHER:
            self._forget_first_of(client_with_most(self._used_at))
            self.forgotten += 1
        return True

    def use(self, task: str, client: str, now: float) -> bool:
        """Note a use of a task. Return whether it is the client's own."""
        own = self._used_at.get(client, {})
        used_at = own.pop(task, None)
        if used_at is None:
            return False
        if used_at + MAX_AGE_S < now:
            del self._owner[task]
            return False
        own[task] = now
        return True

    def owner_of(self, task: str) -> str | None:
        """The client whose task this is."""
        return self._owner.get(task)

    def leave(self, client: str) -> None:
        """Forget the tasks of a client that has left."""
        for task in self._used_at.pop(client, {}):
            del self._owner[task]

    def _forget_first_of(self, client: str) -> None:
        own = self._used_at[client]
        task = next(iter(own))
        del own[task], self._owner[task]

    def _forget_old(self, now: float) -> None:
        """Forget expired tasks; each client's tasks are in the order of their use."""
        for client, own in tuple(self._used_at.items()):
            while own and next(iter(own.values())) + MAX_AGE_S < now:
                self._forget_first_of(client)
            if not own:
                del self._used_at[client]


class ServerTasks:
    """The tasks of one generation of a server, or of all generations of a remote one, which outlives its connection."""

    def __init__(self, config: ServerConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._owners = TaskOwners()

    def follow(self, earlier: "ServerTasks") -> None:
        """Be the next generation's."""
        if not isinstance(self._config, StdioServerConfig):
            self._owners = earlier._owners  # noqa: SLF001 - of its own kind

    def __len__(self) -> int:
        return len(self._owners)

    def stop(self) -> None:
        """The server is gone, and what it worked on, where that was in its process."""
        if isinstance(self._config, StdioServerConfig) and len(self._owners):
            _log.warning("%s has ended: %d tasks of its clients are lost", self._config.id, len(self._owners))
            self._owners = TaskOwners()

    def leave(self, client: Client) -> None:
        """Note that a client has left; a part of one owns nothing."""
        if not client.part:
            self._owners.leave(client.key)

    def owner_of_note(self, params: bytes) -> frozenset[str]:
        """Return the client that the server tells of a task's state, if any."""
        try:
            owner = self._owners.owner_of(task_named(params))
        except BodyError:
            owner = None
        return frozenset((owner,)) if owner is not None else frozenset()

    # Calls that may become tasks

    def watched(self, call: RawCall | RawRequest, deliver: Deliver, *, is_modern: bool) -> Deliver:
        """Takes the end of a call: where it may have become a task, that is noted first."""
        if is_modern:
            may_become = call.answerer is not None and takes_tasks(call.answerer.capabilities)
        else:
            may_become = isinstance(call, RawRequest) and asks_for_task(call.params)
        result_type = CREATED if is_modern else "complete"
        return partial(self._ended, call.client, result_type, deliver) if may_become else deliver

    def _ended(self, client: Client, result_type: str, deliver: Deliver, end: CallEnd) -> None:
        is_created = isinstance(end, WireResult) and end.result_type == result_type
        deliver(self._noted(client, end) if is_created and isinstance(end, WireResult) else end)

    def _noted(self, client: Client, end: WireResult) -> CallEnd:
        try:
            task = task_created(end.body, is_modern=end.result_type == CREATED)
        except BodyError as error:
            return self._broken(str(error))
        if task is None:
            return end  # of a tool that is none for tasks
        if problem := id_problem(task):
            return self._broken(problem)
        is_first = not self._owners.forgotten
        if not self._owners.note(task, client.key, self._clock()):
            return self._broken("its task has the id of another client's task")
        if is_first and self._owners.forgotten:
            _log.warning("%s has too many tasks: from now on the oldest are forgotten", self._config.id)
        return end

    # Requests about one task

    def begin(self, request: RawRequest, deliver: Deliver, *, is_modern: bool) -> Deliver | ProtocolFault:
        """Return what takes the end of such a request, or why it is not made."""
        server = self._config.id
        if request.method not in METHODS[is_modern]:
            why = f"{request.method} is nothing that {server} has, by the revision that it speaks"
            return not_made(server, why, "not_offered")
        try:
            task = task_named(request.params)
        except BodyError as error:
            return not_made(server, f"the params of {request.method} cannot be read: {error}", "bad_arguments")
        if not self._owners.use(task, request.client.key, self._clock()):
            shown = task[:MAX_SHOWN_CHARS]
            why = f"{server} has no task {shown!r} of this client: it was started anew since, or the task is too old"
            return not_made(server, why, "task_lost")
        return partial(self._answered, request.method, task, deliver)

    def _answered(self, method: str, task: str, deliver: Deliver, end: CallEnd) -> None:
        if isinstance(end, WireResult):
            try:
                end = self._of(method, task, end)
            except BodyError as error:
                end = self._broken(str(error))
        deliver(end)

    def _of(self, method: str, task: str, end: WireResult) -> CallEnd:
        """Return the server's answer if it is about this task, else a fault."""
        if method == RESULT:
            body = related_to(end.body, task)
            return end if body is end.body else replace(end, body=body, members=None)
        named = task_named(end.body)
        if named != task and (named or method == "tasks/get"):
            return self._broken(f"it answered {method} with another task than was asked for")
        return end

    def _broken(self, why: str) -> ProtocolFault:
        fault = ProtocolFault(
            FaultKind.TOOL_ERROR,
            f"the answer of {self._config.id} is not passed on: {why}",
            code="bad_result",
            delivery=Delivery.ANSWERED,
        )
        fault.server = self._config.id
        return fault
