"""Whether a stream of events that ended, or was refused, is opened again, and how soon.  Pure."""

from enum import StrEnum
from typing import Final

from quarterdeck_protocol.backoff import Pace

STANDING: Final = Pace(first_s=1.0, longest_s=60.0, steady_s=60.0, jitter=0.25)
"""For the stream on which a server speaks unasked: some hosts end each at once, for ever."""

ANSWERING: Final = Pace(first_s=0.5, longest_s=5.0, steady_s=5.0, jitter=0.25)
"""For the stream of a call, whose result waits there."""

MAX_RETRY_S: Final = 60.0
"""The longest pause that a stream's `retry` is given."""

MAX_TRIES: Final = 6
"""Attempts in a row that fail before a call's stream is given up: the server is gone, and others are to hear of it."""


class Reopened(StrEnum):
    """What the answer to a GET means for its stream."""

    OPEN = "open"
    AGAIN = "again"
    NEVER = "never"
    """There is no such stream, or no more of it."""
    SESSION_OVER = "session_over"


_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


def judge(status: int, *, is_events: bool, was_open: bool, has_session: bool) -> Reopened:
    """What becomes of the stream.

    Args:
        status: HTTP's.
        is_events: whether the body is a stream of events.
        was_open: whether there was such a stream in this session: a server that never had one may refuse it with any
            status, which says nothing of the session.
        has_session: whether a 404 means that the session is over (2025-11-25, "Session Management").
    """
    if is_events:
        return Reopened.OPEN
    if status in _PASSING:
        return Reopened.AGAIN
    if was_open and (status == 401 or (status == 404 and has_session)):
        return Reopened.SESSION_OVER
    return Reopened.NEVER
