"""What the clients of the SDK's sessions are told of servers' other offers: by session, or on the streams they opened.

`offer_news` does the same for one client over lines, in an older era; its clients of 2026-07-28 are served here.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged, ServerEvent, ToolsListChanged
from mcp.server.subscriptions import ResourceUpdated as ResourceUpdatedEvent

from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.offers import (
    ListAnnounced,
    Listing,
    LogLine,
    News,
    OfferSource,
    RawRequest,
    ResourceUpdated,
    ServerNote,
)
from quarterdeck_protocol.tools import Client

from .calls import Drain, end_of
from .offers.client_sessions import TELL_S
from .offers.groups import LiveGroups
from .offers.offer_news import DEBOUNCE_S, DEFAULT_LEVEL, concerns, notification_of
from .offers.stream_bus import StreamBus, streaming_to
from .offers.views import ClientOffers

MAX_WAITING: Final = 1024
"""News that clients wait to be told of; more is dropped: none of it is lost with a server."""

MAX_WAITING_BYTES: Final = 4 * 1024 * 1024
"""Of those, as much as a client on lines may leave unread."""

MAX_WAITING_EACH: Final = 256
"""Notifications that wait for one session to be told; more are dropped."""

MAX_WAITING_EACH_BYTES: Final = 1024 * 1024
"""Of those."""

MAX_LISTENED: Final = 200
"""Resources that one stream of changes may name; of more, these are told of."""

SUBSCRIBE_S: Final = 10.0
"""How long servers may take to subscribe what a stream names, before it is acknowledged all the same."""

_EVENTS: Final[dict[Listing, ServerEvent]] = {
    Listing.TOOLS: ToolsListChanged(),
    Listing.PROMPTS: PromptsListChanged(),
    Listing.RESOURCES: ResourcesListChanged(),
    Listing.TEMPLATES: ResourcesListChanged(),
}

_METHODS: Final = {
    Listing.PROMPTS: "notifications/prompts/list_changed",
    Listing.RESOURCES: "notifications/resources/list_changed",
    Listing.TEMPLATES: "notifications/resources/list_changed",
}


class _Listener:
    """One session of an older era, told in the order of what it is told; how slowly it reads is its own affair."""

    def __init__(self, session: ServerSession, client: Client) -> None:
        self.session = session
        self.client = client
        self.level = DEFAULT_LEVEL
        self.listed: set[Listing] = set()
        self._waiting: deque[tuple[str, object, int]] = deque()
        self._waiting_bytes = 0
        self._is_being_told = False

    def tell(self, tasks: TaskGroup, method: str, params: object, size_bytes: int = 0) -> None:
        """Have it told this, unless it waits for too much already; of changes, which have no params, once."""
        if params is None:
            is_left_out = any(waiting[:2] == (method, None) for waiting in self._waiting)
        else:
            waiting_bytes = self._waiting_bytes + size_bytes
            is_left_out = len(self._waiting) >= MAX_WAITING_EACH or waiting_bytes > MAX_WAITING_EACH_BYTES
        if is_left_out:
            return
        self._waiting.append((method, params, size_bytes))
        self._waiting_bytes += size_bytes
        if not self._is_being_told:
            self._is_being_told = True
            tasks.start_soon(self._tell_waiting)

    def forget(self) -> None:
        """Tell it nothing more."""
        self._waiting.clear()
        self._waiting_bytes = 0

    async def _tell_waiting(self) -> None:
        # Private, but the only way to a notification that the SDK does not rebuild (mcp 2.3).
        connection = self.session._connection  # noqa: SLF001
        try:
            while self._waiting:
                method, params, size_bytes = self._waiting.popleft()
                self._waiting_bytes -= size_bytes
                with anyio.move_on_after(TELL_S):
                    await connection.notify(method, params if isinstance(params, dict) else None)
        finally:
            self._is_being_told = False


class SessionNews:
    """See the module."""

    def __init__(self, offers: OfferSource | ClientOffers, bus: StreamBus, groups: LiveGroups | None = None) -> None:
        """Nobody is there yet; with `groups`, a change of them may be one of each list."""
        self._groups = groups or LiveGroups({})
        self._offers = offers
        self._bus = bus
        self._listeners: dict[Connection, _Listener] = {}

    def admit(self, connection: Connection, session: ServerSession, client: Client) -> None:
        """Count a session of an older era until its connection ends."""
        if connection not in self._listeners:
            self._listeners[connection] = _Listener(session, client)
            connection.exit_stack.callback(self._left, connection)

    def set_level(self, connection: Connection, level: str) -> None:
        """From which level on this session is told log lines."""
        if (listener := self._listeners.get(connection)) is not None:
            listener.level = level

    def listed(self, connection: Connection, listing: Listing) -> None:
        """This session was given a list."""
        if (listener := self._listeners.get(connection)) is not None:
            listener.listed.add(listing)

    async def tell(self) -> None:
        """Tell all of them what there is to be told; never returns, ends by cancellation."""
        changed: dict[Listing, None] = {}
        waiting: list[News] = []
        waiting_bytes = 0
        stirred = asyncio.Event()

        def on_list(listing: Listing) -> None:
            changed[listing] = None
            stirred.set()

        def on_groups() -> None:
            for listing in _METHODS:
                on_list(listing)

        def on_news(news: News) -> None:
            nonlocal waiting_bytes
            size = _size_of(news)
            if len(waiting) < MAX_WAITING and waiting_bytes + size <= MAX_WAITING_BYTES:
                waiting.append(news)
                waiting_bytes += size
                stirred.set()

        async with anyio.create_task_group() as tasks:
            with ExitStack() as stack:
                stack.callback(self._offers.watch_listing(on_list))
                stack.callback(self._offers.watch_news(on_news))
                stack.callback(self._groups.watch(on_groups))
                while True:
                    await stirred.wait()
                    stirred.clear()
                    taken, waiting_bytes = tuple(waiting), 0
                    waiting.clear()
                    for news in taken:
                        await self._tell_news(tasks, news)
                    kinds = tuple(changed)
                    changed.clear()
                    for listing in kinds:
                        await self._bus.publish(_EVENTS[listing])
                        for each in tuple(self._listeners.values()):
                            if listing in each.listed:
                                each.tell(tasks, _METHODS[listing], None)
                    if kinds:
                        await asyncio.sleep(DEBOUNCE_S)

    async def _tell_news(self, tasks: TaskGroup, news: News) -> None:
        if isinstance(news, ListAnnounced):
            # Streams get each list that a server announces; legacy sessions get only lists that have changed.
            await self._bus.publish(_EVENTS[news.listing], lambda client: concerns(news, client))
            return
        if isinstance(news, ResourceUpdated):
            await self._bus.publish(ResourceUpdatedEvent(uri=news.uri), lambda client: concerns(news, client))
        those = [each for each in self._listeners.values() if concerns(news, each.client, each.level)]
        if those:
            message = msgspec.json.decode(notification_of(news), type=dict[str, object])
            for each in those:
                each.tell(tasks, str(message["method"]), message["params"], _size_of(news))

    def _left(self, connection: Connection) -> None:
        listener = self._listeners.pop(connection, None)
        if listener is not None:
            listener.forget()
            self._offers.leave(listener.client)


@asynccontextmanager
async def subscribed(
    offers: OfferSource | None, client: Client, uris: Sequence[str], drain: Drain
) -> AsyncIterator[list[str]]:
    """Subscribe what a stream of changes names while it is open; yields what of it is told of.

    What was refused is not: nobody tells it.
    """
    if offers is None:
        yield []
        return
    # Not by the request's id: programs that share a token use the same ones.
    holder = msgspec.structs.replace(client, part=f"stream {next(_streams)}")
    wanted = tuple(dict.fromkeys(map(str, uris[:MAX_LISTENED])))
    refused: set[str] = set()

    async def subscribe(uri: str) -> None:
        asked = RawRequest("resources/subscribe", msgspec.json.encode({"uri": uri}), client=holder)
        if isinstance(await end_of(partial(offers.subscribe, asked), drain), ProtocolFault):
            refused.add(uri)

    try:
        # Before the stream is acknowledged: what changes from then on is told.
        with anyio.move_on_after(SUBSCRIBE_S):
            async with anyio.create_task_group() as tasks:
                for uri in wanted:
                    tasks.start_soon(subscribe, uri)
        with streaming_to(holder):
            yield [uri for uri in wanted if uri not in refused]
    finally:
        offers.leave(holder)


def _size_of(news: News) -> int:
    """Of what a server wrote, about."""
    match news:
        case LogLine(data=data):
            return len(data)
        case ServerNote(params=params):
            return len(params)
        case ResourceUpdated(uri=uri):
            return len(uri)
        case ListAnnounced():
            return 0


_streams: Final = itertools.count(1)
"""Of this process: streams of changes are told apart by it."""
