"""Clients that come without sessions: who was here lately."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Final

from quarterdeck_protocol.mcp.server.requests import ClientInfo
from quarterdeck_protocol.tools import Client

GUEST_S: Final = 60.0
"""How long one counts as being there after its last request."""

MAX_GUESTS: Final = 256
"""One more takes the place of the one that came first."""


@dataclass(slots=True)
class Guest:
    """A client without sessions; `seen_at` is monotonic."""

    client: Client
    info: ClientInfo | None
    since: datetime
    seen_at: float = 0.0


class Guests:
    """See the module."""

    def __init__(self) -> None:
        self._guests: dict[str, Guest] = {}

    def meet(self, client: Client, info: ClientInfo | None) -> None:
        """This client, which says this of itself, asks something."""
        guest = self._guests.get(client.key)
        if guest is None:
            if len(self._guests) >= MAX_GUESTS:
                del self._guests[next(iter(self._guests))]
            guest = self._guests[client.key] = Guest(client, info, datetime.now(UTC))
        guest.seen_at = monotonic()

    def present(self, calls_of: Callable[[str], int]) -> Iterator[Guest]:
        """Those that were here within `GUEST_S`, or have calls under way."""
        until = monotonic() - GUEST_S
        for key, guest in tuple(self._guests.items()):
            if guest.seen_at < until and not calls_of(key):
                del self._guests[key]
            else:
                yield guest
