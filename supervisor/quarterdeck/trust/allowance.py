"""How much a server may have written down: one that changes its tools again and again would fill the disk.  Pure."""

from typing import Final

CAPACITY_BYTES: Final = 64 * 1024 * 1024
"""At once: two of the longest lists that are taken."""

REFILL_BYTES_PER_S: Final = 8 * 1024 * 1024 / 3600
"""In the long run: some 200 MB a day from a server that does nothing else."""

EVENT_BYTES: Final = 512
"""What one event costs on the disk, its indexes included."""


class Allowance:
    """What is left for one server, a bucket that fills again; times are monotonic seconds that never decrease."""

    def __init__(self, now: float) -> None:
        self._left: float = CAPACITY_BYTES
        self._at = now

    def take(self, cost_bytes: int, now: float) -> float:
        """Take `cost_bytes` when so much is there; 0 when it was, else after how many seconds it may be."""
        self._left = min(CAPACITY_BYTES, self._left + (now - self._at) * REFILL_BYTES_PER_S)
        self._at = now
        if cost_bytes <= self._left:
            self._left -= cost_bytes
            return 0.0
        return (min(cost_bytes, CAPACITY_BYTES) - self._left) / REFILL_BYTES_PER_S
