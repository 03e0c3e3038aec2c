"""What one client is shown of everything, and when that is different: its groups, its token, its search.

A client hears of a change only when what it is shown has changed.
"""

from collections.abc import Callable, Sequence
from typing import Final

from quarterdeck.host.search.tool_search import two_tools
from quarterdeck.route.catalogue import BESIDE_TOOLS
from quarterdeck_protocol.offers import Listing, News, Offered, OfferSource
from quarterdeck_protocol.tools import Client, ToolDescriptor, ToolSource

from .groups import LiveGroups


class ClientTools:
    """The tools that one client is shown of a source."""

    def __init__(self, source: ToolSource, client: Client, groups: LiveGroups) -> None:
        self._source = source
        self._client = client
        self._groups = groups
        self._seen: tuple[object, object, Sequence[ToolDescriptor]] = (None, None, ())
        self.can_change: Final = source.can_change

    def descriptors(self) -> Sequence[ToolDescriptor]:
        """All of them; the same tuple until one of them, or a group, changes."""
        tools, groups = self._source.descriptors(), self._groups.current
        if tools is not self._seen[0] or groups is not self._seen[1]:
            allowed = tools
            if self._client.allowance is not None:
                allowed = tuple(tool for tool in tools if self._client.allows(self._source.own(tool.name)))
            self._seen = tools, groups, two_tools(allowed) if self._client.is_searched else allowed
        return self._seen[2]

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change of the source, or of a group; returns what unregisters it."""
        return _both(self._source.watch(callback), self._groups.watch(callback))


class ClientOffers:
    """What servers have beside tools, as one client is shown it."""

    def __init__(self, source: OfferSource, client: Client, groups: LiveGroups) -> None:
        self._source = source
        self._client = client
        self._groups = groups

    def listed(self, listing: Listing) -> Sequence[Offered]:
        """See `OfferSource`."""
        rows = self._source.listed(listing)
        if self._client.allowance is None:
            return rows
        return tuple(each for each in rows if self._client.allows(each.qualified, listing))

    def watch_listing(self, callback: Callable[[Listing], None]) -> Callable[[], None]:
        """See `OfferSource`; a change of what the client may not use is none."""
        if self._client.allowance is None:
            return self._source.watch_listing(callback)
        known = {listing: self.listed(listing) for listing in BESIDE_TOOLS}

        def look(listing: Listing) -> None:
            present = self.listed(listing)
            if present != known[listing]:
                known[listing] = present
                callback(listing)

        def look_at_all() -> None:
            for listing in BESIDE_TOOLS:
                look(listing)

        return _both(self._source.watch_listing(look), self._groups.watch(look_at_all))

    def watch_news(self, callback: Callable[[News], None]) -> Callable[[], None]:
        """See `OfferSource`."""
        return self._source.watch_news(callback)

    def leave(self, client: Client) -> None:
        """See `OfferSource`."""
        self._source.leave(client)


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def forget() -> None:
        first()
        second()

    return forget
