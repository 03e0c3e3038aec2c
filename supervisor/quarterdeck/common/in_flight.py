"""Decide how much each client may have open at a time, where many clients share one bound. Pure.

A client's key begins with its principal: a token or a door. A slash and one of its sessions may follow. A principal can
open many sessions, so principals share the bound, and each one's sessions share its part.
"""

from collections import Counter
from collections.abc import Mapping, Sized
from typing import Final


def who_of(key: str) -> str:
    """Return the principal of a key: the key without its session."""
    return key.partition("/")[0]


def client_with_most(have: Mapping[str, Sized]) -> str:
    """Return the largest client of the principal that has most, over all its sessions; one must have something."""
    together: Counter[str] = Counter()
    for client, own in have.items():
        together[who_of(client)] += len(own)
    return max(have, key=lambda client: (together[who_of(client)], len(have[client])))


class Shares:
    """The amounts of one thing that clients have, and their shares of the common bound.

    Beyond the common bound, a principal with less than an equal share may still have more; so may a session with less
    than an equal part of its token's share. So a token that fills the bound, through any number of sessions, shuts out
    no other.

    Attributes:
        together: the common bound.
        total: the amount of all clients.
    """

    def __init__(self, together: int) -> None:
        self.together: Final = together
        self.total = 0
        self._of: dict[str, dict[str, int]] = {}
        """By principal, then by client; who has nothing is not there."""

    def of(self, client: str) -> int:
        """Return the amount of one client."""
        own = self._of.get(who_of(client))
        return own.get(client, 0) if own is not None else 0

    def of_who(self, who: str) -> int:
        """Return the amount of one principal, over all its sessions."""
        return sum(self._of.get(who, {}).values())

    def share_of(self, who: str) -> int:
        """Return one principal's share of the common bound."""
        return self.together // (len(self._of) + (who not in self._of))

    def is_too_much(self, client: str, size: int) -> bool:
        """Return whether `size` more exceeds both the common bound and the client's share."""
        return self.total + size > self.together and self.is_above_share(client, size)

    def is_above_share(self, client: str, size: int) -> bool:
        """Return whether `size` more exceeds a client's share, regardless of other clients."""
        who, mine = who_of(client), self.of(client)
        share = self.share_of(who)
        own_share = share // (len(self._of.get(who, ())) + (not mine))
        return self.of_who(who) + size > share and mine + size > own_share

    def most(self) -> str:
        """Return the principal that has most; at least one must have something."""
        return max(self._of, key=self.of_who)

    def add(self, client: str, size: int = 1) -> int:
        """Add an amount to a client. Return what it has then."""
        who = who_of(client)
        if (own := self._of.get(who)) is None:
            own = self._of[who] = {}
        mine = own[client] = own.get(client, 0) + size
        self.total += size
        return mine

    def remove(self, client: str, size: int = 1) -> None:
        """Subtract an amount from a client that has it."""
        who = who_of(client)
        own = self._of[who]
        own[client] -= size
        self.total -= size
        if not own[client]:
            del own[client]
            if not own:
                del self._of[who]


class InFlight(Shares):
    """The number of requests in progress by client, with a bound for each client and shares of a common bound."""

    def __init__(self, each: int, together: int, words: str = "under way") -> None:
        """Begin with no requests; at most `each` for one session or a token without sessions, and `together` for all
        clients before shares count. `words` name these requests in a refusal.
        """
        super().__init__(together)
        self._each = each
        self._words = words

    def begin(self, client: str) -> str:
        """Count one more request of `client`. Return the bound that refuses it; empty if counted."""
        if self.add(client) > self._each:
            self.remove(client)
            return f"{self._each:,} of this client are {self._words}"
        if self.total > self.together and self.is_above_share(client, 0):
            self.remove(client)
            own = self.of_who(who_of(client))
            return f"{self.total:,} of all clients are {self._words}, {own:,} of them with this token"
        return ""

    def end(self, client: str) -> None:
        """Count one request of `client` less; call it once for each counted request."""
        self.remove(client)
