"""A link's way to its socket, and its clock.  Impure, as `event_loop.py` and `tls.py` are.

`Channel` is one connection: ZeroMQ's wire protocol over a non-blocking socket.  Both ends are made of it, the worker's
one and each that the supervisor accepted.  libzmq passes every message through a thread of its own, which costs two
wakes (tests/bench), and bounds neither the parts of a message nor what is unsent.  `LinkDriver` gives a link the time.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from math import inf
from time import monotonic
from typing import Final, Protocol

from .link.events import LinkEvent, Refusal, Requester
from .link.frames import News, Reply, Request, Told
from .link.session import PAUSE_S, Link
from .link.zmtp import MessageBuffer, ZmtpError, encode_message
from .moments import REST_S, last_moment

READ_BYTES: Final = 64 * 1024
"""One read; what more there is waits for the loop's next turn."""

BATCH: Final = 128
"""Messages handed out before the loop's other work gets its turn."""

MAX_DRAIN: Final = 64
"""Batches taken before the peer is judged."""

MAX_BUFFERS: Final = 256
"""Buffers in one write; Linux takes 1,024."""

BURST_S: Final = 0.0003
"""A message that follows another so closely waits for those behind it: many begin or end in one turn of the loop."""

TOGETHER: Final = 16
"""Buffers that wait for no further one: their reader works on them while the others are made."""

MAX_UNSENT: Final = 16_384
"""Buffers that may wait for a peer to read.  The link's credit bounds them to half as many, and their bytes; but what
grants credit and what beats costs none, and would pile up for a peer that never reads."""

OnMessage = Callable[[list[bytes]], None]
OnEnd = Callable[[Exception], None]


class Channel:
    """One connection's traffic."""

    def __init__(self, sock: socket.socket, messages: MessageBuffer, on_message: OnMessage, on_end: OnEnd) -> None:
        """Take `sock` over; nothing is sent or read before `begin`, and only `close` closes it.

        `on_message` gets the parts of one message and must not raise. `on_end` gets, once, the reason why nothing more
        will come: the peer is gone (`OSError`), or broke a rule (`ZmtpError`).
        """
        sock.settimeout(0)
        self.messages = messages
        self.on_message = on_message
        self.on_end = on_end
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[bytes | memoryview] = deque()
        self._sent_at = 0.0
        self._incoming: Iterator[list[bytes]] = iter(())
        self._is_open = self._is_over = self._is_due = self._is_full = False

    def begin(self, handshake: bytes) -> None:
        """The socket is connected: greet the peer, and listen."""
        self._is_open = True
        self._loop.add_reader(self._socket, self._readable)
        try:
            self._socket.send(handshake)  # the first bytes in an empty buffer
        except OSError:
            pass  # it has hung up already, as is read next

    def send(self, parts: Sequence[bytes]) -> None:
        """Send in order, once the peer is ready; what the socket does not take now is kept, up to a bound.

        A message on its own leaves at once, those that follow it closely leave together after the loop's turn.
        """
        if self._is_over:
            return
        waiting = len(self._unsent)
        self._unsent += encode_message(parts)
        if waiting:
            self._wait_together(waiting)
        elif monotonic() < self._sent_at + BURST_S:
            self._loop.call_soon(self._flush)
        else:
            self._flush()

    def drain(self) -> None:
        """Take what waits in the socket, now; a flood's rest waits for the next turn."""
        for _ in range(MAX_DRAIN):
            if not self._take():
                return

    def close(self, linger_s: float = 0.0) -> None:
        """Leave the loop and hang up; what is unsent blocks for at most `linger_s`, then it is lost."""
        if self._is_over:
            return
        if self._is_open:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._is_open, self._is_over = False, True
        if linger_s and self._unsent:
            self._socket.settimeout(linger_s)
            try:
                self._socket.sendall(b"".join(self._unsent))
            except OSError:
                pass  # the peer does not read, or is gone
        self._unsent.clear()
        self._socket.close()

    def _wait_together(self, waiting: int) -> None:
        """Leave what is to be sent behind so many buffers, until they are enough for their reader, or too many."""
        if waiting > MAX_UNSENT:
            self.close()
            error = ZmtpError(f"it leaves more than {MAX_UNSENT:,} messages unread")
            self._loop.call_soon(self.on_end, error)  # not from here: whoever sends is in the middle of something
        elif waiting >= TOGETHER and not self._is_full:
            self._flush()

    def _readable(self) -> None:
        if not self.messages.has_more:
            self._take()

    def _take_more(self) -> None:
        self._is_due = False
        if self.messages.has_more:
            self._take()

    def _take(self) -> bool:
        """Hand out what has come, a batch at most; False when there was nothing, or it was the last."""
        messages = self.messages
        if not self._is_open:
            return False
        if not messages.has_more:
            try:
                data = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                return False
            except OSError as error:
                self._lose(error)
                return False
            if not data:
                self._lose(ConnectionResetError("the peer hung up"))
                return False
            self._incoming = messages.pull(data)
        try:
            for parts in islice(self._incoming, BATCH):
                self.on_message(parts)
                if not self._is_open:
                    return False
        except ZmtpError as error:
            self._lose(error)
            return False
        if messages.has_more and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._take_more)
        if self._unsent:
            self._flush()
        return True

    def _flush(self) -> None:
        if not self.messages.is_ready:
            return
        unsent = self._unsent
        try:
            while unsent:
                if len(unsent) > 1:
                    self._drop(self._socket.sendmsg(islice(unsent, MAX_BUFFERS)))
                elif (size := self._socket.send(unsent[0])) == len(unsent[0]):
                    unsent.popleft()
                else:
                    self._drop(size)
            self._sent_at = monotonic()
        except BlockingIOError:
            self._is_full = True
            self._loop.add_writer(self._socket, self._writable)
        except OSError:
            # The peer is gone; what it said last is still read, and then its end.
            self._unsent.clear()

    def _writable(self) -> None:
        self._is_full = False
        self._loop.remove_writer(self._socket)
        self._flush()

    def _drop(self, size: int) -> None:
        while size:
            buffer = self._unsent[0]
            if size < len(buffer):
                self._unsent[0] = memoryview(buffer)[size:]
                return
            size -= len(buffer)
            self._unsent.popleft()

    def _lose(self, error: Exception) -> None:
        self.close()
        self.on_end(error)


