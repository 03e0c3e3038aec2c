"""Servers that several decks of one process share: each a fleet of its own, which ends when its last deck leaves.

`deck_fleet` joins and leaves. Requests of equal keys are for one server; their maker decides which decks may share.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Final

import msgspec

from quarterdeck.common.shielding import carried_through
from quarterdeck_protocol.configs import BridgeConfig, ServerConfig
from quarterdeck_protocol.contract import EndpointPhase, EndpointStatus

from .core.supervision import MAX_STARTING, SLOT_HOLD_S
from .fleet import ServerFleetImpl

REPLACE_S: Final = 2.0
"""Seconds that a server waits for the one that it replaces while other decks hold that: they read a changed file one
after the other, and both servers have the same home.
"""

_log = logging.getLogger("quarterdeck.fleet")

Trusted = Callable[[], Iterable[str]]
"""The files that are the user's word now, see `WorkerSession`."""


class StartSlots:
    """Bounds how many servers of several fleets start at one time, as each fleet's core does for its own."""

    def __init__(self, count: int = MAX_STARTING) -> None:
        self._room = asyncio.Semaphore(count)

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Wait for a slot; it is held inside the block, and for `SLOT_HOLD_S` at most."""
        await self._room.acquire()
        is_held = True

        def let_go() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._room.release()

        late = asyncio.get_running_loop().call_later(SLOT_HOLD_S, let_go)
        try:
            yield
        finally:
            late.cancel()
            let_go()


class Wish(msgspec.Struct, frozen=True, eq=False):
    """One deck's request for a server. Requests of one key can share a server. Of two servers with one `place`, which
    names the private home, the second starts after the first has ended. `make_fleet` gets the trusted files of all that
    share it, and `is_needed` tells whether this deck needs it awake.
    """

    key: str
    place: str
    config: ServerConfig
    trusted: Trusted
    make_fleet: Callable[[Trusted], ServerFleetImpl]
    is_needed: Callable[[], bool] = lambda: True


class SharedServer:
    """A server that at least one deck holds, alone in its `fleet`; made by `SharedServers.join`."""

    def __init__(
        self, wish: Wish, earlier: "Iterable[SharedServer]", replaced: "SharedServer | None", *, is_asleep: bool = False
    ) -> None:
        self.key: Final = wish.key
        self.place: Final = wish.place
        self.ended: Final = asyncio.Event()
        self.holders: Final[dict[object, tuple[Wish, Context]]] = {}
        self._server = wish.config.id
        self.fleet: Final = wish.make_fleet(self._trusted)
        self._has_begun = False
        self._begins_asleep = is_asleep
        # What happens to it happens on behalf of all who share it, not of the one that came first.
        self._context = Context()
        self._context.run(_shared.set, self)
        begin = self._begin(wish.config, tuple(earlier), replaced)
        self._beginning = asyncio.create_task(begin, context=self._context)

    def status(self) -> EndpointStatus:
        """Return its state; idle before it has begun."""
        return self.fleet.status_of(self._server) or EndpointStatus(self._server, EndpointPhase.IDLE, 0)

    @property
    def is_coming(self) -> bool:
        """Whether it is being started, or is about to be."""
        return not self._has_begun or self.fleet.is_coming(self._server)

    async def restart(self) -> None:
        """Restart it, for all who share it; one that has not begun yet is about to start."""
        if self._has_begun:
            await asyncio.create_task(self.fleet.restart(self._server), context=self._context)

    def wake(self) -> bool:
        """Start it if it sleeps; return whether it is being woken."""
        if self._has_begun:
            return self._context.copy().run(self.fleet.wake, self._server)
        self._begins_asleep = False
        return True

    def sleep(self, *, by_hand: bool = False) -> None:
        """Stop it until it is woken, unless a deck needs it and it is not stopped `by_hand`."""
        is_needed = not by_hand and any(wish.is_needed() for wish, _ in self.holders.values())
        if self._has_begun and not is_needed:
            self._context.copy().run(self.fleet.sleep, self._server)

    async def end(self) -> None:
        """Stop it."""
        self._beginning.cancel()
        await asyncio.gather(self._beginning, return_exceptions=True)
        try:
            await self.fleet.tear_down()
        finally:
            self.ended.set()

    async def _begin(
        self, config: ServerConfig, earlier: "tuple[SharedServer, ...]", replaced: "SharedServer | None"
    ) -> None:
        for each in earlier:
            await each.ended.wait()
        if replaced is not None:
            try:
                await asyncio.wait_for(replaced.ended.wait(), REPLACE_S)
            except TimeoutError:
                _log.info("%s runs in two forms: not every deck has taken the new one", self._server)
        # Never half: what was begun is torn down.
        asleep = frozenset((config.id,) if self._begins_asleep else ())
        await carried_through(lambda: self.fleet.begin_start(BridgeConfig(servers=(config,)), asleep))
        self._has_begun = True
        if asleep and not self._begins_asleep:
            self.fleet.wake(self._server)  # it was called meanwhile

    def _trusted(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(file for wish, _ in self.holders.values() for file in wish.trusted()))


_shared: Final[ContextVar[SharedServer | None]] = ContextVar("shared", default=None)


def on_behalf_of() -> tuple[Context, ...]:
    """The contexts of all decks that the running code works for: of a shared server's those that hold it."""
    shared = _shared.get()
    if shared is None:
        return (copy_context(),)
    return tuple(context for _, context in shared.holders.values())


class SharedServers:
    """Every server that decks of this process can share; `slots` are for the starts of all fleets of this process."""

    def __init__(self) -> None:
        self.slots: Final = StartSlots()
        self._servers: dict[str, SharedServer] = {}
        self._ending: dict[asyncio.Task[None], SharedServer] = {}

    def join(
        self,
        holder: object,
        wish: Wish,
        context: Context,
        replaced: SharedServer | None = None,
        *,
        is_asleep: bool = False,
    ) -> SharedServer:
        """Hold the requested server; start it if no deck holds it, or have it sleep if it may be `is_asleep`. A
        `holder` holds a server once, and gives it back by `leave`; `replaced` is the server that it has just left for
        this one. What happens to the server happens in contexts of which `on_behalf_of` gives this `context`.
        """
        server = self._servers.get(wish.key)
        if server is None:
            earlier = (each for each in self._ending.values() if each.place == wish.place)
            server = self._servers[wish.key] = SharedServer(wish, earlier, replaced, is_asleep=is_asleep)
        elif not is_asleep:
            server.wake()
        server.holders[holder] = (wish, context)
        return server

    def leave(self, holder: object, server: SharedServer) -> asyncio.Task[None] | None:
        """Hold it no longer. Return its end, to be awaited, if no other deck holds it."""
        del server.holders[holder]
        if server.holders:
            server.sleep()
            return None
        del self._servers[server.key]
        task = asyncio.create_task(server.end())
        self._ending[task] = server
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Wait until everything that was left has ended."""
        while self._ending:
            await asyncio.wait(tuple(self._ending))

    def _ended(self, task: asyncio.Task[None]) -> None:
        server = self._ending.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the end of a shared server failed: %s", server.place, exc_info=error)
