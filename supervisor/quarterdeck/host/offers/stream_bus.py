"""What carries changes to the streams of clients of 2026-07-28, which the SDK serves (`ListenHandler`)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import anyio
from mcp.server.subscriptions import ServerEvent

from quarterdeck_protocol.tools import ANONYMOUS, Client

Listener = Callable[[ServerEvent], None]


class StreamBus:
    """Tells all streams, or those alone that subscribed; the SDK's `SubscriptionBus`."""

    def __init__(self) -> None:
        """Nobody listens."""
        self._listeners: dict[object, tuple[Client, Listener]] = {}

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Tell the stream in whose `streaming_to` this is called; returns what ends that, and may be repeated."""
        key = object()
        self._listeners[key] = _client.get(), listener
        return lambda: (self._listeners.pop(key, None), None)[1]

    async def publish(self, event: ServerEvent, concerns: Callable[[Client], bool] = lambda _: True) -> None:
        """Tell the streams of the clients that it concerns; each can write before the next event is told."""
        for client, listener in tuple(self._listeners.values()):
            if concerns(client):
                listener(event)
        await anyio.lowlevel.checkpoint()


@contextmanager
def streaming_to(client: Client) -> Iterator[None]:
    """Within the block, the stream that begins is that of this client."""
    token = _client.set(client)
    try:
        yield
    finally:
        _client.reset(token)


_client: ContextVar[Client] = ContextVar("quarterdeck_stream", default=ANONYMOUS)
