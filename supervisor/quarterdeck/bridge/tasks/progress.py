"""The tokens by which clients hear how far their tasks of 2025-11-25 are, once the calls are answered.

A token is good until the task has ended, its time to live is over, or its client is gone.  2026-07-28 has no such
thing: there progress ends with the answer, and a task's state has a message.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.mcp.task_eras import ENDED, TaskState, read_created, read_state
from quarterdeck_protocol.mcp.tasks import PROGRESS, RESULT, read_progress, task_named
from quarterdeck_protocol.offers import RawRequest, ServerNote
from quarterdeck_protocol.tools import CallEnd, Deliver, WireResult

MAX_EACH: Final = 1_000
"""Tokens of one client, as many as it can ask for tasks; the oldest are forgotten first."""

MAX_TOKEN_BYTES: Final = 1_024
"""Of a token, which its client makes up; a longer one is good for its call alone."""


class _Kept(NamedTuple):
    token: bytes
    public: str
    until: float


class ProgressTokens:
    """See the module; clients are told apart by their keys."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """There is none."""
        self._clock = clock
        self._of: dict[str, dict[tuple[str, str], _Kept]] = {}

    def keep(self, call: RawRequest, server: str, own: str, public: str, made: WireResult) -> None:
        """A call has become a task of its client's own era, which its client calls `public`."""
        client = call.client.key
        self._forget(client, server, own)
        state = _state_of(made)
        if not call.progress_token or len(call.progress_token) > MAX_TOKEN_BYTES or state is None:
            return
        kept = self._of.setdefault(client, {})
        kept[server, own] = _Kept(call.progress_token, public, self._clock() + state.ttl_s)
        if len(kept) > MAX_EACH:
            del kept[next(iter(kept))]

    def leave(self, client: str) -> None:
        """A client has left."""
        self._of.pop(client, None)

    def noted(self, client: str, note: ServerNote) -> ServerNote | None:
        """What a client is told of how far its task is; None for nothing."""
        try:
            said = read_progress(note.params)
        except BodyError:
            return None  # of a worker that says what none of ours would
        kept = self._of.get(client, {}).get((note.server, said.taskId))
        if kept is None:
            return None
        if kept.until < self._clock():
            self._forget(client, note.server, said.taskId)
            return None
        return ServerNote(note.server, PROGRESS, said.for_client(kept.public, kept.token), frozenset((client,)))

    def told(self, client: str, note: ServerNote) -> None:
        """A client is told of its task's state: of one that has ended nothing more is to come."""
        if client in self._of and _has_ended(note.params):
            self._forget(client, note.server, task_named(note.params))

    def until_ended(self, request: RawRequest, server: str, own: str, deliver: Deliver) -> Deliver:
        """Takes the end of a request about a task: after one that says that it has ended, nothing more is to come."""
        client = request.client.key
        if (server, own) not in self._of.get(client, {}):
            return deliver

        def take(end: CallEnd) -> None:
            if isinstance(end, WireResult) and (request.method == RESULT or _has_ended(end.body)):
                self._forget(client, server, own)
            deliver(end)

        return take

    def _forget(self, client: str, server: str, own: str) -> None:
        kept = self._of.get(client, {})
        kept.pop((server, own), None)
        if not kept:
            self._of.pop(client, None)


def _has_ended(body: bytes) -> bool:
    try:
        return read_state(body).status in ENDED
    except BodyError:
        return False


def _state_of(made: WireResult) -> TaskState | None:
    """The state of the task that a call has become; None where that has ended already, or there is none."""
    try:
        state = read_created(made.body)
    except BodyError:
        return None
    return None if state.status in ENDED else state
