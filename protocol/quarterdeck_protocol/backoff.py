"""The pauses between attempts that fail in a row: each is twice the last, spread by chance, up to a longest.  Pure."""

from typing import Final

import msgspec

LONGEST_STREAK: Final = 64
"""Attempts in a row that are told apart: so many doublings take any first pause to any longest one."""


class Pace(msgspec.Struct, frozen=True):
    """How often something is tried again: an attempt of `steady_s` ends a streak, `jitter` spreads each pause up and
    down.
    """

    first_s: float
    longest_s: float
    steady_s: float
    jitter: float = 0.0


RELISTEN: Final = Pace(first_s=1.0, longest_s=60.0, steady_s=60.0)
"""For a subscription of 2026-07-28 that the server ended."""


class Backoff:
    """The pauses of one thing that is tried again and again."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._streak = 0

    def after(self, held_s: float, *, asked_s: float = 0.0, fraction: float = 0.5) -> float:
        """Return the pause after an attempt that lasted `held_s`, at least `asked_s`; `fraction` in [0, 1) places its
        jitter.
        """
        if held_s >= self._pace.steady_s:
            self._streak = 0
        own_s = pause_s(self._pace, self._streak, fraction)
        self._streak += 1
        return max(own_s, asked_s)


def pause_s(pace: Pace, streak: int, fraction: float) -> float:
    """Return the pause after `streak` others, seconds. The longest is spread too: not all may come back at once."""
    even_s = min(pace.first_s * 2.0 ** min(streak, LONGEST_STREAK), pace.longest_s)
    return even_s * (1 + pace.jitter * (2 * fraction - 1))
