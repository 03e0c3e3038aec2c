"""The names by which clients introduce themselves, for the record of their calls.  Nobody has checked them."""

from typing import Final

from quarterdeck_protocol.tools import Client

MAX_NAMES: Final = 4096
"""Of clients; one more takes the place of the one that came first."""

MAX_NAME_CHARS: Final = 100
"""Of one name, which each call of its client in the ledger has: a client may say anything."""


class ProgramNames:
    """The names of one product's clients, by the keys of these."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def introduce(self, client: Client, name: str) -> None:
        """Keep the name by which a client has introduced itself; none for programs that share a token."""
        name = name[:MAX_NAME_CHARS]
        known = self._names.get(client.key)
        if known is None and len(self._names) >= MAX_NAMES:
            del self._names[next(iter(self._names))]
        self._names[client.key] = name if known in (None, name) else ""

    def of(self, client: Client) -> str:
        """Return the name of a client; empty where it has not introduced itself."""
        return self._names.get(client.key, "")

    def forget(self, key: str) -> None:
        """Forget the client of this key: its session has ended."""
        self._names.pop(key, None)
