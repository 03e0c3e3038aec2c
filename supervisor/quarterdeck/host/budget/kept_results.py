"""Keep what was cut of results, whole, for the clients whose they are, within bounds.  Pure.

A result is dropped with its client's session, at a maximum age, or when newer ones need its room.  Then the oldest
result of the principal that has most is dropped.
"""

from collections import Counter
from typing import Final

import msgspec

from quarterdeck.common.in_flight import who_of

SCHEME: Final = "quarterdeck://results/"
"""What the URIs of kept results begin with."""

MAX_RESULTS: Final = 32
"""Of one client."""

MAX_BYTES: Final = 32 * 1024 * 1024
"""Of one client's together; a larger one is not kept."""

MAX_ALL_BYTES: Final = 256 * 1024 * 1024
"""Of all clients' together."""

KEPT_S: Final = 3600.0
"""Of clients without sessions nobody says when they have left."""


class _Kept(msgspec.Struct, frozen=True):
    client: str
    body: bytes
    kept_at: float


class KeptResults:
    """See the module.

    Attributes:
        max_tokens: what a result may have before it is cut; None for anything.
        total_bytes: of all that is kept.
        is_timed: whether somebody will call `expire`.
    """

    def __init__(self, max_tokens: int | None = None) -> None:
        self.max_tokens = max_tokens
        self.total_bytes = 0
        self.is_timed = False
        self._kept: dict[str, _Kept] = {}
        """By URI, the oldest first."""

    def keep(self, client: str, uri: str, body: bytes, now: float) -> bool:
        """Keep a result for the client of this key; whether it is not too large for that.

        Args:
            client: its key.
            uri: another one for each result.
            body: what `resources/read` answers.
            now: monotonic seconds.
        """
        if len(body) > MAX_BYTES:
            return False
        self.expire(now)
        self._kept[uri] = _Kept(client, body, now)
        self.total_bytes += len(body)
        own = [each for each, kept in self._kept.items() if kept.client == client]
        own_bytes = sum(len(self._kept[each].body) for each in own)
        while len(own) > MAX_RESULTS or own_bytes > MAX_BYTES:
            own_bytes -= self._drop(own.pop(0))
        while self.total_bytes > MAX_ALL_BYTES:
            self._drop(self._oldest_of_most())
        return True

    def _oldest_of_most(self) -> str:
        """Return the oldest result of the principal with most bytes over all sessions, so that others keep theirs."""
        have: Counter[str] = Counter()
        for kept in self._kept.values():
            have[who_of(kept.client)] += len(kept.body)
        most = max(have, key=lambda who: have[who])
        return next(uri for uri, kept in self._kept.items() if who_of(kept.client) == most)

    def read(self, client: str, uri: str, now: float) -> bytes | None:
        """The result of this URI, for the client whose it is alone; None where it is gone, or never was."""
        self.expire(now)
        kept = self._kept.get(uri)
        return kept.body if kept is not None and kept.client == client else None

    def leave(self, client: str) -> None:
        """The client's session has ended."""
        for uri in [each for each, kept in self._kept.items() if kept.client == client]:
            self._drop(uri)

    def expire(self, now: float) -> None:
        """Keep nothing that is too old."""
        while self._kept and now - self._kept[uri := next(iter(self._kept))].kept_at > KEPT_S:
            self._drop(uri)

    def _drop(self, uri: str) -> int:
        size = len(self._kept.pop(uri).body)
        self.total_bytes -= size
        return size
