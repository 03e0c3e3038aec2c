"""Which news of servers concern which client, and how they are told; log lines, with the requests that asked for them.

`host.session.news` tells clients the rest.
"""

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Raw

from quarterdeck.common.uri_routes import split_prefixed
from quarterdeck_protocol.names import QUALIFIER
from quarterdeck_protocol.offers import (
    LEVELS,
    ListAnnounced,
    Listing,
    LogLine,
    News,
    OfferSource,
    ResourceUpdated,
    ServerNote,
)
from quarterdeck_protocol.tools import Client

DEFAULT_LEVEL: Final = "info"
"""From which on a client of an older era is told log lines before it says from which."""


class LogStreams:
    """The requests of clients of 2026-07-28 that are under way and asked for log lines.

    Programs that share a token are parts of one client, by their own word about themselves: each is told what servers
    say while a request of its own is under way there, and nothing of another's.
    """

    def __init__(self, offers: OfferSource) -> None:
        """Of what the servers of `offers` say; it is listened to while there is any such request."""
        self._offers = offers
        self._open: dict[str, dict[object, tuple[Client, str, Callable[[bytes], None]]]] = {}
        self._unwatch: Callable[[], None] | None = None

    def open(self, client: Client, level: str, tell: Callable[[bytes], None]) -> Callable[[], None]:
        """Tell this client log lines from `level` on with its request by `tell`; returns what ends that."""
        key = object()
        if self._unwatch is None:
            self._unwatch = self._offers.watch_news(self._on_news)
        self._open.setdefault(client.address, {})[key] = client, level, tell

        def close() -> None:
            streams = self._open.get(client.address, {})
            streams.pop(key, None)
            if not streams:
                self._open.pop(client.address, None)
            if not self._open and self._unwatch is not None:
                self._unwatch()
                self._unwatch = None

        return close

    def _on_news(self, news: News) -> None:
        if not isinstance(news, LogLine):
            return
        for address in news.clients:
            streams = tuple(self._open.get(address, {}).values())
            # Which of a program's requests a line belongs to nobody says: it is told once, with the one begun last.
            wanted = next((each for each in reversed(streams) if concerns(news, each[0], each[1])), None)
            if wanted is not None:
                wanted[2](notification_of(news))


def concerns(news: News, client: Client, level: str = DEFAULT_LEVEL) -> bool:
    """Whether a client is to be told a piece of news, log lines from `level` on; of nothing that it may not use."""
    if not client.allows_some_of(news.server):
        return False
    match news:
        case ResourceUpdated():
            return client.address in news.clients and _may_read(client, news)
        case LogLine():
            is_serious = news.level not in LEVELS or LEVELS.index(news.level) >= _rank(level)
            return is_serious and (not news.clients or client.address in news.clients)
        case ServerNote():
            return not news.clients or client.address in news.clients
        case ListAnnounced():
            return not news.clients or client.key in news.clients


def _may_read(client: Client, news: ResourceUpdated) -> bool:
    """Whether a client still may: what it may use can have become less since it subscribed."""
    _, own = split_prefixed(news.uri) or ("", news.uri)
    return client.allows(f"{news.server}{QUALIFIER}{own}", Listing.RESOURCES)


def _rank(level: str) -> int:
    """Of a level that a client chose; one that there is not counts as the default."""
    return LEVELS.index(level if level in LEVELS else DEFAULT_LEVEL)


def notification_of(news: News) -> bytes:
    """The notification that tells a piece of news; a log line's logger begins with its server."""
    match news:
        case ResourceUpdated(uri=uri):
            return _notification("notifications/resources/updated", {"uri": uri})
        case LogLine(server, level, logger, data):
            named = f"{server}/{logger}" if logger else server
            return _notification("notifications/message", {"level": level, "logger": named, "data": Raw(data)})
        case ServerNote(method=method, params=params):
            return _notification(method, Raw(params or b"{}"))
        case ListAnnounced():
            return _notification(news.method, {})


def _notification(method: str, params: object) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params})
