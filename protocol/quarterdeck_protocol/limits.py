"""What may be sent, spent and waited for: credit, rates, heartbeats and deadlines, as one end books them.  Pure.

On a link, handshake, beats and credit itself cost nothing; every other frame costs `units`.  An end with any credit
left may send one frame of any size, and owes the rest: so a body larger than the window passes, alone.
"""

from collections import deque
from math import inf
from typing import Final

import msgspec

from .link.events import Requester
from .link.frames import (
    AskAnswer,
    AskEnded,
    Authorize,
    Condemn,
    Frame,
    ListChanged,
    Listen,
    Lost,
    Quarantined,
    Request,
    Started,
    Unauthorized,
)

UNIT_BYTES: Final = 64 * 1024
"""A frame costs one unit of credit, and one more for each of these in its body."""

MAX_WAITING_BYTES: Final = 256 * 1024 * 1024
"""Bodies that may wait for credit before new frames are refused: twice a window of them."""

BEATS_AHEAD: Final = 16
"""Beats that may come sooner than twice as often as agreed: they pile up while this end's loop is busy."""

ALWAYS_TOLD: Final = (Lost, Started, Condemn, AskAnswer, AskEnded, Listen, Authorize, Unauthorized, Quarantined)
"""Frames that must not be missed, and are few: once in a server's life, once for each of its questions, and rarely for
an access token or a file."""


def units(body_bytes: int) -> int:
    """What a frame with this much body costs."""
    return 1 + body_bytes // UNIT_BYTES


class Backlog(deque[tuple[Frame, bytes]]):
    """Frames of ours that wait for the peer's credit, in order."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0

    def has_room(self, frame: Frame, most: int) -> bool:
        """Whether `frame` may be put behind them if `most` may wait; see `ALWAYS_TOLD`. A change is told once."""
        if (len(self) < most and self._bytes <= MAX_WAITING_BYTES) or isinstance(frame, ALWAYS_TOLD):
            return True
        return isinstance(frame, ListChanged) and not any(other == frame for other, _ in self)

    def put(self, frame: Frame, body: bytes) -> None:
        """Put a frame behind them."""
        self.append((frame, body))
        self._bytes += len(body)

    def take(self) -> tuple[Frame, bytes]:
        """Take the next one out."""
        entry = self.popleft()
        self._bytes -= len(entry[1])
        return entry

    def withdraw(self, request_id: int) -> bool:
        """Forget a request that waits; False when none of this id does."""
        for index, (frame, body) in enumerate(self):
            if isinstance(frame, Request) and frame.request_id == request_id:
                del self[index]
                self._bytes -= len(body)
                return True
        return False


class TokenBucket:
    """What may be spent: `capacity` at once, `rate` a second in the long run; times never decrease."""

    def __init__(self, capacity: float, rate: float, now: float) -> None:
        self._capacity = self._left = capacity
        self._rate = rate
        self._at = now

    def take(self, cost: float, now: float) -> float:
        """Take `cost`, at most all that there can be; 0 when so much was there, else after how many seconds it is."""
        self._left = min(self._capacity, self._left + (now - self._at) * self._rate)
        self._at = now
        missing = min(cost, self._capacity) - self._left
        if missing > 0:
            return missing / self._rate
        self._left = -missing
        return 0.0


class BeatRate:
    """How often the peer sends heartbeats: they cost no credit, and a flood of them would keep this end busy."""

    def __init__(self, beat_s: float, now: float) -> None:
        self._beat_s = beat_s
        self._since = now
        self._beats = 0

    def allows(self, now: float) -> bool:
        """Book a beat; False when it is one too many for the time since the beginning."""
        self._beats += 1
        return self._beats <= BEATS_AHEAD + 2 * (now - self._since) / self._beat_s


class Deadlines(dict[int, float]):
    """Unanswered requests and their deadlines, also passed ones: a reply may be late."""

    def __init__(self) -> None:
        super().__init__()
        self.soonest = inf
        """No deadline passes before it, monotonic seconds; it may be early, since removing costs no search."""

    def add(self, request_id: int, at: float) -> None:
        """Begin to wait for a reply."""
        self[request_id] = at
        if at < self.soonest:
            self.soonest = at

    def remove(self, request_id: int) -> bool:
        """End the wait; False when there was none."""
        return self.pop(request_id, None) is not None

    def due(self, now: float) -> list[int]:
        """The requests whose deadline passes now, each told once, in the order in which they were added."""
        if now < self.soonest:
            return []
        due = [key for key, at in self.items() if at <= now]
        self.update(dict.fromkeys(due, inf))
        self.soonest = min(self.values(), default=inf)
        return due


MAX_PAUSE_S: Final = 300.0
"""For which a request's deadline is put off, all in all: as long as one question may wait for its answer."""


class Wait(msgspec.Struct):
    """A request on a link that has no reply yet.

    Attributes:
        at: when its deadline passes, monotonic seconds; infinite once it has passed.
        requester: takes the reply, if anybody does.
        is_given_up: whether its reply is swallowed.
        waited_s: how long the peer had waited for a processor when the reply was found late; None before.
        paused_at: since when the deadline is put off; None if it is not.
        paused_s: for how long it was put off before.
    """

    at: float
    requester: Requester | None = None
    is_given_up: bool = False
    waited_s: float | None = None
    paused_at: float | None = None
    paused_s: float = 0.0

    def pause(self, now: float) -> None:
        """Put the deadline off while a person is asked something, unless it has passed or was put off for too long."""
        left_s = MAX_PAUSE_S - self.paused_s
        if self.paused_at is None and self.at < inf and left_s > 0:
            self.paused_at = now
            self.at += left_s

    def resume(self, now: float) -> None:
        """Count again: what was not needed is taken back."""
        if self.paused_at is not None and self.at < inf:
            paused_s = min(MAX_PAUSE_S, self.paused_s + now - self.paused_at)
            self.at -= MAX_PAUSE_S - paused_s
            self.paused_s = paused_s
        self.paused_at = None
