"""Decide how many bytes may be held for each client, where many share one bound.  Pure.

What is held are large requests under way, and large answers that are not read.  `InFlight` bounds how many there are.
"""

from typing import Final

from quarterdeck.common.in_flight import Shares

UNCOUNTED_BYTES: Final = 64 * 1024
"""What is no larger is not counted: as much as a connection takes before its writer has to wait."""


class HeldBytes(Shares):
    """The bytes held, by client.

    A client has its own bound, which a single larger item may exceed, and a share of the common bound.
    """

    def __init__(self, each: int, together: int) -> None:
        """Nothing is held; so much may be of each client, and of all before shares count."""
        super().__init__(together)
        self._each = each

    def begin(self, client: str, size: int) -> str:
        """Hold so much more of `client`; empty when it is counted, else which bound it met."""
        if size <= UNCOUNTED_BYTES:
            return ""
        mine = self.of(client)
        if mine and mine + size > self._each:
            return f"{mine:,} bytes of this client are held, of {self._each:,}"
        if self.is_too_much(client, size):
            return f"{self.total:,} bytes of all clients are held, of {self.together:,}"
        self.add(client, size)
        return ""

    def end(self, client: str, size: int) -> None:
        """Hold so much less of `client`; to be said once for what was counted."""
        if size > UNCOUNTED_BYTES:
            self.remove(client, size)
