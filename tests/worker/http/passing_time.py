"""Time that a test lets pass in pauses alone."""

import anyio

from quarterdeck_worker.http.streams import Timing

SHIFT_S = 6 * 3_600.0


class Time:
    """Time that passes only in pauses; it stands still after a shift."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self.is_over = anyio.Event()

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        if self.now > SHIFT_S:
            self.is_over.set()
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()

    @property
    def timing(self) -> Timing:
        """Without chance: each pause is the longest that it can be."""
        return Timing(lambda: self.now, self.sleep, lambda: 1.0)
