"""Decide how many bytes may be held for each client, where many share one bound.  Pure.

What is held are large requests under way, and large answers that are not read.  `InFlight` bounds how many there are.
"""

from collections import Counter
from typing import Final

UNCOUNTED_BYTES: Final = 64 * 1024
"""What is no larger is not counted: as much as a connection takes before its writer has to wait."""


class HeldBytes:
    """What is held, by client.

    A client has a bound of its own; one thing alone may be larger.  All together have one, too: at that, whoever holds
    less than an equal share is still let in, so that clients that fill it shut nobody out but themselves.
    """

    def __init__(self, each: int, together: int) -> None:
        """Nothing is held; so much may be of each client, and of all before shares count."""
        self._each = each
        self.together: Final = together
        self._counts: Counter[str] = Counter()
        self.total = 0

    def begin(self, client: str, size: int) -> str:
        """Hold so much more of `client`; empty when it is counted, else which bound it met."""
        if size <= UNCOUNTED_BYTES:
            return ""
        mine = self._counts.get(client, 0)
        if mine and mine + size > self._each:
            return f"{mine:,} bytes of this client are held, of {self._each:,}"
        if self.total + size > self.together and mine + size > self.together // (len(self._counts) + (not mine)):
            return f"{self.total:,} bytes of all clients are held, of {self.together:,}"
        self._counts[client] = mine + size
        self.total += size
        return ""

    def end(self, client: str, size: int) -> None:
        """Hold so much less of `client`; to be said once for what was counted."""
        if size <= UNCOUNTED_BYTES:
            return
        self.total -= size
        self._counts[client] -= size
        if not self._counts[client]:
            del self._counts[client]
