"""Decide how much of each client may be open at a time, where many share one bound.  Pure.

A client's key begins with who was let in: a token, or a door.  Behind a slash stands one of its sessions, of which a
client can open many; so shares are of those who were let in, and only within these of their sessions.
"""

from collections import Counter
from collections.abc import Mapping, Sized
from typing import Final


def who_of(key: str) -> str:
    """Return who was let in, whichever of its sessions this key is of."""
    return key.partition("/")[0]


def client_with_most(have: Mapping[str, Sized]) -> str:
    """Return the client that has most, of whoever has most with all sessions; somebody has something."""
    together: Counter[str] = Counter()
    for client, own in have.items():
        together[who_of(client)] += len(own)
    return max(have, key=lambda client: (together[who_of(client)], len(have[client])))


class Shares:
    """What clients have of one thing, and their shares where that is more than all may have together.

    Beyond the bound of all, whoever has less than an equal share may have more, and so may a session that has less than
    an equal part of its token's share.  So a token that fills the bound, through however many sessions, shuts out
    nobody else.
    """

    def __init__(self, together: int) -> None:
        """Nobody has anything; all may have so much before shares count."""
        self.together: Final = together
        self.total = 0
        self._of: Counter[str] = Counter()
        self._of_who: Counter[str] = Counter()
        self._sessions: Counter[str] = Counter()

    def of(self, client: str) -> int:
        """Return how much one client has."""
        return self._of.get(client, 0)

    def of_who(self, who: str) -> int:
        """Return how much all sessions of one have."""
        return self._of_who.get(who, 0)

    def share_of(self, who: str) -> int:
        """Return how much one may have of what all may."""
        return self.together // (len(self._of_who) + (who not in self._of_who))

    def is_too_much(self, client: str, size: int) -> bool:
        """Return whether so much more is beyond the bound of all, and beyond the client's share of it."""
        return self.total + size > self.together and self.is_above_share(client, size)

    def is_above_share(self, client: str, size: int) -> bool:
        """Return whether so much more is beyond a client's share, however much others have."""
        who, mine = who_of(client), self.of(client)
        share = self.share_of(who)
        own_share = share // (self._sessions.get(who, 0) + (not mine))
        return self.of_who(who) + size > share and mine + size > own_share

    def most(self) -> str:
        """Return who has most; there is somebody."""
        return max(self._of_who, key=lambda who: self._of_who[who])

    def add(self, client: str, size: int = 1) -> None:
        """Give a client so much more."""
        who = who_of(client)
        self._sessions[who] += client not in self._of
        self._of[client] += size
        self._of_who[who] += size
        self.total += size

    def remove(self, client: str, size: int = 1) -> None:
        """Take so much from a client that has it."""
        who = who_of(client)
        self.total -= size
        self._of_who[who] -= size
        self._of[client] -= size
        if not self._of[client]:
            del self._of[client]
            self._sessions[who] -= 1
        if not self._of_who[who]:
            del self._of_who[who], self._sessions[who]


class InFlight:
    """What is under way, counted by client: each has a bound of its own, and a share of that of all."""

    def __init__(self, each: int, together: int, words: str = "under way") -> None:
        """Nothing is under way.

        Args:
            each: of one session, or of a token without any.
            together: of all, before shares count.
            words: what a refusal says of it.
        """
        self._each = each
        self._words = words
        self._shares: Final = Shares(together)

    @property
    def together(self) -> int:
        """How many may be under way before shares count."""
        return self._shares.together

    @property
    def total(self) -> int:
        """How many are under way."""
        return self._shares.total

    def begin(self, client: str) -> str:
        """Count one more of `client`; return which bound refuses it, empty when it was counted."""
        if self.of(client) >= self._each:
            return f"{self._each:,} of this client are {self._words}"
        if self._shares.is_too_much(client, 1):
            own = self._shares.of_who(who_of(client))
            return f"{self.total:,} of all clients are {self._words}, {own:,} of them with this token"
        self._shares.add(client)
        return ""

    def end(self, client: str) -> None:
        """Count one less of `client`; to be said once for each that was counted."""
        self._shares.remove(client)

    def of(self, client: str) -> int:
        """Return how many of `client` are under way."""
        return self._shares.of(client)
