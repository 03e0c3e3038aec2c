"""The groups of a configuration as they are now, and clients that are shown no more than some of them.

A group narrows a client as a token does: what it does not have is neither listed nor answered, nor told of.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from quarterdeck.common.watchers import Watchers
from quarterdeck.config.groups import Group, Groups
from quarterdeck_protocol.mcp.tasks import TaskSupport
from quarterdeck_protocol.offers import Listing, News, Offered, OfferSource, RawRequest
from quarterdeck_protocol.tools import (
    Allowance,
    Client,
    Deliver,
    PendingCall,
    ToolDescriptor,
    ToolSource,
)

from .sources import ForwardingSource

_BESIDE_TOOLS: Final = (Listing.PROMPTS, Listing.RESOURCES, Listing.TEMPLATES)


class LiveGroups:
    """The groups of the moment.

    Attributes:
        current: by their names.
    """

    def __init__(self, groups: Groups) -> None:
        self.current = groups
        self._watchers: Final = Watchers("groups", logging.getLogger("quarterdeck.host"))

    def take(self, groups: Groups) -> None:
        """Have these from now on; who watches is told when they are others."""
        if groups != self.current:
            self.current = groups
            self._watchers.tell("")

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change; returns what unregisters it."""
        return self._watchers.watch(callback)

    def narrow(self, client: Client, *choices: Sequence[str]) -> Client:
        """The client, shown no more than each choice has: the groups of these names together; an empty one is none."""
        allowance = client.allowance
        for names in filter(None, choices):
            allowance = GroupAllowance(self, names, allowance)
        return client if allowance is client.allowance else msgspec.structs.replace(client, allowance=allowance)


class GroupAllowance:
    """What the groups of these names have together, as far as `within` allows it; an unknown one has nothing."""

    def __init__(self, groups: LiveGroups, names: Iterable[str], within: Allowance | None = None) -> None:
        self._groups = groups
        self._names = tuple(names)
        self._within = within

    @property
    def words(self) -> str:
        """See `Allowance`."""
        said = f"the group{'s' * (len(self._names) > 1)} {', '.join(map(repr, self._names))}"
        return said if self._within is None else f"{self._within.words} in {said}"

    @property
    def max_result_bytes(self) -> int | None:
        """See `Allowance`."""
        return self._within.max_result_bytes if self._within is not None else None

    def allows(self, name: str, listing: str = Listing.TOOLS) -> bool:
        """See `Allowance`."""
        if self._within is not None and not self._within.allows(name, listing):
            return False
        return any(group.has(name, Listing(listing)) for group in self._present())

    def allows_some_of(self, server: str) -> bool:
        """See `Allowance`."""
        if self._within is not None and not self._within.allows_some_of(server):
            return False
        return any(group.has_some_of(server) for group in self._present())

    def _present(self) -> list[Group]:
        current = self._groups.current
        return [current[name] for name in self._names if name in current]


class AllowedTools(ForwardingSource):
    """The tools of a source that one client may use: all that it is shown, and is told of when it changes."""

    def __init__(self, source: ToolSource, client: Client, groups: LiveGroups) -> None:
        super().__init__(source)
        self._client = client
        self._groups = groups
        self._seen: tuple[object, object, Sequence[ToolDescriptor]] = (None, None, ())

    def descriptors(self) -> Sequence[ToolDescriptor]:
        """Those of the source; the same tuple until one of them, or a group, changes."""
        tools, groups = self._source.descriptors(), self._groups.current
        if tools is not self._seen[0] or groups is not self._seen[1]:
            allowed = tuple(tool for tool in tools if self._client.allows(self._source.own(tool.name)))
            self._seen = tools, groups, allowed
        return self._seen[2]

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each change of the source or of a group."""
        unwatch, forget = self._source.watch(callback), self._groups.watch(callback)
        return lambda: (unwatch(), forget(), None)[2]


class AllowedOffers(OfferSource):
    """What servers have beside tools, as far as one client may use it; all else of a source is of its requests."""

    def __init__(self, source: OfferSource, client: Client, groups: LiveGroups) -> None:
        self._source = source
        self._client = client
        self._groups = groups

    def listed(self, listing: Listing) -> Sequence[Offered]:
        """See `OfferSource`."""
        return tuple(each for each in self._source.listed(listing) if self._client.allows(each.qualified, listing))

    def watch_listing(self, callback: Callable[[Listing], None]) -> Callable[[], None]:
        """See `OfferSource`; a change of what the client may not use is none."""
        known = {listing: self.listed(listing) for listing in _BESIDE_TOOLS}

        def look(listing: Listing) -> None:
            present = self.listed(listing)
            if present != known[listing]:
                known[listing] = present
                callback(listing)

        def look_at_all() -> None:
            for listing in _BESIDE_TOOLS:
                look(listing)

        unwatch, forget = self._source.watch_listing(look), self._groups.watch(look_at_all)
        return lambda: (unwatch(), forget(), None)[2]

    def watch_news(self, callback: Callable[[News], None]) -> Callable[[], None]:
        """See `OfferSource`."""
        return self._source.watch_news(callback)

    def begin(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """See `OfferSource`."""
        return self._source.begin(request, deliver)

    def subscribe(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """See `OfferSource`."""
        return self._source.subscribe(request, deliver)

    def unsubscribe(self, client: Client, uri: str) -> None:
        """See `OfferSource`."""
        self._source.unsubscribe(client, uri)

    def server_of(self, request: RawRequest) -> str:
        """See `OfferSource`."""
        return self._source.server_of(request)

    def task_support(self, client: Client, tool: str = "") -> TaskSupport:
        """See `OfferSource`."""
        return self._source.task_support(client, tool)

    def watch_task(self, request: RawRequest, tell: Callable[[bytes], None]) -> Callable[[], None] | None:
        """See `OfferSource`."""
        return self._source.watch_task(request, tell)

    def tool_of_task(self, client: Client, task: str) -> str:
        """See `OfferSource`."""
        return self._source.tool_of_task(client, task)

    def may_hold(self, tool: str) -> bool:
        """See `OfferSource`."""
        return self._source.may_hold(tool)

    def leave(self, client: Client) -> None:
        """See `OfferSource`."""
        self._source.leave(client)

    def set_level(self, client: Client, level: str) -> None:
        """See `OfferSource`."""
        self._source.set_level(client, level)

    def tell_roots_changed(self, client: Client) -> None:
        """See `OfferSource`."""
        self._source.tell_roots_changed(client)

    def close(self) -> None:
        """See `OfferSource`."""
        self._source.close()
