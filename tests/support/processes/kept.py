"""Something that is started once for many tests, and started anew for the next where a test broke it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack
from typing import Final, Generic, TypeVar

from support.processes.commands import DEADLINE_S

T = TypeVar("T")


class Reused(Generic[T]):
    """It, while it is well; for one thread."""

    def __init__(self, start: Callable[[], AbstractContextManager[T]], is_well: Callable[[T], bool]) -> None:
        """Start nothing yet.

        Args:
            start: makes it; the end of the block is its end, and what is found wrong there fails who ends it.
            is_well: whether it is still of use; it may raise where it is not.
        """
        self._start = start
        self._is_well = is_well
        self._held: tuple[T, ExitStack] | None = None

    def get(self) -> T:
        """It, or another one: a test that broke it fails, and the next does not."""
        if self._held is not None:
            thing, stack = self._held
            if self._answers(thing):
                return thing
            self._held = None
            _abandon(stack)
        stack = ExitStack()
        self._held = stack.enter_context(self._start()), stack
        return self._held[0]

    def close(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held[1].close()

    def _answers(self, thing: T) -> bool:
        try:
            return self._is_well(thing)
        except Exception:
            return False


def _abandon(stack: ExitStack) -> None:
    """End it however it ends: its failure is that of the test that broke it, which was told."""
    try:
        stack.close()
    except (Exception, AssertionError):
        return


class Kept(Generic[T]):
    """What a context manager gives.  It is held by a task of its own, so that its end ends no test but by an error."""

    def __init__(
        self, make: Callable[[], AbstractAsyncContextManager[T]], is_of_use: Callable[[T], Awaitable[object]]
    ) -> None:
        """Make nothing yet.

        Args:
            make: begins it.
            is_of_use: ends with any exception when a new one is needed.
        """
        self._make = make
        self._is_of_use = is_of_use
        self._held: _Held[T] | None = None

    async def get(self) -> T:
        """The one that is there, or another one.

        Raises:
            Exception: it cannot be made; as `make`.
        """
        if self._held is not None and not await self._still_works(self._held):
            self._held.over.set()
            await asyncio.wait((self._held.task,), timeout=DEADLINE_S)
            self._held = None
        if self._held is None:
            self._held = await _Held.of(self._make())
        return self._held.value

    async def close(self) -> None:
        """End it, if it was ever needed.

        Raises:
            Exception: its end does.
        """
        if self._held is not None:
            self._held.over.set()
            await self._held.task

    async def _still_works(self, held: "_Held[T]") -> bool:
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._is_of_use(held.value)
        except Exception:
            return False
        return not held.task.done()


class _Held(Generic[T]):
    def __init__(self, value: T, task: "asyncio.Task[None]", over: asyncio.Event) -> None:
        self.value: Final = value
        self.task: Final = task
        self.over: Final = over

    @classmethod
    async def of(cls, manager: AbstractAsyncContextManager[T]) -> "_Held[T]":
        made: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        over = asyncio.Event()

        async def hold() -> None:
            async with manager as value:
                made.set_result(value)
                await over.wait()

        task = asyncio.create_task(hold())
        await asyncio.wait((made, task), return_when=asyncio.FIRST_COMPLETED)
        if not made.done():
            await task
        return cls(await made, task, over)
