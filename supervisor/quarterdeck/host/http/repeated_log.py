"""Say once what happens again and again, and how often meanwhile.  Pure: the clock is an argument."""

from dataclasses import dataclass
from typing import Final

AGAIN_S: Final = 60.0
"""Before the same is said again: a flood fills no disk, and a person who reads the log still sees that it goes on."""

MAX_KINDS: Final = 64
"""Told apart; what would be one more counts as the one that was said longest ago."""


@dataclass(slots=True)
class _Said:
    at: float
    unsaid: int = 0


class Repeats:
    """What was said, and when."""

    def __init__(self) -> None:
        self._said: dict[str, _Said] = {}

    def admit(self, kind: str, now: float) -> int | None:
        """Whether to say this: None for no, else how many of its kind were not said since the last.

        Args:
            kind: what is the same each time.
            now: monotonic, seconds.
        """
        known = self._said.get(kind)
        if known is not None and now - known.at < AGAIN_S:
            known.unsaid += 1
            return None
        if known is None and len(self._said) >= MAX_KINDS:
            del self._said[min(self._said, key=lambda one: self._said[one].at)]
        self._said[kind] = _Said(now)
        return known.unsaid if known is not None else 0
