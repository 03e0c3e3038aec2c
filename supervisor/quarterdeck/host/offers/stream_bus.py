"""What carries changes to the streams of clients of 2026-07-28, which the SDK serves (`ListenHandler`)."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import anyio
from mcp.server.subscriptions import ServerEvent

Listener = Callable[[ServerEvent], None]


class StreamBus:
    """Tells all streams, or those alone that subscribed; the SDK's `SubscriptionBus`."""

    def __init__(self) -> None:
        """Nobody listens."""
        self._listeners: dict[object, tuple[str, Listener]] = {}

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Tell the stream in whose `streaming_to` this is called; returns what ends that, and may be repeated."""
        key = object()
        self._listeners[key] = _address.get(), listener
        return lambda: (self._listeners.pop(key, None), None)[1]

    async def publish(self, event: ServerEvent, addresses: Collection[str] | None = None) -> None:
        """Tell the streams of these addresses, by default all; each can write before the next event is told."""
        for address, listener in tuple(self._listeners.values()):
            if addresses is None or address in addresses:
                listener(event)
        await anyio.lowlevel.checkpoint()


@contextmanager
def streaming_to(address: str) -> Iterator[None]:
    """Within the block, the stream that begins is that of this address; see `Client.address`."""
    token = _address.set(address)
    try:
        yield
    finally:
        _address.reset(token)


_address: ContextVar[str] = ContextVar("quarterdeck_stream", default="")
