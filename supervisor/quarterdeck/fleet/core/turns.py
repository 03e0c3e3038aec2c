"""Decide whose call a server is given next, when clients ask more of it than it is given at a time.

Each client has a line of its own. Its first call is given at once, whatever the others asked before, so that a flood
delays only the flooding client. Beyond that, the server's pace limits the number of calls; free places go to the
waiting clients in turn, each client's calls in order.

Source: M. Shreedhar and G. Varghese, "Efficient Fair Queuing Using Deficit Round Robin", with calls for packets.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final, Generic, NamedTuple, TypeVar

WIDTH: Final = 64
"""Calls that one server is given at a time: enough to keep it busy, and few enough that given calls are soon over."""

IN_TURN: Final = 16
"""Answers in the order of their calls, while others were in progress, after which a server counts as one that works on
one call at a time; otherwise it would answer some before older ones.
"""

SHARED_FOR: Final = 1024
"""Calls that are given after one client's followed another's before the server counts as one client's own again."""

SOON_S: Final = 0.01
"""Seconds of work that a server of one call at a time is given beyond that, while it has several clients; no call that
takes longer. The next client waits behind it.
"""

_GAP_WEIGHT: Final = 1 / 8
"""Weight of the last time between two answers in their mean."""

MAX_WAITING: Final = 4096
"""Waiting calls of one client for one server: as many as a client on stdio may have in progress at all."""

MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Bytes of their arguments; a single call may have as many, the most that one line of a client holds."""

KEPT_LINES: Final = 64
"""Clients that are remembered without any call: to forget one and know it again costs more than its turn."""


class Place(Enum):
    """The outcome of asking for a call."""

    GIVEN = "given"
    """The server has the call now."""
    WAITS = "waits"
    TOO_MANY = "too many"
    """Refused: its client has too many calls waiting."""
    TOO_LARGE = "too large"
    """Refused: the calls of its client that wait are too large."""


class _Waiting(NamedTuple):
    size_bytes: int
    until: float


T = TypeVar("T", bound=Hashable)
"""A call, as its owner knows it; told apart by `==`."""


@dataclass(slots=True)
class _Line(Generic[T]):
    """One client's calls: how many the server has, and those that wait, the oldest first."""

    given: int = 0
    waiting: dict[T, _Waiting] = field(default_factory=dict)
    waiting_bytes: int = 0


class Pace:
    """How a server answers, and how many calls it should be given at a time.

    A given call cannot be taken back. A server that works on many calls at once is given many. One that works on one at
    a time queues them without regard to clients: while it has several clients, it is given few.
    """

    def __init__(self, width: int) -> None:
        self._most = width
        self._in_turn = 0
        self._gap_s = 0.0
        self._answered_at: float | None = None
        self._client: Hashable = None
        self._given = 0
        self._shared_until = 0

    def gave(self, client: Hashable) -> None:
        """The server was given a call of this client."""
        self._given += 1
        if client != self._client:
            if self._given > 1:
                self._shared_until = self._given + SHARED_FOR
            self._client = client

    def answered(self, now: float, *, is_oldest: bool, is_busy: bool) -> None:
        """Note an answer at `now` (monotonic seconds): whether to the oldest call, and whether calls are left."""
        if not is_oldest:
            self._in_turn = 0
        elif is_busy:
            self._in_turn += 1
        if self._answered_at is not None:
            self._gap_s += (now - self._answered_at - self._gap_s) * _GAP_WEIGHT
        self._answered_at = now if is_busy else None

    @property
    def width(self) -> int:
        """How many calls at a time, besides the first of each client."""
        if self._in_turn < IN_TURN or self._given > self._shared_until or self._gap_s * self._most <= SOON_S:
            return self._most
        return max(1, int(SOON_S / self._gap_s))


