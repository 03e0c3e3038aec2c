"""Decks of native tools in memory, for whoever lends them: how often one was opened, and that it was closed."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from quarterdeck_protocol.tools import CancelToken, ToolCall, ToolOutcome
from support.tools.tool_boxes import NativeBox


@dataclass
class PlayedDeck:
    """One client's deck: a tool `note` that answers with what it was told before."""

    number: int
    box: NativeBox = field(default_factory=NativeBox)
    said: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.box.native("note", self._note)

    async def _note(self, call: ToolCall, cancel: CancelToken) -> ToolOutcome:
        before = list(self.said)
        self.said.append(call.input)
        return ToolOutcome(call.id, before)


@dataclass
class DeckMaker:
    """Opens decks, counts them, and sees them close.

    Attributes:
        prepare: called with each new deck, to give it more tools; may raise.
        at_the_end: awaited when a deck is to close.
    """

    opened: list[PlayedDeck] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    prepare: Callable[[PlayedDeck], object] = lambda deck: None
    at_the_end: Callable[[], Awaitable[object]] | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[PlayedDeck]:
        deck = PlayedDeck(len(self.opened))
        self.prepare(deck)
        self.opened.append(deck)
        try:
            yield deck
        finally:
            if self.at_the_end is not None:
                await self.at_the_end()
            self.closed.append(deck.number)
