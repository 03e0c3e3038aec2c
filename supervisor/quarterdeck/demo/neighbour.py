"""A busy neighbour: calls the well-behaved server all the time, to see whether it notices what happens beside it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from quarterdeck.demo.stage import Stage

PAUSE_S: Final = 0.01
"""Between two calls."""


@dataclass(slots=True)
class Tally:
    """How the calls went so far."""

    answered: int = 0
    failed: int = 0
    slowest_s: float = 0.0


@asynccontextmanager
async def busy_neighbour(stage: Stage) -> AsyncIterator[Tally]:
    """Keep calling while the body runs."""
    tally = Tally()

    async def keep_calling() -> None:
        number = 0
        while True:
            number += 1
            reply = await stage.call("tidy__add", a=number, b=1)
            if reply.is_error or reply.text != str(number + 1):
                tally.failed += 1
            else:
                tally.answered += 1
            tally.slowest_s = max(tally.slowest_s, reply.took_s)
            await asyncio.sleep(PAUSE_S)

    task = asyncio.create_task(keep_calling())
    try:
        yield tally
    finally:
        # Calls for ever, unless one broke.
        tally.failed += task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
