"""Check a server's notifications once more, turn them into what clients are told, and call their watchers.

The worker has bounded them; a worker that has not is no longer ours.
"""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from quarterdeck_protocol.link.frames import Log, Note, Updated
from quarterdeck_protocol.mcp.client.notes import MAX_NOTE_BYTES
from quarterdeck_protocol.mcp.jsonrpc import BodyError, check_object
from quarterdeck_protocol.offers import LogLine, News, ResourceUpdated, ServerNote

MAX_SHOWN_CHARS: Final = 8_192
"""Characters of a server's log line in our own log."""

_log = logging.getLogger("quarterdeck.fleet")

TakeNews = Callable[[News], None]


class NewsWatchers:
    """The watchers of servers' notifications; one that fails is logged, and delays no other."""

    def __init__(self) -> None:
        self._callbacks: dict[object, TakeNews] = {}

    def watch(self, callback: TakeNews) -> Callable[[], None]:
        """Call `callback` with each piece of news; returns what unregisters it, which may be repeated."""
        key = object()
        self._callbacks[key] = callback
        return lambda: (self._callbacks.pop(key, None), None)[1]

    def tell(self, news: News) -> None:
        """Call the watchers."""
        for callback in (*self._callbacks.values(),):
            try:
                callback(news)
            except Exception:
                _log.exception("a watcher of what %s says failed", news.server)


def news_of(server: str, said: Log | Note | Updated, body: bytes, clients: frozenset[str]) -> News:
    """Return what clients are told; `clients` are the keys of those it may be for. Raise BodyError if it is unfit."""
    match said:
        case Log(level=level, logger=logger):
            return LogLine(server, level, logger, _checked_value(body), clients)
        case Note(method=method):
            if body:
                check_object(body, max_bytes=MAX_NOTE_BYTES)
            return ServerNote(server, method, body, clients)
        case Updated(uri=uri):
            return ResourceUpdated(server, uri, clients)


def shown(line: LogLine) -> str:
    """Return a log line's data as text for our own log."""
    is_text = line.data.lstrip().startswith(b'"')
    text = msgspec.json.decode(line.data, type=str) if is_text else line.data.decode()
    return text[:MAX_SHOWN_CHARS]


def _checked_value(body: bytes) -> bytes:
    members = check_object(b'{"data":%s}' % body, max_bytes=MAX_NOTE_BYTES)
    if bytes(members["data"]).strip() != body.strip():
        raise BodyError("not one JSON value")
    return body
