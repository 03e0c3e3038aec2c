"""Streams of events as the SDK reads them: bounded, and opened again where they broke off, by the id of the last event.

The SDK's own way to do this is never used: it comes back as soon as the server likes, gives up for good after two
failures, forgets which event was the last, and nests one attempt within the other.
"""

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Protocol

import anyio
import httpx2
import msgspec

from quarterdeck_protocol.backoff import Backoff, Pace
from quarterdeck_protocol.limits import TokenBucket

from .bodies import is_event_stream
from .event_filter import EventFilter
from .lifetime import Lifetime, OverError
from .reopening import MAX_RETRY_S, MAX_TRIES, Reopened, judge

IDLE_BYTES: Final = 1_048_576
"""Comments, ids and the like that are read as fast as they come."""

IDLE_BYTES_PER_S: Final = 16_384.0
"""Beyond that: many times what pings and the frames of messages take."""


class Timing(msgspec.Struct, frozen=True):
    """The clock and the chance of pauses; a test has its own."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    chance: Callable[[], float] = random.random


class Source(Protocol):
    """Where a stream of events comes from: opens it again, and says in its place why it is opened no more.

    Attributes:
        pace: how soon it is opened again.
        answers_a_call: whether a caller waits for the stream's events.
        has_session: whether a 404 says that the session is over.
    """

    pace: Pace
    answers_a_call: bool

    @property
    def has_session(self) -> bool:
        """See the class."""

    async def reopen(self, last_id: bytes) -> httpx2.Response:
        """Ask for the events after this one, or for the next ones where it is empty.

        Raises:
            httpx2.RequestError: there is no answer.
        """

    def pause_asked_s(self, response: httpx2.Response | None) -> float:
        """For how long the server wants to be left alone, by this refusal and all before it."""

    def end(self, reason: httpx2.Response | httpx2.RequestError, *, is_session_over: bool) -> bytes:
        """The stream is not opened again; the event that says so to whoever waits, or nothing."""


class EventBody(httpx2.AsyncByteStream):
    """The events of one connection, read slowly where they say nothing."""

    def __init__(
        self, body: httpx2.AsyncByteStream | None, max_bytes: int, life: Lifetime, timing: Timing | None = None
    ) -> None:
        """`max_bytes` is of one event; `life` ends the stream."""
        self._body = body
        self._max_bytes = max_bytes
        self._life = life
        self._timing = timing or Timing()
        self._events = EventFilter(max_bytes)
        self._idle = TokenBucket(IDLE_BYTES, IDLE_BYTES_PER_S, self._timing.clock())

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """What is for the SDK.

        Raises:
            httpx2.SSEError: an event is larger than it may be.
            httpx2.RequestError: it broke off.
        """
        assert self._body is not None
        async for passed in self._read(self._body):
            if self._events.oversized:
                raise self._oversized()
            if passed:
                yield passed

    async def aclose(self) -> None:
        """See `AsyncByteStream`."""
        if self._body is not None:
            await self._body.aclose()

    def _oversized(self) -> httpx2.SSEError:
        return httpx2.SSEError(f"an event of more than {self._max_bytes:,} bytes")

    async def _read(self, body: httpx2.AsyncByteStream) -> AsyncIterator[bytes]:
        pieces = aiter(body)
        while True:
            with self._life.bounds():
                try:
                    piece = await anext(pieces)
                except StopAsyncIteration:
                    return
            before = self._events.idle_bytes
            yield self._events.feed(piece)
            idle = self._events.idle_bytes - before
            while (left_s := self._idle.take(idle, self._timing.clock())) > 0:
                await self._wait(left_s)

    async def _wait(self, seconds: float) -> None:
        with self._life.bounds():
            await self._timing.sleep(seconds)


class LastingBody(EventBody):
    """Events of all connections of one stream, as one body; ends where it cannot be opened again."""

    def __init__(
        self,
        body: httpx2.AsyncByteStream | None,
        max_bytes: int,
        life: Lifetime,
        source: Source,
        timing: Timing | None = None,
    ) -> None:
        """`body` is of the first connection; None where it is to be opened."""
        super().__init__(body, max_bytes, life, timing)
        self._source = source
        self._backoff = Backoff(source.pace)
        self._was_open = body is not None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """What is for the SDK."""
        try:
            while True:
                if self._body is None and (told := await self._open()) is not None:
                    yield told
                    return
                assert self._body is not None
                since = self._timing.clock()
                try:
                    async for passed in self._read(self._body):
                        if passed:
                            yield passed
                        if self._events.oversized and self._source.answers_a_call:
                            yield self._too_large()
                            return
                except httpx2.RequestError:
                    pass  # broken off: as if it had ended
                await self._drop()
                yield self._events.end_connection()
                if self._source.answers_a_call and not self._events.last_id:
                    return
                await self._pause(self._timing.clock() - since, min(self._events.retry_s, MAX_RETRY_S))
        except OverError:
            return
        finally:
            await self._drop()

    async def _open(self) -> bytes | None:
        """Open it, as often as it takes; what there is to say if it never will be."""
        tries = 0
        while True:
            tries += 1
            try:
                with self._life.bounds():
                    response = await self._source.reopen(self._events.last_id)
            except OverError:
                raise
            except httpx2.RequestError as error:
                if self._source.answers_a_call and tries >= MAX_TRIES:
                    return self._source.end(error, is_session_over=False)
                await self._pause(0.0, self._source.pause_asked_s(None))
                continue
            verdict = judge(
                response.status_code,
                is_events=is_event_stream(response),
                was_open=self._was_open,
                has_session=self._source.has_session,
            )
            if verdict is Reopened.OPEN:
                assert isinstance(response.stream, httpx2.AsyncByteStream)
                self._body, self._was_open = response.stream, True
                return None
            await response.aclose()
            if verdict is not Reopened.AGAIN or (self._source.answers_a_call and tries >= MAX_TRIES):
                return self._source.end(response, is_session_over=verdict is Reopened.SESSION_OVER)
            await self._pause(0.0, self._source.pause_asked_s(response))

    async def _pause(self, held_s: float, asked_s: float) -> None:
        asked_s = max(asked_s, self._source.pause_asked_s(None))
        await self._wait(self._backoff.after(held_s, asked_s=asked_s, fraction=self._timing.chance()))

    def _too_large(self) -> bytes:
        return self._source.end(self._oversized(), is_session_over=False)

    async def _drop(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            await body.aclose()
