"""Decide how much of each client may be under way at a time, where many share one bound.  Pure."""

from collections import Counter
from typing import Final


class InFlight:
    """What is under way, counted by client; `total` of all, `together` at most before shares count.

    A client has a bound of its own.  All together have one, too: at that, whoever has less than an equal share is
    still let in, so that clients that fill it shut nobody out but themselves.
    """

    def __init__(self, each: int, together: int) -> None:
        """Nothing is under way; so much may be of each client, and of all before shares count."""
        self._each = each
        self.together: Final = together
        self._counts: Counter[str] = Counter()
        self.total = 0

    def begin(self, client: str) -> str:
        """One more of `client`; empty when it was counted, else which bound it met."""
        mine = self._counts.get(client, 0)
        if mine >= self._each:
            return f"{self._each:,} of this client are under way"
        if self.total >= self.together and mine >= self.together // (len(self._counts) + (not mine)):
            return f"{self.total:,} of all clients are under way"
        self._counts[client] = mine + 1
        self.total += 1
        return ""

    def end(self, client: str) -> None:
        """One less of `client`; to be said once for each that was counted."""
        self.total -= 1
        self._counts[client] -= 1
        if not self._counts[client]:
            del self._counts[client]

    def of(self, client: str) -> int:
        """How many of `client` are under way."""
        return self._counts.get(client, 0)
