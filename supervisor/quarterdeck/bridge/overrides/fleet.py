"""A fleet as its servers' overrides show it: what stands above it knows public names only."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from quarterdeck.common.watchers import Watchers
from quarterdeck.config.overrides import NO_OVERRIDES, ServerOverrides
from quarterdeck_protocol.contract import FleetStatus, LiveEndpoint, LiveFleet
from quarterdeck_protocol.offers import News

from .endpoint import OverriddenEndpoint


class OverriddenFleet(LiveFleet):
    """See the module; a server without overrides is the inner fleet's own endpoint, and costs nothing more."""

    def __init__(self, fleet: LiveFleet) -> None:
        self._fleet: Final = fleet
        self._overrides: Mapping[str, ServerOverrides] = {}
        self._shown: dict[str, OverriddenEndpoint] = {}
        self._watchers: Final = Watchers("overrides", logging.getLogger("quarterdeck.names"))

    def override(self, overrides: Mapping[str, ServerOverrides]) -> None:
        """Show servers by these from now on; who watches is told of each that is shown otherwise."""
        before = self._overrides
        changed = {
            server
            for server in before.keys() | overrides.keys()
            if before.get(server, NO_OVERRIDES) != overrides.get(server, NO_OVERRIDES)
        }
        # The same object while it says the same: what is shown by it stays, too.
        self._overrides = {
            server: value if server in changed else self.overrides_of(server) for server, value in overrides.items()
        }
        for server in changed:
            self._watchers.tell(server)

    def overrides_of(self, server: str) -> ServerOverrides:
        """What of a server is shown otherwise."""
        return self._overrides.get(server, NO_OVERRIDES)

    def notes(self) -> tuple[str, ...]:
        """What of the overrides cannot be carried out, or has no effect, of servers that offer tools; a line each."""
        found = []
        for endpoint in self.endpoints():
            if isinstance(endpoint, OverriddenEndpoint) and endpoint.inner.offered():
                found += [f"{endpoint.config.id}: {note}" for note in endpoint.notes()]
        return tuple(found)

    def hidden(self) -> tuple[str, ...]:
        """What the overrides hide of what servers offer, by the names that clients would know."""
        return tuple(
            name
            for endpoint in self.endpoints()
            if isinstance(endpoint, OverriddenEndpoint)
            for name in endpoint.hidden()
        )

    def endpoint(self, server: str) -> LiveEndpoint | None:
        """See `LiveFleet`."""
        inner = self._fleet.endpoint(server)
        return None if inner is None else self._over(server, inner)

    def endpoints(self) -> tuple[LiveEndpoint, ...]:
        """See `LiveFleet`."""
        return tuple(self._over(each.config.id, each) for each in self._fleet.endpoints())

    def _over(self, server: str, inner: LiveEndpoint) -> LiveEndpoint:
        overrides = self.overrides_of(server)
        if not overrides:
            self._shown.pop(server, None)
            return inner
        shown = self._shown.get(server)
        if shown is None or shown.inner is not inner or shown.overrides is not overrides:
            shown = self._shown[server] = OverriddenEndpoint(inner, overrides)
        return shown

    def status(self) -> FleetStatus:
        """See `ServerFleet`."""
        return self._fleet.status()

    def watch_each(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """See `LiveFleet`."""
        unwatch, forget = self._fleet.watch_each(callback), self._watchers.watch_each(callback)
        return lambda: (unwatch(), forget(), None)[2]

    def watch_news(self, callback: Callable[[News], None]) -> Callable[[], None]:
        """See `LiveFleet`."""
        return self._fleet.watch_news(callback)

    async def spin_up(self) -> None:
        """See `ServerFleet`."""
        await self._fleet.spin_up()

    async def tear_down(self) -> None:
        """See `ServerFleet`."""
        await self._fleet.tear_down()
