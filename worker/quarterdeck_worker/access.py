"""The access token of a remote server's login, as its worker has it: given by the supervisor, which alone renews it."""

from collections.abc import Callable
from typing import Final

import anyio

from quarterdeck_protocol.link.frames import MAX_BEARER_BYTES

RENEWAL_S: Final = 90.0
"""How long a refused request waits for another token: the supervisor has a lock to wait for, and a server to ask."""


class Access:
    """See the module.

    Attributes:
        token: of the moment; empty for a server without a login.
    """

    def __init__(self, token: str = "", ask: Callable[[tuple[str, ...] | None], object] = lambda _: None) -> None:
        """Access by this token; `ask` tells the supervisor that it was refused: see `Unauthorized`."""
        self.token = token
        self._ask = ask
        self._given: anyio.Event | None = None
        self._asked: tuple[str, ...] | None = None

    def give(self, token: bytes) -> None:
        """Use this token from now on; an empty one says that there is no other, and is not used."""
        if token and len(token) <= MAX_BEARER_BYTES:
            self.token = token.decode("ascii", "replace")
        given, self._given = self._given, None
        if given is not None:
            given.set()

    async def renewed(self, refused: str, scopes: tuple[str, ...] | None = None) -> str:
        """Another token than this one, which the server refused; empty when there is none.

        Args:
            refused: the token.
            scopes: those that the server wants beside; None where it refused the token whole.
        """
        if not refused:
            return ""
        is_answered = False
        with anyio.move_on_after(RENEWAL_S):
            while self.token == refused and not is_answered:
                if (given := self._given) is None:
                    given = self._given = anyio.Event()
                    self._asked = scopes
                    self._ask(scopes)
                # That there is no token with a scope says nothing of a token that has ended, nor of another scope.
                is_answered = self._asked == scopes
                await given.wait()
        return self.token if self.token != refused else ""
