"""Something that is started once for many tests, and started anew for the next where a test broke it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Generic, TypeVar

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
        """End it, if it was needed."""
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
