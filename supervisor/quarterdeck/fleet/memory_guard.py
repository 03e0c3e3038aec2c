"""Notice a worker that fills our memory with a message that never ends, and say which one it is.  Pure.

libzmq bounds a part, but neither how many parts a message has nor how long it stays unfinished; such bytes never
reach a link, whose limits therefore never see them.  What a worker writes to a socket is not in `/proc/PID/io`
(only `write` and its kin are counted there, not `send`), so the evidence is ours: memory that grew by more than was
delivered, and a worker that was busy all the while without delivering anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ALLOWANCE_BYTES: Final = 512 * 1024 * 1024
"""Growth that nothing delivered explains; an embedding program may grow by itself, but rarely by this in seconds."""

BUSY_SHARE: Final = 0.05
"""Of one core: whoever sends hundreds of megabytes a second is busier, on a crowded machine too."""

FORGIVENESS: Final = 0.9
"""What is left of old growth after each look: slow growth is not a flood."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One worker at one look: processor time it used so far (seconds), bytes that its link has delivered so far."""

    cpu_s: float
    delivered_bytes: int


class MemoryGuard:
    """Looks at regular intervals; keeps the last look."""

    def __init__(self, allowance_bytes: int = ALLOWANCE_BYTES) -> None:
        self._allowance = allowance_bytes
        self._rss: int | None = None
        self._at = 0.0
        self._unexplained = 0.0
        self._samples: Mapping[int, Sample] = {}

    def look(self, rss_bytes: int, workers: Mapping[int, Sample], now: float) -> tuple[int, ...]:
        """Who is to be killed.

        Args:
            rss_bytes: our resident memory.
            workers: by generation.
            now: monotonic seconds, later than the last look.

        Returns:
            The workers that must be what fills our memory; usually none.
        """
        last, span = self._samples, now - self._at
        first_look = self._rss is None
        delivered = sum(
            sample.delivered_bytes - last[key].delivered_bytes for key, sample in workers.items() if key in last
        )
        grown = rss_bytes - (self._rss or 0)
        self._rss, self._at, self._samples = rss_bytes, now, dict(workers)
        if first_look or span <= 0:
            return ()
        self._unexplained = max(0.0, self._unexplained * FORGIVENESS + grown - delivered)
        if self._unexplained <= self._allowance:
            return ()
        return tuple(
            key
            for key, sample in workers.items()
            if key in last
            and sample.delivered_bytes == last[key].delivered_bytes
            and (sample.cpu_s - last[key].cpu_s) / span >= BUSY_SHARE
        )
