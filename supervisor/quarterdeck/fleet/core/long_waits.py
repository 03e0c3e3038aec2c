"""Decide which calls of one server have waited long enough to report to people, and word the reason.  Pure."""

from collections.abc import Hashable
from typing import Final, NamedTuple, TypeVar

TOLD_AFTER_S: Final = 5.0
"""Seconds that a call waits before people are told: by then a person begins to wonder."""

T = TypeVar("T", bound=Hashable)
"""A call, compared by `==`."""


class Wait(NamedTuple):
    """Since when a call waits (monotonic seconds), and whether for the server's start or for its turn."""

    since: float
    is_start: bool


class LongWaits(dict[T, Wait]):
    """One server's waiting calls; the owner takes those out that wait no longer."""

    def __init__(self) -> None:
        super().__init__()
        self._is_told = False

    def begin(self, call: T, now: float, *, is_start: bool = False) -> None:
        """Count a call as waiting since `now` (monotonic seconds), for the server's start or for its turn. A call that
        waits already keeps its start time.
        """
        earlier = self.get(call)
        self[call] = Wait(earlier.since if earlier is not None else now, is_start)

    def is_news(self, now: float) -> bool:
        """Return whether calls wait too long and people were not told yet; each episode is reported once."""
        has_long = bool(self._long(now))
        is_news, self._is_told = has_long and not self._is_told, has_long
        return is_news

    def words(self, server: str, now: float, working_on: int) -> str:
        """Return which clients wait too long and why, next to the server's number of calls; empty if none does."""
        waits = self._long(now)
        if not waits:
            return ""
        calls = "1 call waits" if len(waits) == 1 else f"{len(waits):,} calls wait"
        since = f"since {now - min(wait.since for wait in waits):.0f} s"
        works = f"it works on {working_on:,} call" + ("" if working_on == 1 else "s")
        return f"{calls} for `{server}` {since}: {'it is starting' if waits[0].is_start else works}"

    def _long(self, now: float) -> list[Wait]:
        return [wait for wait in self.values() if now - wait.since >= TOLD_AFTER_S]