class Turns(Generic[T]):
    """One server's calls, running and queued. The owner reports what is asked and ended, carries out what is given, and
    asks `give` after each end.
    """

    def __init__(self, width: int = WIDTH) -> None:
        self._pace = Pace(width)
        self._given: dict[T, Hashable] = {}
        self._places: dict[T, Hashable] = {}
        self._lines: dict[Hashable, _Line[T]] = {}
        self._round: deque[Hashable] = deque()

    @property
    def given(self) -> int:
        """The number of calls that the server has."""
        return len(self._given)

    @property
    def waiting(self) -> int:
        """The number of calls that wait."""
        return len(self._places)

    def waiting_of(self, client: Hashable) -> int:
        """Return the number of this client's waiting calls."""
        return len(line.waiting) if (line := self._lines.get(client)) is not None else 0

    def ask(self, client: Hashable, call: T, size_bytes: int = 0, until: float = inf) -> Place:
        """Run, queue or refuse a new call, unique among the known ones, in the line of `client`; a refused call is not
        tracked. While it waits it counts `size_bytes`, until `expire` gives it back at `until` (monotonic seconds).
        """
        line = self._lines.get(client)
        if line is None:
            line = self._lines[client] = _Line()
        if not line.waiting and self._has_room_for(line):
            line.given += 1
            self._given[call] = client
            self._pace.gave(client)
            return Place.GIVEN
        if len(line.waiting) >= MAX_WAITING:
            return Place.TOO_MANY
        if line.waiting and line.waiting_bytes + size_bytes > MAX_WAITING_BYTES:
            return Place.TOO_LARGE
        if not line.waiting:
            self._round.append(client)
        line.waiting[call] = _Waiting(size_bytes, until)
        line.waiting_bytes += size_bytes
        self._places[call] = client
        return Place.WAITS

    def end(self, call: T, answered_at: float | None = None) -> None:
        """End a call, wherever it is; harmless for an unknown one. `answered_at` is when the server gave its result, in
        monotonic seconds; None for any other end.
        """
        if call in self._given:
            is_oldest = next(iter(self._given)) == call
            client = self._given.pop(call)
            if answered_at is not None:
                self._pace.answered(answered_at, is_oldest=is_oldest, is_busy=bool(self._given))
            line = self._lines[client]
            line.given -= 1
            if not line.given and not line.waiting and len(self._lines) > KEPT_LINES:
                del self._lines[client]
        elif call in self._places:
            self._take(call)

    def give(self) -> list[T]:
        """The calls that are the server's from now on, in this order."""
        given = [self._give_next(client) for client in tuple(self._round) if not self._lines[client].given]
        while self._round and len(self._given) < self._pace.width:
            given.append(self._give_next(self._round[0]))
        return given

    def expire(self, now: float) -> list[T]:
        """The calls that have waited for too long; they are not known any more."""
        late = [call for line in self._lines.values() for call, told in line.waiting.items() if told.until <= now]
        for call in late:
            self._take(call)
        return late

    @property
    def expires_at(self) -> float:
        """When the next call will have waited for too long; `inf` if none waits. Looks at each waiting call."""
        return min((told.until for line in self._lines.values() for told in line.waiting.values()), default=inf)

    def _has_room_for(self, line: _Line[T]) -> bool:
        # But for a client's only one, it goes behind all others that wait.
        return not line.given or (not self._places and len(self._given) < self._pace.width)

    def _give_next(self, client: Hashable) -> T:
        line = self._lines[client]
        call = next(iter(line.waiting))
        line.given += 1
        self._given[call] = client
        self._pace.gave(client)
        self._take(call)
        if line.waiting:
            self._round.remove(client)
            self._round.append(client)
        return call

    def _take(self, call: T) -> None:
        client = self._places.pop(call)
        line = self._lines[client]
        line.waiting_bytes -= line.waiting.pop(call).size_bytes
        if not line.waiting:
            self._round.remove(client)
            if not line.given and len(self._lines) > KEPT_LINES:
                del self._lines[client]
