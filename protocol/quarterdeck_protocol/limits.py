"""What may be sent, spent and waited for: credit, rates, heartbeats and deadlines, as one end books them.  Pure.

On a link, handshake, beats and credit itself cost nothing; every other frame costs `units`.  An end with any credit
left may send one frame of any size, and owes the rest: so a body larger than the window passes, alone.
"""

from collections import deque
from math import inf
from typing import Final

from .link.frame_bytes import WireError, WireLimits, encode
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


class Outbox:
    """Messages to send (`ready`, in order), and the frames behind them that wait for the peer's credit."""

    def __init__(self, window_units: int, limits: WireLimits) -> None:
        self._window = self._credit = window_units
        self._limits = limits
        self.ready: list[list[bytes]] = []
        self._waiting: deque[tuple[Frame, bytes]] = deque()
        self._waiting_bytes = 0

    def has_room(self, frame: Frame, most: int) -> bool:
        """Whether `frame` may be sent if `most` frames may wait; see `ALWAYS_TOLD`. A change is told once."""
        if (len(self._waiting) < most and self._waiting_bytes <= MAX_WAITING_BYTES) or isinstance(frame, ALWAYS_TOLD):
            return True
        return isinstance(frame, ListChanged) and not any(other == frame for other, _ in self._waiting)

    def put(self, frame: Frame) -> None:
        """Send what costs nothing, ahead of what waits."""
        self.ready.append(encode(frame, b"", self._limits))

    def send(self, frame: Frame, body: bytes) -> bool:
        """Send in order, or wait; False when no message can carry it."""
        try:
            parts = encode(frame, body, self._limits)
        except WireError:
            return False
        if self._waiting or self._credit <= 0:
            self._waiting.append((frame, body))
            self._waiting_bytes += len(body)
        else:
            self._credit -= 1 + len(body) // UNIT_BYTES
            self.ready.append(parts)
        return True

    def earn(self, amount: int) -> bool:
        """Add the peer's credit; False when it gives more than was used."""
        if amount <= 0 or self._credit + amount > self._window:
            return False
        self._credit += amount
        return True

    def pop(self) -> tuple[Frame, bytes] | None:
        """The next frame that credit lets go, for `resend`; None when there is none."""
        if not self._waiting or self._credit <= 0:
            return None
        return self._take_out(0)

    def resend(self, frame: Frame, body: bytes) -> None:
        """Send a popped frame, now ahead of what waits."""
        self._credit -= units(len(body))
        self.ready.append(encode(frame, body, self._limits))

    def withdraw(self, request_id: int) -> bool:
        """Forget a request that waits; False when none of this id does."""
        for index, (frame, _) in enumerate(self._waiting):
            if isinstance(frame, Request) and frame.request_id == request_id:
                self._take_out(index)
                return True
        return False

    def take(self) -> list[list[bytes]]:
        """The messages to send, in order."""
        ready, self.ready = self.ready, []
        return ready

    def _take_out(self, index: int) -> tuple[Frame, bytes]:
        entry = self._waiting[index]
        del self._waiting[index]
        self._waiting_bytes -= len(entry[1])
        return entry


class PeerCredit:
    """What the peer may still send, and the credit owed to it; `is_due` says that it is worth a message."""

    def __init__(self, window_units: int) -> None:
        self._window = self._granted = window_units
        self._owed = 0
        self.is_due = False

    def charge(self, cost: int) -> bool:
        """Book a frame of the peer's; False when it had no credit left."""
        if self._granted <= 0:
            return False
        self._granted -= cost
        self._owed += cost
        self.is_due = self._owed * 2 >= self._window
        return True

    def refund(self) -> int:
        """The credit to send back now, 0 while it is not due."""
        if not self.is_due:
            return 0
        self._granted += self._owed
        owed, self._owed, self.is_due = self._owed, 0, False
        return owed


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
    """Unanswered requests and their deadlines, also passed ones: a reply may be late. A dictionary, because all frames
    ask it.
    """

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


class Pause:
    """Puts deadlines off while a person is asked something, for `MAX_PAUSE_S` of each request at most."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        self._spent: dict[int, float] = {}

    def begin(self, deadlines: Deadlines, now: float) -> None:
        """Put off all that have not passed; those that are already stay as they are."""
        for key, at in deadlines.items():
            left_s = MAX_PAUSE_S - self._spent.get(key, 0.0)
            if key not in self._since and at < inf and left_s > 0:
                self._since[key] = now
                deadlines[key] = at + left_s

    def end(self, deadlines: Deadlines, now: float) -> None:
        """Count again: what was not needed is taken back."""
        for key, since in self._since.items():
            if (at := deadlines.get(key, inf)) < inf:
                before_s = self._spent.get(key, 0.0)
                spent_s = min(MAX_PAUSE_S, before_s + now - since)
                self._spent[key] = spent_s
                deadlines.add(key, at - (MAX_PAUSE_S - spent_s))
        self._since.clear()
        self._spent = {key: spent_s for key, spent_s in self._spent.items() if key in deadlines}
