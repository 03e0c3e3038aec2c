"""Dialogues that take several requests, as generators, and which request each of those in progress waits for.  Pure.

A dialogue yields what to ask and is sent the result's bytes; an error reply, an answer that cannot be read, or silence
is thrown in.  So it reads like the same thing written with an SDK, and holds no socket, no clock and no id.
"""

from collections.abc import Generator
from math import inf
from typing import NamedTuple, TypeVar

import msgspec

from quarterdeck_protocol.limits import Deadlines

from .events import Event


class Ask(msgspec.Struct, frozen=True, gc=False):
    """A request of a dialogue, `params` as for `Relay.request`; `timeout_s` passes before silence counts, if given."""

    method: str
    params: bytes = b""
    timeout_s: float | None = None


class ErrorReply(Exception):  # noqa: N818 - named as the protocol names it
    """A JSON-RPC error, or what stands for one: an answer that cannot be read."""

    def __init__(self, code: int, message: str, data: bytes = b"") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class SilenceError(Exception):
    """No answer came in the time that the dialogue allowed."""


_T = TypeVar("_T")

Steps = Generator[Ask, bytes, _T]
Dialogue = Steps[Event]


class Question(NamedTuple):
    """What a dialogue asks next, to be sent under this id."""

    wire_id: int
    ask: Ask


class _Talk(msgspec.Struct, frozen=True):
    """`request_id` is the caller's, None for one of our own."""

    dialogue: Dialogue
    request_id: int | None


class Dialogues:
    """See the module.  Ids count from 1, and are never used twice."""

    def __init__(self) -> None:
        self._last = 0
        self._talks: dict[int, _Talk] = {}
        self.deadlines = Deadlines()
        """When silence is an answer, by the ids of those who would take it for one."""

    def __len__(self) -> int:
        return len(self._talks)

    def __contains__(self, wire_id: object) -> bool:
        return wire_id in self._talks

    def next_id(self) -> int:
        """A fresh id."""
        self._last += 1
        return self._last

    def begin(self, dialogue: Dialogue, request_id: int | None, now: float) -> Question:
        """Start one; what it asks first."""
        return self._ask(_Talk(dialogue, request_id), next(dialogue), now)

    def resume(self, wire_id: int, reply: bytes | ErrorReply | None, now: float) -> Question | Event:
        """Go on with what came of a question (None: silence): the next, or the event that it ends in."""
        talk = self._take(wire_id)
        try:
            if isinstance(reply, bytes):
                ask = talk.dialogue.send(reply)
            else:
                ask = talk.dialogue.throw(reply or SilenceError())
        except StopIteration as end:
            event: Event = end.value
            return event
        return self._ask(talk, ask, now)

    def drop(self, wire_id: int) -> None:
        """End one that nobody waits for any more."""
        self._take(wire_id).dialogue.close()

    def asked_for(self, request_id: int) -> int:
        """The id under which the dialogue of this request waits for an answer, 0 for none."""
        return next((wire_id for wire_id, talk in self._talks.items() if talk.request_id == request_id), 0)

    def request_of(self, wire_id: int) -> int | None:
        """The caller's request whose dialogue waits for an answer under this id; None for none, or one of our own."""
        talk = self._talks.get(wire_id)
        return None if talk is None else talk.request_id

    def requests(self) -> list[int]:
        """The caller's requests among them."""
        return [talk.request_id for talk in self._talks.values() if talk.request_id is not None]

    def _ask(self, talk: _Talk, ask: Ask, now: float) -> Question:
        wire_id = self.next_id()
        self._talks[wire_id] = talk
        if ask.timeout_s is not None:
            self.deadlines.add(wire_id, now + ask.timeout_s)
        return Question(wire_id, ask)

    def _take(self, wire_id: int) -> _Talk:
        if self.deadlines.remove(wire_id) and not self.deadlines:
            self.deadlines.soonest = inf  # else the relay's timer would ring for nothing
        return self._talks.pop(wire_id)
