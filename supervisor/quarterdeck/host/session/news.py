"""Tell a client what it did not ask for: a legacy session as its client listed and subscribed, or one stream of
2026-07-28 as its request says.

A change of a list, and a changed resource of a stream, wait until a slow client has room, each once.  All else that
servers say is dropped where there is none.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from quarterdeck.host.offers.content import DEBOUNCE_S, Content
from quarterdeck.host.offers.offer_news import DEFAULT_LEVEL, concerns, notification_of
from quarterdeck.host.offers.views import ClientTools
from quarterdeck.route.catalogue import are_same
from quarterdeck_protocol.mcp.server.answers import notification
from quarterdeck_protocol.mcp.server.subscriptions import MAX_RESOURCES, ChangeStream
from quarterdeck_protocol.offers import ListAnnounced, Listing, News, ResourceUpdated
from quarterdeck_protocol.tools import Client, ToolDescriptor

from .work import Outlet

MAX_WAITING: Final = MAX_RESOURCES + 64
"""Messages that wait for a slow client: changes of its resources and lists, and states of tasks."""

_CHANGED: Final = {
    Listing.TOOLS: "notifications/tools/list_changed",
    Listing.PROMPTS: "notifications/prompts/list_changed",
    Listing.RESOURCES: "notifications/resources/list_changed",
    Listing.TEMPLATES: "notifications/resources/list_changed",
}


class ToolChanges:
    """Notices when the tools that a client knows are others: once for each change, the first at once."""

    def __init__(self, tools: ClientTools, tell: Callable[[], None], *, is_awaited: bool = False) -> None:
        """Watch.

        Args:
            tools: as the client is shown them.
            tell: called when they are others than the client knows.
            is_awaited: whether a client knows an earlier list.  Nothing is told before one was shown or asked for:
                while a fleet starts there is a change per server.
        """
        self._tools = tools
        self._tell = tell
        self._is_awaited = is_awaited
        self._told: Sequence[ToolDescriptor] = tuple(tools.descriptors())
        self._is_doubtful = self._is_stirred = False
        self._soon: asyncio.Handle | None = None
        self._unwatch = tools.watch(self._stir)

    def listed(self) -> None:
        """The client is shown the tools of this moment."""
        present = self._tools.descriptors()
        if self._is_awaited:
            self._is_doubtful = self._is_doubtful or not are_same(present, self._told)
        else:
            self._is_awaited, self._told = True, tuple(present)

    def close(self) -> None:
        """Watch no longer."""
        self._unwatch()
        if self._soon is not None:
            self._soon.cancel()

    def _stir(self) -> None:
        self._is_stirred = True
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._soon = None
        if not self._is_stirred:
            return
        self._is_stirred = False
        present = tuple(self._tools.descriptors())
        # A box may tell of anything: that it has the same tools again is no news.
        is_news = self._is_doubtful or not are_same(present, self._told)
        self._told, self._is_doubtful = present, False
        if is_news and self._is_awaited:
            self._tell()
            self._soon = asyncio.get_running_loop().call_later(DEBOUNCE_S, self._look)


class ClientNews:
    """What one client is told.

    Attributes:
        client: who it is.
        level: from which on a legacy session is told log lines.
        is_open: whether it may be told anything yet.
    """

    def __init__(
        self,
        content: Content,
        client: Client,
        outlet: Outlet,
        *,
        stream: ChangeStream | None = None,
        resources: Sequence[str] = (),
        knows_tools: bool = False,
    ) -> None:
        """Begin to listen.

        Args:
            content: what there is to be told of.
            client: who is told.
            outlet: where it is told.
            stream: of 2026-07-28; None for a legacy session.
            resources: that the stream is subscribed to.
            knows_tools: whether the client was shown a list of tools before this.
        """
        self.client = client
        self.level = DEFAULT_LEVEL
        self.is_open = stream is not None
        self._outlet = outlet
        self._stream = stream
        self._resources = frozenset(resources)
        self._listed: set[Listing] = set()
        self._changed: dict[bytes, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._unwatch: list[Callable[[], None]] = []
        self._tools: ToolChanges | None = None
        if content.box.can_change:
            tools = content.tools_for(client)
            self._tools = ToolChanges(tools, self.tell_tools, is_awaited=knows_tools or stream is not None)
            self._unwatch.append(self._tools.close)
        if (offers := content.offers_for(client)) is not None:
            self._unwatch += [offers.watch_listing(self._on_list), offers.watch_news(self._on_news)]

    def listed(self, listing: Listing) -> None:
        """The client is shown this list: it is to be told when that changes."""
        if listing is not Listing.TOOLS:
            self._listed.add(listing)
        elif self._tools is not None:
            self._tools.listed()

    def tell_tools(self) -> None:
        """Tell that the tools are others."""
        self._change(Listing.TOOLS)

    def close(self) -> None:
        """Listen no longer."""
        for unwatch in self._unwatch:
            unwatch()
        self._unwatch.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _on_list(self, listing: Listing) -> None:
        if self._stream is not None or listing in self._listed:
            self._change(listing, after_s=DEBOUNCE_S)

    def _on_news(self, news: News) -> None:
        if not self.is_open or not concerns(news, self.client, self.level):
            return
        if self._stream is None:
            if not isinstance(news, ListAnnounced) and not self._outlet.is_congested:
                self._outlet.tell(notification_of(news))
        elif isinstance(news, ListAnnounced):
            self._change(news.listing)
        elif isinstance(news, ResourceUpdated) and news.uri in self._resources:
            self.tell(self._stream.message("notifications/resources/updated", {"uri": news.uri}))

    def _change(self, listing: Listing, after_s: float = 0.0) -> None:
        method = _CHANGED[listing]
        if not self.is_open or (self._stream is not None and not self._stream.wants(method)):
            return
        self.tell(notification(method) if self._stream is None else self._stream.message(method, {}), after_s)

    def tell(self, message: bytes, after_s: float = 0.0) -> None:
        """Tell this, later where there is no room or it may be told with others; the same message once.

        One that finds too many waiting is dropped.
        """
        if self._timer is None and not after_s and not self._outlet.is_congested:
            self._outlet.tell(message)
            return
        if len(self._changed) < MAX_WAITING:
            self._changed[message] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(after_s or DEBOUNCE_S, self._tell_changed)

    def _tell_changed(self) -> None:
        self._timer = None
        if self._outlet.is_congested:
            self._timer = asyncio.get_running_loop().call_later(DEBOUNCE_S, self._tell_changed)
            return
        changed, self._changed = self._changed, {}
        for message in changed:
            self._outlet.tell(message)
