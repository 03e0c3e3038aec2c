"""The fleet of one deck among several: the servers that it shares with others, and its own ones, as one fleet."""

import asyncio
import logging
from collections.abc import Callable
from contextvars import copy_context
from types import MappingProxyType

from quarterdeck.common.watchers import Told, Watchers
from quarterdeck_protocol.configs import BridgeConfig, ServerConfig
from quarterdeck_protocol.contract import EndpointStatus, FleetStatus
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.offers import News

from .call_queue import CallQueue
from .endpoint import ServerEndpointImpl
from .exchange.news import NewsWatchers, TakeNews
from .fleet import ServerFleetImpl, SupervisedFleet
from .shared_servers import SharedServer, SharedServers, Wish

_log = logging.getLogger("quarterdeck.fleet")


class DeckFleet(SupervisedFleet):
    """A deck's fleet; `wish_for` gives None for a server of this deck's own."""

    def __init__(
        self, own: ServerFleetImpl, servers: SharedServers, wish_for: Callable[[ServerConfig], Wish | None]
    ) -> None:
        self._own = own
        self._servers = servers
        self._wish_for = wish_for
        self._config = BridgeConfig()
        self._shared: dict[str, SharedServer] = {}
        self._unwatch: dict[str, tuple[Callable[[], None], ...]] = {}
        self._is_torn_down = False
        self._ends: set[asyncio.Task[None]] = set()
        self._watchers = Watchers("the fleet", _log)
        # What a shared server tells is heard in its context; what follows is this deck's.
        self._context = copy_context()
        self._news = NewsWatchers()
        own.watch_each(self._tell)
        own.watch_news(self._tell_news)

    async def reconfigure(self, config: BridgeConfig, asleep: frozenset[str] = frozenset()) -> None:
        """Run these servers; shared ones that this deck leaves run on for the others. After a tear-down nothing runs
        until `spin_up`, which takes this configuration. For `asleep` see `ServerFleetImpl`.
        """
        self._config = config
        if self._is_torn_down:
            return
        wishes = {each.id: self._wish_for(each) for each in config.effective()}
        left = {
            server: shared
            for server, shared in self._shared.items()
            if (wish := wishes.get(server)) is None or wish.key != shared.key
        }
        for server in left:
            self._leave(server)
        joined: list[str] = []
        for server, wish in wishes.items():
            if wish is not None and server not in self._shared:
                self._join(server, wish, left.get(server), is_asleep=server in asleep)
                joined.append(server)
            elif wish is not None and server not in asleep:
                self._shared[server].wake()
        own = tuple(each for each in config.effective() if wishes[each.id] is None)
        await self._own.reconfigure(BridgeConfig(servers=own), asleep)
        for server in {**left, **dict.fromkeys(joined)}:
            self._tell(server)

    async def spin_up(self) -> None:
        """See `ServerFleet`; shared servers that run are left alone."""
        self._is_torn_down = False
        await self._own.spin_up()
        await self.reconfigure(self._config)

    async def tear_down(self) -> None:
        """See `ServerFleet`; what others hold too runs on.  Repeatable."""
        self._is_torn_down = True
        for server in tuple(self._shared):
            self._leave(server)
        await self._own.tear_down()
        if self._ends:
            await asyncio.shield(asyncio.wait(tuple(self._ends)))

    async def restart(self, server: str) -> None:
        """Restart one server, a shared one for all decks, and forget its crashes. Raise KeyError for an unknown one."""
        shared = self._shared.get(server)
        await (self._own.restart(server) if shared is None else shared.restart())

    def wake(self, server: str) -> bool:
        """See `SupervisedFleet`."""
        shared = self._shared.get(server)
        return self._own.wake(server) if shared is None else shared.wake()

    def sleep(self, server: str, *, by_hand: bool = False) -> None:
        """See `SupervisedFleet`."""
        shared = self._shared.get(server)
        if shared is None:
            self._own.sleep(server)
        else:
            shared.sleep(by_hand=by_hand)

    def is_asleep(self, server: str) -> bool:
        """See `SupervisedFleet`."""
        return self._of(server).is_asleep(server)

    def wake_fault(self, server: str, since: float) -> ProtocolFault | None:
        """See `SupervisedFleet`."""
        return self._of(server).wake_fault(server, since)

    def _of(self, server: str) -> ServerFleetImpl:
        shared = self._shared.get(server)
        return self._own if shared is None else shared.fleet

    def endpoint(self, server: str) -> ServerEndpointImpl | None:
        """See `ServerFleet`."""
        return self._of(server).endpoint(server)

    def queue(self, server: str) -> CallQueue:
        """See `SupervisedFleet`."""
        return self._of(server).queue(server)

    def endpoints(self) -> tuple[ServerEndpointImpl, ...]:
        """See `ServerFleet`."""
        found = (self.endpoint(config.id) for config in self._config.effective())
        return tuple(endpoint for endpoint in found if endpoint is not None)

    def status(self) -> FleetStatus:
        """See `ServerFleet`."""
        found = ((config.id, self.status_of(config.id)) for config in self._config.effective())
        return MappingProxyType({server: status for server, status in found if status is not None})

    def status_of(self, server: str) -> EndpointStatus | None:
        """See `SupervisedFleet`."""
        shared = self._shared.get(server)
        return self._own.status_of(server) if shared is None else shared.status()

    def has_settled(self, server: str) -> bool:
        """See `ServerFleetImpl.has_settled`."""
        return self._of(server).has_settled(server)

    def is_coming(self, server: str) -> bool:
        """See `ServerFleetImpl.is_coming`."""
        shared = self._shared.get(server)
        return self._own.is_coming(server) if shared is None else shared.is_coming

    def last_fault(self, server: str) -> ProtocolFault | None:
        """See `ServerFleetImpl.last_fault`."""
        return self._of(server).last_fault(server)

    def watch_each(self, callback: Told) -> Callable[[], None]:
        """See `SupervisedFleet`; `callback` runs in the context in which this fleet was made."""
        return self._watchers.watch_each(callback)

    def watch_news(self, callback: TakeNews) -> Callable[[], None]:
        """See `SupervisedFleet`; `callback` runs in the context in which this fleet was made."""
        return self._news.watch(callback)

    def _join(self, server: str, wish: Wish, replaced: SharedServer | None, *, is_asleep: bool) -> None:
        shared = self._servers.join(self, wish, self._context, replaced, is_asleep=is_asleep)
        self._shared[server] = shared
        self._unwatch[server] = shared.fleet.watch_each(self._tell), shared.fleet.watch_news(self._tell_news)

    def _leave(self, server: str) -> None:
        for unwatch in self._unwatch.pop(server):
            unwatch()
        end = self._servers.leave(self, self._shared.pop(server))
        if end is not None:
            self._ends.add(end)
            end.add_done_callback(self._ends.discard)

    def _tell(self, server: str) -> None:
        self._context.copy().run(self._watchers.tell, server)

    def _tell_news(self, news: News) -> None:
        self._context.copy().run(self._news.tell, news)
