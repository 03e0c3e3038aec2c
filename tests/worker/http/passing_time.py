"""Time that a test lets pass in pauses alone."""

import anyio

from quarterdeck_worker.http.streams import Timing

DAY_S = 86_400.0


class Time:
    """Time that passes only in pauses; it stands still after a day."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self.is_over = anyio.Event()

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        if self.now > DAY_S:
            self.is_over.set()
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()

    @property
    def timing(self) -> Timing:
        """Without chance: each pause is the longest that it can be."""
        return Timing(lambda: self.now, self.sleep, lambda: 1.0)
