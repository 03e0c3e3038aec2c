"""Who subscribes to which resources of one server, and the log level that each client wants. Pure.

Clients are told apart by their keys, and a client's parts (its streams of notifications) by their names: each has its
own subscriptions, bounded for all parts of a client together. It outlives the server's restarts.
"""

from collections import Counter
from typing import Final

from quarterdeck.common.in_flight import Shares, who_of
from quarterdeck_protocol.offers import LEVELS
from quarterdeck_protocol.tools import Client

MAX_URIS: Final = 1_000
"""Maximum subscribed resources of one server at a time, before shares count."""

MAX_URIS_EACH: Final = 200
"""Subscriptions of one client, with all its parts."""

MAX_LEVELS: Final = 4_096
"""Clients whose level is known."""

_Part = tuple[str, str]
"""A client's key and its part."""


class Subscriptions:
    """The subscriptions and log levels of one server's clients."""

    def __init__(self) -> None:
        self._holders: dict[str, dict[str, None]] = {}
        self._of: dict[_Part, dict[str, None]] = {}
        self._counts: dict[str, Counter[str]] = {}
        self._levels: dict[str, int] = {}
        self._shares: Final = Shares(MAX_URIS)

    @property
    def uris(self) -> tuple[str, ...]:
        """All subscribed resources."""
        return tuple(self._holders)

    def add(self, client: Client, uri: str) -> str:
        """Book a client's wish, which may be repeated; why not, where there are too many, else empty."""
        part = client.key, client.part
        if uri in self._of.get(part, {}):
            return ""
        counts = self._counts.get(client.key, Counter())
        if uri not in counts and len(counts) >= MAX_URIS_EACH:
            return f"this client has subscribed {MAX_URIS_EACH} resources of the server already"
        is_full = uri not in self._holders and len(self._holders) >= MAX_URIS
        if is_full and self._shares.is_above_share(who_of(client.key), 1):
            return f"{MAX_URIS:,} resources of the server are subscribed already"
        self._of.setdefault(part, {})[uri] = None
        if uri not in counts:
            self._shares.add(who_of(client.key))
        self._counts.setdefault(client.key, counts)[uri] += 1
        self._holders.setdefault(uri, {})[client.address] = None
        return ""

    def remove(self, client: Client, uri: str) -> bool:
        """End a subscription. Return whether no other client has it."""
        part = client.key, client.part
        own = self._of.get(part)
        if own is None or uri not in own:
            return False
        del own[uri]
        if not own:
            del self._of[part]
        counts = self._counts[client.key]
        counts[uri] -= 1
        if not counts[uri]:
            del counts[uri]
            self._shares.remove(who_of(client.key))
        if not counts:
            del self._counts[client.key]
        holders = self._holders[uri]
        del holders[client.address]
        if not holders:
            del self._holders[uri]
        return not holders

    def leave(self, client: Client) -> list[str]:
        """End all subscriptions of a client, or of this part of it. Return the resources that no other client wants. A
        log level belongs to the whole client.
        """
        if not client.part:
            self._levels.pop(client.key, None)
        return [uri for uri in tuple(self._of.get((client.key, client.part), ())) if self.remove(client, uri)]

    def holders_of(self, uri: str) -> frozenset[str]:
        """Return the addresses of clients that subscribed to this resource, or to one above it."""
        found = set(self._holders.get(uri, ()))
        for above, holders in self._holders.items():
            if len(above) < len(uri) and uri.startswith(above) and (above.endswith("/") or uri[len(above)] in "/?#"):
                found.update(holders)
        return frozenset(found)

    def set_level(self, client: Client, level: str) -> None:
        """Book a client's level."""
        if level in LEVELS and (client.key in self._levels or len(self._levels) < MAX_LEVELS):
            self._levels[client.key] = LEVELS.index(level)

    @property
    def level(self) -> str:
        """The lowest level that a client wants; empty if none was chosen."""
        return LEVELS[min(self._levels.values())] if self._levels else ""
