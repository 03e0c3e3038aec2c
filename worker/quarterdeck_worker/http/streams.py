"""Streams of events, opened again where they broke off, by the id of the last event."""

import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from enum import StrEnum
from typing import Final

import anyio
import httpx2
import msgspec

from quarterdeck_protocol.backoff import Backoff, Pace
from quarterdeck_protocol.limits import TokenBucket

from .bodies import Event, EventReader, HttpFault, is_event_stream, pieces_of, unusable

IDLE_BYTES: Final = 1_048_576  # comments, ids and the like that are read as fast as they come
IDLE_BYTES_PER_S: Final = 16_384.0  # beyond that: many times what pings and the frames of messages take

STANDING: Final = Pace(first_s=1.0, longest_s=60.0, steady_s=60.0, jitter=0.25)
"""For the stream on which a server speaks unasked: some hosts end each at once, for ever."""

ANSWERING: Final = Pace(first_s=0.5, longest_s=5.0, steady_s=5.0, jitter=0.25)
"""For the stream of a request, whose result waits there."""

MAX_RETRY_S: Final = 60.0  # the longest pause that a stream's `retry` is given

MAX_TRIES: Final = 6
"""Attempts in a row that fail before a request's stream is given up: others are to hear that the server is gone."""


class Timing(msgspec.Struct, frozen=True):
    """The clock and the chance of pauses; a test has its own."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    chance: Callable[[], float] = random.random


class Reopened(StrEnum):
    """The meaning of an answer to a GET for its stream."""

    OPEN = "open"
    AGAIN = "again"
    NEVER = "never"  # there is no such stream, or no more of it
    SESSION_OVER = "session_over"


_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


def judge(status: int, *, is_events: bool, was_open: bool, has_session: bool) -> Reopened:
    """Return what becomes of the stream.

    `was_open`: whether there was such a stream in this session; a server that never had one may refuse it with any
    status. `has_session`: whether a 404 says that the session is over (2025-11-25, "Session Management").
    """
    if is_events:
        return Reopened.OPEN
    if status in _PASSING:
        return Reopened.AGAIN
    if was_open and (status == 401 or (status == 404 and has_session)):
        return Reopened.SESSION_OVER
    return Reopened.NEVER


class StreamEndError(Exception):
    """A stream is opened no more: by this `reason`, None for one that cannot be taken up."""

    def __init__(self, reason: httpx2.Response | httpx2.RequestError | None, *, is_session_over: bool = False) -> None:
        super().__init__()
        self.reason = reason
        self.is_session_over = is_session_over


class EventStream:
    """The events of one stream, over all connections that it takes."""

    def __init__(
        self,
        max_bytes: int,
        timing: Timing,
        *,
        reopen: Callable[[bytes], Awaitable[httpx2.Response]],
        pause_asked_s: Callable[[httpx2.Response | None], float],
        has_session: bool,
        is_answer: bool,
    ) -> None:
        """Open nothing yet.

        Args:
            max_bytes: of one event's data; a larger one ends the stream of an answer, and is left out of another.
            timing: the clock and the chance of pauses.
            reopen: requests the events after this id, or the next ones if it is empty; raises `RequestError`.
            pause_asked_s: returns for how long the server wants to be left alone, by this refusal and all before it.
            has_session: as for `judge`.
            is_answer: whether a request waits for the stream's events.
        """
        self._max_bytes = max_bytes
        self._timing = timing
        self._reopen = reopen
        self._pause_asked_s = pause_asked_s
        self._has_session = has_session
        self._is_answer = is_answer
        self._reader = EventReader(max_bytes)
        self._idle = TokenBucket(IDLE_BYTES, IDLE_BYTES_PER_S, timing.clock())
        self._backoff = Backoff(ANSWERING if is_answer else STANDING)

    async def events(self, response: httpx2.Response | None) -> AsyncGenerator[Event, None]:
        """Yield the events of all connections; `response` is of the first one, None if it is to be opened.

        Raise StreamEndError if the stream cannot be opened again, HttpFault if an event of an answer is too large.
        """
        was_open = response is not None
        while True:
            if response is None:
                response = await self._open(was_open=was_open)
                was_open = True
            since = self._timing.clock()
            try:
                async with aclosing(self.read(response)) as events:
                    async for event in events:
                        yield event
            except httpx2.RequestError:
                pass  # broken off: as if it had ended
            finally:
                await response.aclose()
            response = None
            self._reader.end_connection()
            if self._is_answer and not self._reader.last_id:
                raise StreamEndError(None)
            await self._pause(self._timing.clock() - since, min(self._reader.retry_s, MAX_RETRY_S))

    async def read(self, response: httpx2.Response) -> AsyncGenerator[Event, None]:
        """Yield the events of one connection, read slowly where it says nothing.

        Raise HttpFault if an event of an answer is too large, httpx2.RequestError if it broke off, or cannot be
        unpacked.
        """
        try:
            async for piece in pieces_of(response):
                before = self._reader.idle_bytes
                for event in self._reader.feed(piece):
                    yield event
                if self._is_answer and self._reader.oversized:
                    raise unusable(
                        "result_too_large", f"the server sent an event of more than {self._max_bytes:,} bytes"
                    )
                idle = max(0, self._reader.idle_bytes - before)
                while (left_s := self._idle.take(idle, self._timing.clock())) > 0:
                    await self._timing.sleep(left_s)
        except HttpFault as fault:
            if fault.record.code != "bad_output":
                raise
            raise httpx2.DecodingError(str(fault)) from fault

    async def _open(self, *, was_open: bool) -> httpx2.Response:
        tries = 0
        while True:
            tries += 1
            is_last = self._is_answer and tries >= MAX_TRIES
            try:
                response = await self._reopen(self._reader.last_id)
            except httpx2.RequestError as error:
                if is_last:
                    raise StreamEndError(error) from None
                await self._pause(0.0, 0.0)
                continue
            is_events, has_session = is_event_stream(response), self._has_session
            verdict = judge(response.status_code, is_events=is_events, was_open=was_open, has_session=has_session)
            if verdict is Reopened.OPEN:
                return response
            await response.aclose()
            if verdict is not Reopened.AGAIN or is_last:
                raise StreamEndError(response, is_session_over=verdict is Reopened.SESSION_OVER)
            await self._pause(0.0, self._pause_asked_s(response))

    async def _pause(self, held_s: float, asked_s: float) -> None:
        asked_s = max(asked_s, self._pause_asked_s(None))
        await self._timing.sleep(self._backoff.after(held_s, asked_s=asked_s, fraction=self._timing.chance()))
