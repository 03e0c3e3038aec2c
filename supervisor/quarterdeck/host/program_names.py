"""The names by which clients introduce themselves, unchecked, for the record of their calls."""

from typing import Final

from quarterdeck_protocol.tools import Client

MAX_NAMES: Final = 4096
"""Maximum number of clients; one more replaces the oldest one."""

MAX_NAME_CHARS: Final = 100
"""Maximum length of one name, which each of its client's calls in the ledger has: a client may send any text."""


class ProgramNames:
    """The names of one product's clients, by client key."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def introduce(self, client: Client, name: str) -> None:
        """Keep the name by which a client introduced itself; keep none for programs that share a token."""
        name = name[:MAX_NAME_CHARS]
        known = self._names.get(client.key)
        if known is None and len(self._names) >= MAX_NAMES:
            del self._names[next(iter(self._names))]
        self._names[client.key] = name if known in (None, name) else ""

    def of(self, client: Client) -> str:
        """Return the name of a client; empty if it has not introduced itself."""
        return self._names.get(client.key, "")

    def forget(self, key: str) -> None:
        """Forget the client with this key: its session has ended."""
        self._names.pop(key, None)
