"""Wait for the first of several things."""

from collections.abc import Awaitable, Callable

import anyio


async def first_of(*waits: Callable[[], Awaitable[object]]) -> None:
    """Return when one of `waits` does; the others are cancelled."""
    async with anyio.create_task_group() as tasks:

        async def first(wait: Callable[[], Awaitable[object]]) -> None:
            await wait()
            tasks.cancel_scope.cancel()

        for wait in waits:
            tasks.start_soon(first, wait)
