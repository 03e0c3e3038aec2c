"""Open decks for HTTP clients on demand, and let them go when they are idle."""

import asyncio
import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, closing
from typing import Final

from quarterdeck.config.places.paths import state_dir
from quarterdeck.host.http.admission import USER_DECK
from quarterdeck.host.http.http_host import HttpHost, NoHostError
from quarterdeck.host.http.readiness import Obstacle, Unready, ledger_obstacles
from quarterdeck.host.http.serve import HttpFace

from .deck_names import DeckNamesError
from .decks import Deck, Decks, Served, ToRefusal, UnknownDeckError, current_deck

IDLE_S: Final = 30.0
"""Seconds that a deck without sessions and requests is kept; then it lingers as after its last door."""

LOOK_S: Final = 5.0
"""Seconds between two checks for that."""

_log = logging.getLogger("quarterdeck.daemon")


class HttpDecks:
    """The `Hosts` of the daemon's listener. A deck that is not open is opened with `environ`; `to_refusal` turns errors
    into what clients are told.
    """

    def __init__(self, decks: Decks, face: HttpFace, environ: Mapping[str, str], to_refusal: ToRefusal) -> None:
        self._decks = decks
        self._face = face
        self._environ = environ
        self._to_refusal = to_refusal
        self._taken: dict[str, _TakenDeck] = {}
        self._owners: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._failure: NoHostError | None = None
        """Why the user's own deck could not be served when it was last wanted."""
        self._next_look = 0.0
        """When `unready` opens that deck; once it has served, clients alone do."""

    def __iter__(self) -> "Iterator[tuple[Deck, HttpHost]]":
        """Iterate over the decks that are open for HTTP clients."""
        found = [(taken.deck, taken.host) for taken in self._taken.values()]
        return iter([(deck, host) for deck, host in found if deck is not None and host is not None])

    def present(self, deck: str) -> HttpHost | None:
        """See `Hosts`."""
        taken = self._taken.get(deck)
        return taken.host if taken is not None and taken.serves else None

    async def find(self, deck: str) -> HttpHost:
        """See `Hosts`."""
        taken = self._taken.get(deck)
        # One that is being taken up has its host before that serves: who comes meanwhile waits for the same one.
        if taken is None or (taken.opened.done() and not taken.serves):
            if self._is_closed:
                raise NoHostError(503, "the daemon is about to end")
            taken = self._take_up(deck)
        return await asyncio.shield(taken.opened)

    def unready(self) -> Iterator[Unready]:
        """See `Hosts`. Judges the user's own deck alone, and opens it at the first look, and again after a failure."""
        yield from ledger_obstacles(state_dir())
        now, taken = asyncio.get_running_loop().time(), self._taken.get(USER_DECK)
        if taken is None and now >= self._next_look and not self._is_closed:
            self._next_look, taken = math.inf, self._take_up(USER_DECK)
        if self._failure is not None:
            yield Unready(Obstacle.DECK_FAILED, USER_DECK, str(self._failure))
        elif taken is not None and not taken.opened.done():
            yield Unready(Obstacle.DECK_OPENING, USER_DECK)
        elif taken is not None and taken.deck is not None and (served := taken.deck.opened) is not None:
            yield from served.product.unready()

    def _take_up(self, deck: str) -> "_TakenDeck":
        taken = self._taken[deck] = _TakenDeck()
        owner = asyncio.create_task(self._own(deck, taken), name=f"HTTP deck {deck}")
        self._owners.add(owner)
        owner.add_done_callback(self._owners.discard)
        return taken

    async def close(self) -> None:
        """See `Hosts`."""
        self._is_closed = True
        for taken in self._taken.values():
            taken.end()
        while self._owners:
            await asyncio.wait(tuple(self._owners))

    async def _own(self, name: str, taken: "_TakenDeck") -> None:
        """Hold a deck from its opening to its end."""
        try:
            async with AsyncExitStack() as stack:
                deck, served = await stack.enter_async_context(self._decks.borrow_named(name, self._environ))
                current_deck.set(deck.key)
                shown = served.product.create_host(portable_schemas=deck.request.portable_schemas)
                await self._serve(taken, deck, served, self._face.host(stack.enter_context(closing(shown))))
        except Exception as error:
            refused = self._refused(name, error)
            if name == USER_DECK:
                self._failure, self._next_look = refused, asyncio.get_running_loop().time() + LOOK_S
            if taken.opened.done():
                _log.warning("the deck %s ended for its HTTP clients: %s", name, refused)
            else:
                taken.opened.set_exception(refused)
        finally:
            if not taken.opened.done():
                taken.opened.set_exception(NoHostError(503, "the daemon is about to end"))
            taken.opened.exception()  # who waits is told; nobody may
            if self._taken.get(name) is taken:
                del self._taken[name]

    async def _serve(self, taken: "_TakenDeck", deck: Deck, served: Served, host: HttpHost) -> None:
        taken.deck, taken.host = deck, host
        deck.on_ended(lambda _: host.end())
        if taken.is_told_to_end:
            return
        running = asyncio.ensure_future(served.guard(self._face.run_host(host)))
        try:
            await host.ready()
            taken.opened.set_result(host)
            if deck.name == USER_DECK:
                self._failure, self._next_look = None, math.inf
            unused_s = 0.0
            while not (await asyncio.wait([running], timeout=LOOK_S))[0]:
                # What must run is looked at as long as the daemon listens.
                is_unused = host.is_idle and not any(config.required for config in served.product.settings.servers)
                unused_s = unused_s + LOOK_S if is_unused else 0.0
                if unused_s >= IDLE_S:
                    host.end()
        finally:
            host.end()
            await asyncio.wait([running])
        await running

    def _refused(self, name: str, error: Exception) -> NoHostError:
        match error:
            case NoHostError():
                return error
            case UnknownDeckError():
                return NoHostError(404, f"there is no deck {name!r}: `quarterdeck status` shows their names")
            case DeckNamesError():
                return NoHostError(503, str(error))
        refusal = self._to_refusal(error)
        if refusal is not None:
            why = f"{refusal.message}; {refusal.remedy}" if refusal.remedy else refusal.message
            return NoHostError(503, f"the deck {name!r} cannot be served: {why}")
        _log.exception("the deck %s could not be served", name)
        return NoHostError(500, f"the deck {name!r} cannot be served: {error}; quarterdeck logs --daemon says more")


class _TakenDeck:
    """One deck that is open for HTTP clients, or about to be; `opened` gives its host, or raises why there is none."""

    def __init__(self) -> None:
        self.opened: Final[asyncio.Future[HttpHost]] = asyncio.get_running_loop().create_future()
        self.deck: Deck | None = None
        self.host: HttpHost | None = None
        self.is_told_to_end = False

    @property
    def serves(self) -> bool:
        return self.opened.done() and self.host is not None and not self.host.has_ended

    def end(self) -> None:
        self.is_told_to_end = True
        if self.host is not None:
            self.host.end()