class Way(Protocol):
    """Where a link's messages leave, and how what waits is fetched before the peer is judged."""

    def send(self, parts: Sequence[bytes], /) -> None:
        """Send one message."""

    def drain(self) -> None:
        """Deliver what has arrived already."""


class LinkDriver:
    """A running link: hands events to `on_event` from the loop, in order; `timer` is None if nothing is awaited."""

    def __init__(self, link: Link, way: Way, on_event: Callable[[LinkEvent], None]) -> None:
        self.link = link
        self._soonest_s = link.soonest_s
        self._way = way
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self.timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
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
        now, link = monotonic(), self.link
        events = link.receive(parts, now)
        if link.ready or link.owes_credit:
            self._flush(now)
        for event in events:
            self._on_event(event)
        # What comes brings the ring forward to here at most, and mostly it is well before that.
        if now + self._soonest_s < self._timer_at or link.soonest < self._timer_at:
            self._arm()

    def request(self, frame: Request, body: bytes = b"", requester: Requester | None = None) -> Refusal | None:
        """See `Link.request`."""
        now, link = monotonic(), self.link
        refusal = link.request(frame, body, now, requester)
        if link.ready:
            self._flush(now)
        if now + self._soonest_s < self._timer_at or link.soonest < self._timer_at:
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
        self._flush(monotonic())

    def post(self, frame: News | Told, body: bytes = b"") -> bool:
        """See `Link.post`."""
        taken = self.link.post(frame, body)
        self._flush(self._loop.time())
        return taken

    def pause(self) -> None:
        """See `Link.pause`."""
        self.link.pause(self._loop.time())

    def resume(self) -> None:
        """See `Link.resume`."""
        self.link.resume(self._loop.time())
        self._arm()

    def catch_up(self) -> None:
        """Take what has arrived but was not read yet, before the peer is called dead."""
        self._way.drain()

    def close(self) -> None:
        """Stop the timer; the link is left as it is."""
        self._closed = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer, self._timer_at = None, inf

    def _flush(self, now: float) -> None:
        for parts in self.link.take(now):
            self._way.send(parts)

    def _arm(self) -> None:
        # Only the handshake and requests, ours or the peer's, bring the next ring forward; what is sent puts it off.
        # A timer that rings early is re-armed; only an earlier one is worth replacing.
        wake_at = self.link.wake_at
        if self._closed or self._timer_at <= wake_at:
            return
        if self.timer is not None:
            self.timer.cancel()
        self._timer_at = _shared(wake_at, self._loop.time())
        self.timer = self._loop.call_at(self._timer_at, self._ring)

    def _ring(self) -> None:
        now = self._loop.time()
        late_s = now - self._timer_at
        self.timer, self._timer_at = None, inf
        if now < self.link.wake_at and late_s < PAUSE_S:
            self._arm()  # what it was to judge has come meanwhile, as it mostly has
            return
        self._way.drain()
        if self._closed:
            return
        now = self._loop.time()
        events = self.link.tick(now, self._waited_s(), late_s)
        self._flush(now)
        self._arm()
        for event in events:
            self._on_event(event)


def _shared(wake_at: float, now: float) -> float:
    """Return when to ring for `wake_at`: a distant one rings early, together with others, and mostly for nothing."""
    return last_moment(wake_at, os.getpid()) if wake_at > now + REST_S else wake_at
