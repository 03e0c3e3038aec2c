"""What the registrar needs of its neighbours: somewhere to record, and a fleet to look after."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from quarterdeck.fleet.endpoint import ServerEndpointImpl
from quarterdeck.ledger.book import Book
from quarterdeck.ledger.events import LedgerEvent


class Recorder(Protocol):
    """Where events go.

    Attributes:
        book: what they amount to so far; changed by `record` alone.
    """

    @property
    def book(self) -> Book:
        """See the class."""
        ...

    async def record(self, events: Sequence[LedgerEvent], documents: Mapping[str, bytes]) -> None:
        """Keep these events, all or none, and apply them to the book.

        Raises:
            LedgerWriteError: they cannot be kept; the book is as before.
        """
        ...

    async def document(self, hash_: str) -> bytes | None:
        """A kept document."""
        ...


class LookedAfter(Protocol):
    """What the registrar needs of a fleet."""

    def endpoint(self, server: str) -> ServerEndpointImpl | None:
        """The present endpoint of this id."""
        ...

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after any change of phases or tools; returns what unregisters it."""
        ...
