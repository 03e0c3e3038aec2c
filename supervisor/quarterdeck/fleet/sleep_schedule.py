"""Put the servers of one deck to sleep when nothing refers to them; what keeps each awake is `core.wakefulness`'s.

Above are the deck's sessions, and trust, which says which servers may sleep at all; below is the fleet.  A timer runs
only for a server that is awake and that only time puts to sleep.
"""

import asyncio
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final

from msgspec.structs import replace

from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.contract import EndpointPhase

from .core.wakefulness import Wakefulness, wakefulness
from .fleet import SupervisedFleet
from .session_servers import SessionServers

LINGER_S: Final = 600.0
"""Seconds that a server stays awake which a person has started by hand."""


class SleepSchedule:
    """The servers of one deck that may fall asleep.

    Args:
        why_always: why this server never sleeps; empty for one that may.
        linger_s: how long a start by hand keeps a server awake, in seconds.
    """

    def __init__(
        self,
        fleet: SupervisedFleet,
        sessions: SessionServers,
        why_always: Callable[[ServerConfig], str],
        *,
        linger_s: float = LINGER_S,
    ) -> None:
        self._fleet = fleet
        self._sessions = sessions
        self._why_always = why_always
        self._linger_s = linger_s
        self._by_hand: dict[str, float] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._unwatch: Callable[[], None] = lambda: None

    def follow(self, watch_each: Callable[[Callable[[str], None]], Callable[[], None]]) -> None:
        """Look at each server when `watch_each` tells of a change of it, until `close`."""
        self._unwatch = watch_each(self.look)

    def close(self) -> None:
        """Put nothing to sleep any longer."""
        self._unwatch()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def asleep_of(self, servers: Iterable[ServerConfig]) -> frozenset[str]:
        """Return the ids of the servers that need not be started before something refers to them."""
        return frozenset(
            config.id for config in servers if self._by_hand_s(config.id) <= 0 and not self._why_always(config)
        )

    def started_by_hand(self, server: str) -> None:
        """Keep a server awake for a while, as a person wants it to run."""
        self._by_hand[server] = monotonic() + self._linger_s

    def stopped_by_hand(self, server: str) -> None:
        """Forget that a person started it."""
        self._by_hand.pop(server, None)

    def left(self, session: str) -> None:
        """A client's session has ended: it needs no server any longer."""
        for endpoint in self._fleet.endpoints():
            queue = self._fleet.queue(endpoint.config.id)
            if session in queue.clients:
                queue.forget_client(session)
                self.look(endpoint.config.id)

    def look(self, server: str) -> None:
        """Put a server to sleep if nothing keeps it awake; else look again when that may have changed."""
        if (timer := self._timers.pop(server, None)) is not None:
            timer.cancel()
        found = self.judged(server)
        if found is None:
            return
        if not found.reasons:
            self._fleet.sleep(server)
        elif found.again_s is not None:
            self._timers[server] = asyncio.get_running_loop().call_later(found.again_s, self.look, server)

    def needs(self, server: str) -> bool:
        """Whether something in this deck keeps a server awake; one that is not ready may be starting for a caller."""
        found = self.judged(server)
        return found is None or bool(found.reasons)

    def judged(self, server: str) -> Wakefulness | None:
        """Return what keeps a ready server awake; None for any other."""
        endpoint = self._fleet.endpoint(server)
        if endpoint is None or endpoint.phase is not EndpointPhase.READY or not self._fleet.has_settled(server):
            return None
        queue, use = self._fleet.queue(server), endpoint.use()
        sessions = sum(self._sessions.is_open(str(client)) for client in queue.clients)
        use = replace(
            use,
            calls=sum(queue.load),
            processes=len(self._sessions.statuses(server)),
            sessions=sessions,
            guests=len(queue.clients) - sessions,
            by_hand_s=self._by_hand_s(server),
        )
        return wakefulness(use, self._why_always(endpoint.config), endpoint.config.idle_stop_s)

    def _by_hand_s(self, server: str) -> float:
        return max(0.0, self._by_hand.get(server, 0.0) - monotonic())
