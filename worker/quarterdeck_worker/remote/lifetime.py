"""End what HTTP still does for a call when the call ends.

To a server of the handshake's era the SDK says that a call was given up, and leaves its request and its stream open for
as long as the server likes: a hundred of them would be all the connections that there are.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Self

import anyio
import httpx2


class OverError(httpx2.RequestError):
    """Nobody waits for this any more."""


class Lifetime:
    """Of one call.  What is sent within `with` it, in whichever task of the SDK's, finds it by `current`."""

    def __init__(self) -> None:
        self._is_over = False
        self._scopes: set[anyio.CancelScope] = set()

    def __enter__(self) -> Self:
        _CURRENT.set(self)  # in a task of its own: nothing follows in it
        return self

    def __exit__(self, *exc: object) -> None:
        self._is_over = True
        for scope in tuple(self._scopes):
            scope.cancel()

    @contextmanager
    def bounds(self) -> Iterator[None]:
        """Wait within for as long as the call lives.

        Raises:
            OverError: it ended before, or meanwhile.
        """
        if self._is_over:
            raise OverError("the call ended before")
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)
        if scope.cancelled_caught:
            raise OverError("the call ended")


_CURRENT: Final[ContextVar[Lifetime | None]] = ContextVar("lifetime", default=None)


def current() -> Lifetime:
    """That of the call for which this is sent; an endless one where there is none."""
    return _CURRENT.get() or Lifetime()
