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


MAX_CLIENTS: Final = 4096
"""Clients that are known to have called: those without a session may come under ever new keys."""


class Place(Enum):
    """The outcome of asking for a call."""

    GIVEN = "given"
    """The server has the call now."""
    WAITS = "waits"
    TOO_MANY = "too many"
    """Refused: its client has too many calls waiting."""
    TOO_LARGE = "too large"
    """Refused: the calls of its client that wait are too large."""


GIVEN: Final = Place.GIVEN
"""Read for each call, as members of other enums are: one by its name takes ten times as long (Python 3.11)."""


class _Waiting(NamedTuple):
    size_bytes: int
    until: float


T = TypeVar("T", bound=Hashable)
"""A call, as its owner knows it; told apart by `==`."""


@dataclass(slots=True, eq=False)
class _Line(Generic[T]):
    """One client's calls: how many the server has, and those that wait, the oldest first."""

    client: Hashable
    given: int = 0
    waiting: dict[T, _Waiting] = field(default_factory=dict)
    waiting_bytes: int = 0


class Turns(Generic[T]):
    """One server's calls, running and queued. The owner reports what is asked and ended, carries out what is given, and
    asks `give` after each end.

    A given call cannot be taken back. A server that works on many calls at once is given many. One that works on one at
    a time queues them without regard to clients: while it has several clients, it is given few.
    """

    def __init__(self, width: int = WIDTH) -> None:
        self._most = width
        self._given: dict[T, _Line[T]] = {}
        self._places: dict[T, _Line[T]] = {}
        self._lines: dict[Hashable, _Line[T]] = {}
        self._clients: dict[Hashable, None] = {}
        self._round: deque[_Line[T]] = deque()
        # How the server answers.
        self._in_turn = 0
        self._gap_s = 0.0
        self._answered_at: float | None = None
        # Who calls it.
        self._last_client: Hashable = None
        self._shared_for = 0

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

    @property
    def clients(self) -> tuple[Hashable, ...]:
        """The clients that have asked for a call, and were not forgotten since."""
        return tuple(self._clients)

    def forget_client(self, client: Hashable) -> None:
        """Count a client among `clients` only once it asks again; one with calls in progress is not forgotten."""
        line = self._lines.get(client)
        if line is None or not (line.given or line.waiting):
            self._clients.pop(client, None)
            self._lines.pop(client, None)

    def forget_clients(self) -> None:
        """Forget all clients without calls in progress: the server has nothing of theirs any longer."""
        for client in tuple(self._clients):
            self.forget_client(client)

    @property
    def width(self) -> int:
        """How many calls at a time, besides the first of each client."""
        if not self._shared_for or self._in_turn < IN_TURN or self._gap_s * self._most <= SOON_S:
            return self._most
        return max(1, int(SOON_S / self._gap_s))

    def ask(self, client: Hashable, call: T, size_bytes: int = 0, until: float = inf) -> Place:
        """Run, queue or refuse a new call, unique among the known ones, in the line of `client`; a refused call is not
        tracked. While it waits it counts `size_bytes`, until `expire` gives it back at `until` (monotonic seconds).
        """
        line = self._lines.get(client)
        if line is None:
            line = self._lines[client] = _Line(client)
            self._clients[client] = None
            if len(self._clients) > MAX_CLIENTS:
                del self._clients[next(iter(self._clients))]
        if line.waiting:
            if len(line.waiting) >= MAX_WAITING:
                return Place.TOO_MANY
            if line.waiting_bytes + size_bytes > MAX_WAITING_BYTES:
                return Place.TOO_LARGE
        # But for a client's only one, it goes behind all others that wait.
        elif not line.given or (not self._places and len(self._given) < self.width):
            self._give_to(line, call)
            return GIVEN
        else:
            self._round.append(line)
        line.waiting[call] = _Waiting(size_bytes, until)
        line.waiting_bytes += size_bytes
        self._places[call] = line
        return Place.WAITS

    def end(self, call: T, answered_at: float | None = None) -> None:
        """End a call, wherever it is; harmless for an unknown one. `answered_at` is when the server gave its result, in
        monotonic seconds; None for any other end.
        """
        given = self._given
        line = given.get(call)
        if line is None:
            if call in self._places:
                self._take(call)
            return
        is_oldest = next(iter(given)) == call
        del given[call]
        line.given -= 1
        if answered_at is not None:
            if not is_oldest:
                self._in_turn = 0
            elif given:
                self._in_turn += 1
            if self._answered_at is not None:
                self._gap_s += (answered_at - self._answered_at - self._gap_s) * _GAP_WEIGHT
            self._answered_at = answered_at if given else None
        if not line.given and not line.waiting and len(self._lines) > KEPT_LINES:
            del self._lines[line.client]

    def give(self) -> list[T]:
        """The calls that are the server's from now on, in this order."""
        given = [self._give_next(line) for line in tuple(self._round) if not line.given]
        while self._round and len(self._given) < self.width:
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

    def _give_to(self, line: _Line[T], call: T) -> None:
        line.given += 1
        self._given[call] = line
        if line.client != self._last_client:
            if self._last_client is not None:
                self._shared_for = SHARED_FOR + 1
            self._last_client = line.client
        elif self._shared_for:
            self._shared_for -= 1

    def _give_next(self, line: _Line[T]) -> T:
        call = next(iter(line.waiting))
        self._give_to(line, call)
        self._take(call)
        if line.waiting:
            self._round.remove(line)
            self._round.append(line)
        return call

    def _take(self, call: T) -> None:
        line = self._places.pop(call)
        line.waiting_bytes -= line.waiting.pop(call).size_bytes
        if not line.waiting:
            self._round.remove(line)
            if not line.given and len(self._lines) > KEPT_LINES:
                del self._lines[line.client]
