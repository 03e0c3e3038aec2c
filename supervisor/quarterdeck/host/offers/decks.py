"""Give each client its deck of native tools, and end the deck when the client is gone.

A deck opens when its client first lists or calls tools.  One that belongs to a connection ends with it; one that has
only a name, for clients without connections, ends when nobody has used it for a while.  What a deck is, whoever opens
it decides: here it is opened and closed in a task of its own, as what it holds demands.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Protocol

from quarterdeck_protocol.tools import ToolBox, ToolSource

from .sources import SessionSource, source_without_native

MAX_NAMED: Final = 64
"""Decks without a connection at one time; a further client takes the place of one that was used for one request alone,
or else of the one idle longest: a client that calls itself differently each time ends nobody's but its own."""

IDLE_S: Final = 600.0
"""How long a deck without a connection waits for its client's next request; its background processes end with it."""

OPEN_S: Final = 30.0
"""How long a deck may take to open: milliseconds, but for the first, which imports every tool."""

CLOSE_S: Final = 15.0
"""How long a deck may take to end: its own steps, each with a deadline, take less than half."""

_log = logging.getLogger("quarterdeck.decks")


class OpenedDeck(Protocol):
    """What a session of native tools offers."""

    @property
    def box(self) -> ToolBox:
        """Its tools."""
        ...


OpenDeck = Callable[[], AbstractAsyncContextManager[OpenedDeck]]
"""Opens a deck of its own for one client; entered and left in one task."""


class Decks:
    """The decks of one host's clients."""

    def __init__(self, live: ToolSource, open_deck: OpenDeck, *, idle_s: float = IDLE_S) -> None:
        """Open none yet.

        Args:
            live: the servers' tools, offered beside every deck's own.
            open_deck: opens a deck.
            idle_s: see `IDLE_S`.
        """
        self._live = live
        self._open_deck = open_deck
        self._idle_s = idle_s
        self._decks: dict[Hashable, _ClientDeck] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._last_problem = ""

    @asynccontextmanager
    async def borrow(
        self, client: Hashable, *, is_bound: bool, live: ToolSource | None = None
    ) -> AsyncIterator[SessionSource]:
        """The box of `client` for one request, opened when this is its first; it does not end meanwhile.

        Where a deck cannot be opened there are the servers' tools alone, a call of a native tool says why, and the next
        request tries again.

        Args:
            client: whose box it is.
            is_bound: whether it lasts until `end` is called for it; else it ends when idle.
            live: the servers' tools as this client is shown them, the same ones for each of its requests; None for
                as they are.
        """
        live = live if live is not None else self._live
        deck = self._decks.get(client)
        if deck is None:
            if self._is_closed:
                yield source_without_native("this server is shutting down", live)
                return
            if not is_bound and not self._make_room():
                yield source_without_native(f"{MAX_NAMED} other clients are using theirs: try again later", live)
                return
            deck = self._decks[client] = _ClientDeck(self._open_deck, live, is_bound=is_bound)
        deck.enter()
        try:
            yield await self._box(client, deck, live)
        finally:
            if deck.leave() and not is_bound and self._decks.get(client) is deck:
                deck.idle = asyncio.get_running_loop().call_later(self._idle_s, self.end, client)
                # Its place in the order is that of its last use.
                self._decks[client] = self._decks.pop(client)

    def end(self, client: Hashable) -> None:
        """End the deck of `client`, in the background; harmless when there is none."""
        deck = self._decks.pop(client, None)
        if deck is not None:
            task = asyncio.get_running_loop().create_task(deck.end())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End every deck and wait until they have; no other is opened."""
        self._is_closed = True
        for client in tuple(self._decks):
            self.end(client)
        while self._closing:
            await asyncio.wait(self._closing)

    async def _box(self, client: Hashable, deck: "_ClientDeck", live: ToolSource) -> SessionSource:
        try:
            return await deck.opened()
        except Exception as error:
            if self._decks.get(client) is deck:
                self.end(client)
            problem = str(error) or type(error).__name__
            if problem != self._last_problem:
                self._last_problem = problem
                _log.error("no native tools: %s", problem)
            return source_without_native(problem, live)

    def _make_room(self) -> bool:
        """Whether there is room for one more deck without a connection, if need be in the place of an idle one."""
        named = [(client, deck) for client, deck in self._decks.items() if not deck.is_bound]
        if len(named) < MAX_NAMED:
            return True
        idle = [(client, deck) for client, deck in named if not deck.is_used]  # the one idle longest first
        if not idle:
            return False
        missed_least, _ = min(idle, key=lambda one: one[1].requests > 1)
        self.end(missed_least)
        return True


class _ClientDeck:
    """One client's deck, from its opening to its end, in an owner task."""

    def __init__(self, open_deck: OpenDeck, live: ToolSource, *, is_bound: bool) -> None:
        loop = asyncio.get_running_loop()
        self.is_bound: Final = is_bound
        self.idle: asyncio.TimerHandle | None = None
        self.requests = 0
        self._users = 0
        self._ending = asyncio.Event()
        self._opened: asyncio.Future[SessionSource] = loop.create_future()
        self._owner = loop.create_task(self._own(open_deck, live))

    @property
    def is_used(self) -> bool:
        """Whether a request is being answered from it."""
        return self._users > 0

    def enter(self) -> None:
        """One request more."""
        self.requests += 1
        self._users += 1
        if self.idle is not None:
            self.idle.cancel()
            self.idle = None

    def leave(self) -> bool:
        """One request less; whether it was the last."""
        self._users -= 1
        return not self._users

    async def opened(self) -> SessionSource:
        """The client's box, once the deck is open.

        Raises:
            Exception: why it cannot be opened.
        """
        try:
            return await asyncio.wait_for(asyncio.shield(self._opened), OPEN_S)
        except TimeoutError:
            raise TimeoutError(f"they did not start within {OPEN_S:g} s") from None

    async def end(self) -> None:
        """End it and wait until it has; given up with an error in the log after `CLOSE_S`."""
        if self.idle is not None:
            self.idle.cancel()
        self._ending.set()
        done, _ = await asyncio.wait([self._owner], timeout=CLOSE_S)
        if not done:
            _log.error("a deck did not end within %g s", CLOSE_S)
            self._owner.cancel()
            await asyncio.wait([self._owner], timeout=1.0)

    async def _own(self, open_deck: OpenDeck, live: ToolSource) -> None:
        try:
            async with open_deck() as deck:
                self._opened.set_result(SessionSource(deck.box, live))
                await self._ending.wait()
        except Exception as error:
            if self._opened.done():
                _log.exception("a deck did not shut down cleanly")
            else:
                self._opened.set_exception(error)
        finally:
            if not self._opened.done():
                self._opened.set_exception(RuntimeError("their start was cancelled"))
            # Looked at once, or the loop would complain: the one that waited may have left.
            self._opened.exception()
