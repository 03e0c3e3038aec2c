"""A page of a client's tasks: each is asked for at the server that has it, and what is there is listed.

Servers are not asked for their own lists: those hold other clients' tasks, too, and as many as a server likes.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import Raw

from quarterdeck_protocol.configs import Revision
from quarterdeck_protocol.faults import Delivery, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_object
from quarterdeck_protocol.tools import CallEnd, Deliver, PendingCall, WireResult

from .routes import TaskRoute

PAGE: Final = 50
"""Tasks of one page: each costs a request of its server."""

ANSWER_S: Final = 10.0
"""How long servers may take to say how their tasks are; one that takes longer is not listed."""

MAX_TASK_BYTES: Final = 64 * 1024
"""Of one task as its server describes it; a larger one is not listed."""

GONE: Final = frozenset({"unknown_task", "task_lost"})
"""The codes of a fault by which a task is no more."""

AskState = Callable[[TaskRoute, Deliver], PendingCall]
"""Asks for the state of one task, under the client's id of it."""


class TaskPage:
    """A page under way; a `PendingCall`."""

    def __init__(
        self, routes: Sequence[TaskRoute], *, cursor: str, deliver: Deliver, forget: Callable[[TaskRoute], None]
    ) -> None:
        """Nothing is asked yet.

        Args:
            routes: the tasks of the page.
            cursor: of the next page; empty for none.
            deliver: takes the page.
            forget: told of each task that is no more.
        """
        self._routes = routes
        self._cursor = cursor
        self._deliver: Deliver | None = deliver
        self._forget = forget
        self._pending: dict[int, PendingCall] = {}
        self._found: dict[int, Raw] = {}
        self._left = {route.number for route in routes}

    def begin(self, ask: AskState) -> "TaskPage":
        """Ask for all of them; the page is delivered when all have answered, later than this returns."""
        for route in self._routes:
            self._pending[route.number] = ask(route, partial(self._take, route))
        if not self._routes:
            asyncio.get_running_loop().call_soon(self._finish)
        return self

    def cancel(self, reason: str = "") -> Delivery:
        """See `PendingCall`."""
        self._deliver = None
        for number in tuple(self._left):
            self._pending[number].cancel(reason)
        return Delivery.UNKNOWN

    def _take(self, route: TaskRoute, end: CallEnd) -> None:
        self._left.discard(route.number)
        if isinstance(end, ProtocolFault):
            if end.code in GONE or end.reply is not None:
                self._forget(route)
        elif len(end.body) <= MAX_TASK_BYTES:
            try:
                members = check_object(end.body, max_bytes=MAX_TASK_BYTES)
                members.pop("_meta", None)
                self._found[route.number] = Raw(msgspec.json.encode(members))
            except BodyError:
                pass  # it is nothing that could be listed
        if not self._left:
            self._finish()

    def _finish(self) -> None:
        deliver, self._deliver = self._deliver, None
        if deliver is None:
            return
        page: dict[str, object] = {"tasks": [self._found[number] for number in sorted(self._found)]}
        if self._cursor:
            page["nextCursor"] = self._cursor
        deliver(WireResult(msgspec.json.encode(page), Revision.R2025_11_25))
