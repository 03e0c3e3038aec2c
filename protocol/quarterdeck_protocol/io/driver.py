"""Drive a link with a clock and a timer: the whole edge around the sans-IO session, for both ends."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from quarterdeck_protocol.link.events import LinkEvent, Refusal
from quarterdeck_protocol.link.frames import Condemn, News, Reply, Request
from quarterdeck_protocol.link.session import Link


class Way(Protocol):
    """Where a link's messages leave, and how what waits is fetched before the peer is judged."""

    def send(self, parts: Sequence[bytes]) -> None:
        """Send one message."""
        ...

    def drain(self) -> None:
        """Deliver what has arrived already."""
        ...


class LinkDriver:
    """A running link.  Events are handed to `on_event` from the loop, in order."""

    def __init__(self, link: Link, way: Way, on_event: Callable[[LinkEvent], None]) -> None:
        self.link = link
        self._way = way
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._closed = False
        self._waited_s: Callable[[], float] = lambda: 0.0
        self._flush(self._loop.time())
        self._arm()

    def expect(self, waited_s: Callable[[], float]) -> None:
        """The peer begins to exist now; `waited_s` tells for how long it has waited for a processor since."""
        self._waited_s = waited_s
        self.link.expect(self._loop.time(), waited_s())
        self._arm()

    def receive(self, parts: Sequence[bytes]) -> None:
        """Take one message of the peer's."""
        now = self._loop.time()
        events = self.link.receive(parts, now)
        self._flush(now)
        for event in events:
            self._on_event(event)
        self._arm()

    def request(self, frame: Request, body: bytes = b"") -> Refusal | None:
        """See `Link.request`."""
        now = self._loop.time()
        refusal = self.link.request(frame, body, now)
        self._flush(now)
        if self._timer is None or now + frame.timeout_s < self._timer_at:
            self._arm()
        return refusal

    def cancel(self, request_id: int, reason: str = "") -> bool:
        """See `Link.cancel`."""
        unsent = self.link.cancel(request_id, reason)
        self._flush(self._loop.time())
        return unsent

    def reply(self, frame: Reply, body: bytes = b"") -> None:
        """See `Link.reply`."""
        self.link.reply(frame, body)
        self._flush(self._loop.time())

    def post(self, frame: News | Condemn, body: bytes = b"") -> bool:
        """See `Link.post`."""
        taken = self.link.post(frame, body)
        self._flush(self._loop.time())
        return taken

    def catch_up(self) -> None:
        """Take what has arrived but was not read yet, before the peer is called dead."""
        self._way.drain()

    def close(self) -> None:
        """Stop the timer; the link is left as it is."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _flush(self, now: float) -> None:
        for parts in self.link.take(now):
            self._way.send(parts)

    def _arm(self) -> None:
        # Only the handshake and requests, ours or the peer's, bring the next ring forward; what is sent puts it off.
        # A timer that rings early is re-armed; only an earlier one is worth replacing.
        wake_at = self.link.wake_at
        if self._closed or wake_at == float("inf"):
            return
        if self._timer is not None:
            if self._timer_at <= wake_at:
                return
            self._timer.cancel()
        self._timer_at = wake_at
        self._timer = self._loop.call_at(wake_at, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._way.drain()
        if self._closed:
            return
        now = self._loop.time()
        events = self.link.tick(now, self._waited_s())
        self._flush(now)
        self._arm()
        for event in events:
            self._on_event(event)
