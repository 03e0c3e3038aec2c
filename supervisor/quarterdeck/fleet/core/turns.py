"""Decide whose call one server is given next, when clients ask more of it than it is given at a time.

Each client has a line of its own.  Its first call is given at once, whatever the others asked before: a flood in front
of a server is the flooding client's own line.  Beyond that, so many calls are given at a time, and places that become
free go to the clients that wait in turn, each client's calls in their order.

Source: M. Shreedhar and G. Varghese, "Efficient Fair Queuing Using Deficit Round Robin", with calls for packets.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final, Generic, NamedTuple, TypeVar

WIDTH: Final = 64
"""Calls that one server is given at a time: enough to keep it busy whatever the way there costs, and few enough that
what is given and cannot be taken back is soon over."""

MAX_WAITING: Final = 4096
"""Calls of one client that wait for one server: as many as a client on stdio may have under way at all."""

MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Of the arguments of those; a single call may have as many alone, the most that one line of a client has."""

KEPT_LINES: Final = 64
"""Clients that are remembered without any call: to forget one and know it again costs more than its turn."""


class Place(Enum):
    """What becomes of a call that is asked."""

    GIVEN = "given"
    """It is the server's now."""
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


class Turns(Generic[T]):
    """Calls of one server, those that it was given and those that wait.

    Whoever owns it says what is asked and what ended, carries out what is given, and asks `give` after each end.
    """

    def __init__(self, width: int = WIDTH) -> None:
        """Nothing is asked yet.

        Args:
            width: calls that are given at a time, beside the first of each client.
        """
        self._width = width
        self._given: dict[T, Hashable] = {}
        self._places: dict[T, Hashable] = {}
        self._lines: dict[Hashable, _Line[T]] = {}
        self._round: deque[Hashable] = deque()

    @property
    def given(self) -> int:
        """How many calls the server has."""
        return len(self._given)

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return len(self._places)

    def waiting_of(self, client: Hashable) -> int:
        """How many calls of this client wait."""
        line = self._lines.get(client)
        return len(line.waiting) if line is not None else 0

    def ask(self, client: Hashable, call: T, size_bytes: int = 0, until: float = inf) -> Place:
        """Where a new call of `client` goes; one that is refused is not known any more.

        Args:
            client: whose line it is.
            call: another than every one that is known.
            size_bytes: what it holds in memory while it waits.
            until: when `expire` gives it back, should it still wait: monotonic seconds.
        """
        line = self._lines.get(client)
        if line is None:
            line = self._lines[client] = _Line()
        # Behind its client's own calls; and, but for a client's only one, behind all others that wait.
        if not line.waiting and (not line.given or (not self._places and len(self._given) < self._width)):
            line.given += 1
            self._given[call] = client
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

    def end(self, call: T) -> None:
        """The call has ended, or was given up, wherever it is; harmless when it is not known."""
        if call in self._given:
            client = self._given.pop(call)
            line = self._lines[client]
            line.given -= 1
            if not line.given and not line.waiting and len(self._lines) > KEPT_LINES:
                del self._lines[client]
        elif call in self._places:
            self._take(call)

    def give(self) -> list[T]:
        """The calls that are the server's from now on, in this order."""
        given = [self._give_next(client) for client in tuple(self._round) if not self._lines[client].given]
        while self._round and len(self._given) < self._width:
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
        """When the next call will have waited for too long; `inf` without any.  Looks at each that waits."""
        return min((told.until for line in self._lines.values() for told in line.waiting.values()), default=inf)

    def _give_next(self, client: Hashable) -> T:
        line = self._lines[client]
        call = next(iter(line.waiting))
        line.given += 1
        self._given[call] = client
        self._take(call)
        if line.waiting:
            self._round.remove(client)
            self._round.append(client)
        return call

    def _take(self, call: T) -> None:
        """The call waits no more."""
        client = self._places.pop(call)
        line = self._lines[client]
        line.waiting_bytes -= line.waiting.pop(call).size_bytes
        if not line.waiting:
            self._round.remove(client)
            if not line.given and len(self._lines) > KEPT_LINES:
                del self._lines[client]
