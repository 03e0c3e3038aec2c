"""The daemon's decks: one for each configuration that a client wants, open while it is used.

Clients share a deck if they want the same, with equal values of the variables that the configuration uses. A deck is
opened and closed in its own task, as its contents demand.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC, datetime
from enum import IntEnum
from typing import Final, Protocol

import msgspec

from quarterdeck.common.shielding import cancelled
from quarterdeck.config.settings import Settings
from quarterdeck.fleet.call_queue import CallQueue
from quarterdeck.running_product import Product
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.contract import EndpointPhase

from .deck_names import DeckNames, DeckNamesError
from .messages import DeckStatus, ServeRequest

LINGER_S: Final = 600.0
"""Seconds that a deck stays after its last client has left, so that a reopened window finds it ready."""

CLOSE_S: Final = 30.0
"""Seconds that a deck may take to end: its servers end within six seconds, or are killed."""

_log = logging.getLogger("quarterdeck.daemon")


class Served(Protocol):
    """What an open deck provides to sessions."""

    @property
    def product(self) -> Product:
        """The running product."""
        ...

    @property
    def problem(self) -> str:
        """Why no session may be served now; empty if one may."""
        ...

    async def guard(self, serving: Coroutine[None, None, None]) -> None:
        """Run a session of it, and end it with an error when the deck must not be served any more."""
        ...


class RefusalError(Exception):
    """A client cannot be served, or no longer; `code` is its door's exit code."""

    def __init__(self, code: int, message: str, remedy: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy

    @property
    def words(self) -> str:
        """The text for a command's stderr, ended by a newline."""
        name = f"[{self.code.name.lower()}]" if isinstance(self.code, IntEnum) else ""
        return f"error{name}: {self.message}\n" + (f"  fix: {self.remedy}\n" if self.remedy else "")


ToRefusal = Callable[[Exception], RefusalError | None]
"""Returns what a client is told of an error; None for a bug."""


class UnknownDeckError(LookupError):
    """No configuration has this name."""


OpenDeck = Callable[[ServeRequest, Mapping[str, str], Settings], AbstractAsyncContextManager[Served]]
"""Opens a deck; entered and left in one task."""

ReadSettings = Callable[[ServeRequest, Mapping[str, str], Settings | None], Settings]
"""Reads the files as they are now, given the running settings of an open deck of these files, if any; blocking."""


class DeckEndedError(Exception):
    """A deck ended while it was used; the cause says why."""

    def __init__(self, failure: Exception | None) -> None:
        super().__init__(f"what served it ended by itself: {failure}" if failure else "what served it ended by itself")


class Deck:
    """One open deck, in its owner task; `name` is its configuration's, or empty."""

    def __init__(
        self, key: str, name: str, request: ServeRequest, opening: AbstractAsyncContextManager[Served]
    ) -> None:
        self.key: Final = key
        self.name: Final = name
        self.request: Final = request
        self.clients = 0
        self._since = datetime.now(UTC)
        self.idle: asyncio.TimerHandle | None = None
        self._ending = asyncio.Event()
        self._failure: Exception | None = None
        self._opened: asyncio.Future[Served] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._own(opening), name=f"deck {key}")

    async def served(self) -> Served:
        """Wait until the deck is open. Raise the reason if it cannot be opened."""
        return await asyncio.shield(self._opened)

    @property
    def opened(self) -> Served | None:
        """The open deck; None while it is being opened, or if that failed."""
        is_open = self._opened.done() and not self._opened.cancelled() and self._opened.exception() is None
        return self._opened.result() if is_open else None

    @property
    def settings(self) -> Settings | None:
        """The running settings; None while the deck opens, or if that failed."""
        return served.product.settings if (served := self.opened) is not None else None

    @property
    def identity(self) -> str:
        """The `deck_key` of the running settings: an edit of the deck's files changes it."""
        settings = self.settings
        return deck_key(self.request, settings) if settings is not None else self.key

    def status(self) -> DeckStatus:
        """Return its state, and how many of its servers are ready."""
        served = self.opened
        states = served.product.status().values() if served is not None else ()
        files = tuple(map(str, served.product.settings.config_paths)) if served is not None else self.request.config
        native = self.request.native.profile if self.request.native is not None else ""
        ready = sum(state.phase is EndpointPhase.READY or state.is_asleep for state in states)
        since = self._since.isoformat(timespec="seconds")
        command, problem = (served.product.settings.command, served.problem) if served is not None else ("", "")
        troubles = served.product.settings.troubles if served is not None else ()
        return DeckStatus(self.key, files, native, len(states), ready, since, command, self.name, problem, troubles)

    def queues(self) -> tuple[tuple[str, CallQueue], ...]:
        """Return (server id, calls) for each of its servers, and for each server that a session has for itself."""
        if (served := self.opened) is None:
            return ()
        product = served.product
        return (*((id_, product.fleet.queue(id_)) for id_ in product.status()), *product.sessions.queues())

    def kept_awake_by(self, server: str) -> tuple[str, ...]:
        """Return what keeps a server of this deck from falling asleep."""
        return served.product.kept_awake_by(server) if (served := self.opened) is not None else ()

    def own_servers(self, session: str) -> tuple[str, ...]:
        """The ids of the servers that a client's session has for itself."""
        served = self.opened
        return served.product.sessions.of(session) if served is not None else ()

    async def ended(self) -> None:
        """Wait until it has ended."""
        await asyncio.wait([self._owner])

    async def lasting(self, serving: Coroutine[None, None, None]) -> None:
        """Run this; cancel it and raise DeckEndedError when the deck ends by itself."""
        task = asyncio.create_task(serving)
        try:
            await asyncio.wait([task, self._owner], return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_left = not task.done()
            if is_left:
                await cancelled(task)
        if is_left:
            raise DeckEndedError(self._failure)
        await task

    def on_ended(self, tell: Callable[["Deck"], object]) -> None:
        """Have this told once it has ended, for whatever reason."""
        self._owner.add_done_callback(lambda _: tell(self))

    async def close(self) -> None:
        """End it, and wait until it has."""
        self._ending.set()
        await self.ended()

    async def _own(self, opening: AbstractAsyncContextManager[Served]) -> None:
        current_deck.set(self.key)
        current_name.set(self.name)
        try:
            async with opening as served:
                self._opened.set_result(served)
                await self._ending.wait()
        except Exception as error:
            self._failure = error
            if self._opened.done():
                _log.exception("the deck of %s ended", self.request.cwd)
            else:
                self._opened.set_exception(error)
                self._opened.exception()  # who waits is told; nobody may


current_deck: Final[ContextVar[str]] = ContextVar("deck", default="")
"""The deck that runs in this context: whose log a line is."""


current_name: Final[ContextVar[str]] = ContextVar("deck name", default="")
"""The name of the deck that runs in this context; empty without one."""


class Decks:
    """The open decks: `read` reads settings, and `open_deck` opens a deck, closed when idle for `linger_s` seconds."""

    def __init__(
        self, read: ReadSettings, open_deck: OpenDeck, *, linger_s: float = LINGER_S, names: DeckNames | None = None
    ) -> None:
        self._read = read
        self._names = names
        self._open_deck = open_deck
        self._linger_s = linger_s
        self._decks: dict[str, Deck] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.changed = asyncio.Event()
        """Set whenever a deck came or went."""

    def __iter__(self) -> Iterator[Deck]:
        return iter(tuple(self._decks.values()))

    def __len__(self) -> int:
        return len(self._decks) + len(self._closing)

    def products(self) -> list[tuple[str, str, Product]]:
        """Return the key, the name and the product of each deck that is open."""
        return [(deck.key, deck.name, served.product) for deck in self if (served := deck.opened) is not None]

    def find(self, key: str) -> Deck | None:
        """The deck of this key."""
        return self._decks.get(key)

    @asynccontextmanager
    async def borrow(self, request: ServeRequest, environ: Mapping[str, str]) -> AsyncIterator[tuple[Deck, Served]]:
        """Yield this request's deck, opened if necessary and kept open inside the block. Raise the reason otherwise."""
        settings = await asyncio.to_thread(self._read, request, environ, self._running(request, environ))
        request = request.of_deck
        key = deck_key(request, settings)
        name = ""
        if self._of(key) is None:
            if self._names is not None and settings.is_found and not settings.is_of_folder and not request.command:
                # Open the deck outside of any project, so that it serves clients of every folder.
                request = msgspec.structs.replace(request, cwd=self._names.own.cwd)
                settings = await asyncio.to_thread(self._read, request, environ, None)
            name = await asyncio.to_thread(self._name, request, settings)
        deck = self._of(key)
        if deck is None:
            deck = self._decks[key] = Deck(key, name, request, self._open_deck(request, environ, settings))
            deck.on_ended(self._forget)
            self.changed.set()
        async with self._used(deck) as served:
            yield deck, served

    def _of(self, key: str) -> Deck | None:
        """Return the deck that runs these settings now."""
        return next((deck for deck in self if deck.identity == key), None) or self._decks.get(key)

    def _running(self, request: ServeRequest, environ: Mapping[str, str]) -> Settings | None:
        """Return the settings of an open deck that a client with this environment would share, or None. Files are not
        compared: a client that connects while its file is broken gets the running configuration, as the connected
        clients do.
        """
        wanted = [request.of_deck]
        if self._names is not None and not request.config:
            wanted.append(msgspec.structs.replace(request.of_deck, cwd=self._names.own.cwd))
        for deck in self:
            settings = deck.settings if deck.request in wanted else None
            if settings is None:
                continue
            if settings.used_environment == replace(settings, environ=environ).used_environment:
                return settings
        return None

    @asynccontextmanager
    async def borrow_named(self, name: str, environ: Mapping[str, str]) -> AsyncIterator[tuple[Deck, Served]]:
        """Yield the deck of this name, opened if necessary; it stays open inside the block. Raise UnknownDeckError if
        no configuration has the name, or the reason if it cannot be opened.
        """
        deck = next((each for each in self if each.name == name), None)
        if deck is not None:
            async with self._used(deck) as served:
                yield deck, served
            return
        request = await asyncio.to_thread(self._names.find, name) if self._names is not None else None
        if request is None:
            raise UnknownDeckError(name)
        async with self.borrow(request, environ) as borrowed:
            yield borrowed

    @asynccontextmanager
    async def _used(self, deck: Deck) -> AsyncIterator[Served]:
        deck.clients += 1
        if deck.idle is not None:
            deck.idle.cancel()
            deck.idle = None
        try:
            try:
                served = await deck.served()
            except Exception:
                self._end(deck)  # the next client tries again
                raise
            yield served
        finally:
            deck.clients -= 1
            if not deck.clients and self._decks.get(deck.key) is deck:
                deck.idle = asyncio.get_running_loop().call_later(self._linger_s, self._end, deck)

    def _name(self, request: ServeRequest, settings: Settings) -> str:
        """Return the name of a configuration; a `run` has none. Blocking."""
        if self._names is None or request.command is not None:
            return ""
        try:
            return self._names.name(wanted_of(request, settings), request)
        except DeckNamesError as error:
            _log.error("a deck has no name: %s", error)
            return ""

    async def close(self) -> None:
        """End every deck, and wait until they have."""
        for deck in self:
            self._end(deck)
        while self._closing:
            await asyncio.wait(self._closing)

    def _end(self, deck: Deck) -> None:
        if self._decks.get(deck.key) is not deck:
            return
        del self._decks[deck.key]
        if deck.idle is not None:
            deck.idle.cancel()
        task = asyncio.create_task(deck.close())
        self._closing.add(task)
        task.add_done_callback(self._closed)

    def _forget(self, deck: Deck) -> None:
        """Forget a deck that ended by itself: the next client opens another."""
        if self._decks.get(deck.key) is deck:
            del self._decks[deck.key]
            self.changed.set()

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        self.changed.set()


def deck_key(request: ServeRequest, settings: Settings) -> str:
    """12 hex digits that name a deck: what is wanted, in which files, with which values of the environment."""
    said = [wanted_of(request, settings), settings.deck_digest, sorted(settings.used_environment.items())]
    return hashlib.sha256(msgspec.json.encode(said)).hexdigest()[:12]


def wanted_of(request: ServeRequest, settings: Settings) -> ServeRequest:
    """The request without a working directory that changes nothing."""
    runs_there = any(isinstance(config, StdioServerConfig) and config.cwd == request.cwd for config in settings.servers)
    uses_cwd = settings.is_of_folder if settings.is_found else request.command is not None and runs_there
    return msgspec.structs.replace(request, cwd=request.cwd if uses_cwd else "")
