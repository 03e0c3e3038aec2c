"""How much each client asks, for people to see: its rate, and how often it met a bound."""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quarterdeck_protocol.tools import Client

RATE_S: Final = 60

MAX_CLIENTS: Final = 1024
"""Of which is known what they ask; one more takes the place of the one that asked longest ago."""


class RecentRate:
    """How many there were within the last minute, to the second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts = [0] * RATE_S
        self._second = int(clock())

    def count(self) -> None:
        """One more."""
        if (now := int(self._clock())) != self._second:
            self._turn(now)
        self._counts[now % RATE_S] += 1

    def last_minute(self) -> int:
        """How many."""
        self._turn(int(self._clock()))
        return sum(self._counts)

    def _turn(self, now: int) -> None:
        for second in range(self._second + 1, min(now, self._second + RATE_S) + 1):
            self._counts[second % RATE_S] = 0
        self._second = now


@dataclass(slots=True)
class ClientUse:
    """What one client asked; `refused` are its requests that met a bound."""

    rate: RecentRate = field(default_factory=RecentRate)
    refused: int = 0


class ClientUses:
    """What each client of a listener asked, by the client's key."""

    def __init__(self) -> None:
        self._uses: OrderedDict[str, ClientUse] = OrderedDict()
        self._refusals: Counter[tuple[str, str]] = Counter()

    def count(self, client: str) -> None:
        """One more request of this client, served or refused."""
        if (use := self._uses.get(client)) is None:
            if len(self._uses) >= MAX_CLIENTS:
                self._uses.popitem(last=False)
            use = self._uses[client] = ClientUse()
        else:
            self._uses.move_to_end(client)
        use.rate.count()

    def refused(self, client: "Client", limit: str) -> None:
        """Count the refusal of a request that was already counted, by this limit."""
        if (use := self._uses.get(client.key)) is not None:
            use.refused += 1
        known = limit, client.name
        if known in self._refusals or len(self._refusals) < MAX_CLIENTS:
            self._refusals[known] += 1

    @property
    def refusals(self) -> dict[str, int]:
        """The number of refusals of each limit, as `LIMIT (token NAME)`, most frequent first."""
        return {
            f"{limit} (token {name})" if name else limit: count for (limit, name), count in self._refusals.most_common()
        }

    def of(self, client: str) -> tuple[int, int]:
        """Its requests of the last minute, and how many were refused since it came."""
        use = self._uses.get(client)
        return (use.rate.last_minute(), use.refused) if use is not None else (0, 0)
