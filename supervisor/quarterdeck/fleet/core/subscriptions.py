"""Who wants to hear of which resources of one server, and from which level on of its log.  Pure.

Clients are told apart by their keys.  It outlives the server's restarts: what is wanted is asked for again.
"""

from typing import Final

from quarterdeck_protocol.offers import LEVELS

MAX_URIS: Final = 1_000
"""Resources of one server that are subscribed at a time."""

MAX_URIS_EACH: Final = 200
"""By one client."""

MAX_LEVELS: Final = 4_096
"""Clients whose level is known."""


class Subscriptions:
    """See the module."""

    def __init__(self) -> None:
        """Nobody wants anything."""
        self._holders: dict[str, dict[str, None]] = {}
        self._of: dict[str, dict[str, None]] = {}
        self._levels: dict[str, int] = {}

    @property
    def uris(self) -> tuple[str, ...]:
        """What somebody wants to hear of."""
        return tuple(self._holders)

    def add(self, client: str, uri: str) -> str:
        """Book a client's wish, which may be repeated; why not, where there are too many, else empty."""
        own = self._of.get(client, {})
        if uri in own:
            return ""
        if len(own) >= MAX_URIS_EACH:
            return f"this client has subscribed {MAX_URIS_EACH} resources of the server already"
        if uri not in self._holders and len(self._holders) >= MAX_URIS:
            return f"{MAX_URIS:,} resources of the server are subscribed already"
        self._of.setdefault(client, {})[uri] = None
        self._holders.setdefault(uri, {})[client] = None
        return ""

    def remove(self, client: str, uri: str) -> bool:
        """End a wish; whether nobody else has it."""
        own = self._of.get(client)
        if own is None or uri not in own:
            return False
        del own[uri]
        if not own:
            del self._of[client]
        holders = self._holders[uri]
        del holders[client]
        if not holders:
            del self._holders[uri]
        return not holders

    def leave(self, client: str) -> list[str]:
        """End all of a client's wishes; those of its resources that nobody else wants to hear of."""
        self._levels.pop(client, None)
        return [uri for uri in tuple(self._of.get(client, ())) if self.remove(client, uri)]

    def holders_of(self, uri: str) -> frozenset[str]:
        """Who is to hear that this resource changed: whoever subscribed it, or one that it is below."""
        found = set(self._holders.get(uri, ()))
        for above, holders in self._holders.items():
            if len(above) < len(uri) and uri.startswith(above) and (above.endswith("/") or uri[len(above)] in "/?#"):
                found.update(holders)
        return frozenset(found)

    def set_level(self, client: str, level: str) -> str | None:
        """Book a client's level; the lowest of all where that is another now, or None."""
        before = self.level
        if level in LEVELS and (client in self._levels or len(self._levels) < MAX_LEVELS):
            self._levels[client] = LEVELS.index(level)
        return self.level if self.level != before else None

    @property
    def level(self) -> str:
        """The lowest that anybody wants; empty where nobody said."""
        return LEVELS[min(self._levels.values())] if self._levels else ""
