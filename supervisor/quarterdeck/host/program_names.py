"""The names by which clients introduce themselves, unchecked, for the record of their calls."""

from typing import Final

from quarterdeck_protocol.tools import Client

MAX_NAMES: Final = 4096
"""Maximum number of clients; one more replaces the oldest one."""

MAX_NAME_CHARS: Final = 100
"""Maximum length of one name, which each of its client's calls in the ledger has: a client may send any text."""


class ProgramNames(dict[str, str]):
    """The names of one product's clients, by client key; a client that has not introduced itself has none."""

    def introduce(self, client: Client, name: str) -> None:
        """Keep the name by which a client introduced itself; keep none for programs that share a token."""
        name = name[:MAX_NAME_CHARS]
        known = self.get(client.key)
        if known is None and len(self) >= MAX_NAMES:
            del self[next(iter(self))]
        self[client.key] = name if known in (None, name) else ""
