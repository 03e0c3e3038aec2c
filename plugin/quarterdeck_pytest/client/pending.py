"""A pending result, and the messages before it; a plain test waits for it, a coroutine awaits it.

Progress and a server's questions are handled where the test waits: an exception of a handler is raised in the test.
Nothing of ours lives in a test's loop, and no cancel scope can be left in another task.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from quarterdeck_pytest.messages import Meanwhile

__tracebackhide__ = True  # in tracebacks, so that they end at the line of the test

T = TypeVar("T")
U = TypeVar("U")


class McpTestError(Exception):
    """A mistake of the test's, or the loss of the run's supervisor; the text is one clear sentence."""


class Inbox:
    """The messages before the end of one request, until its waiter handles them; `put` is for any thread."""

    def __init__(self, handle: Callable[[Meanwhile], Coroutine[Any, Any, None] | None]) -> None:
        self.handle: Final = handle
        self._items: deque[Meanwhile] = deque()
        self._wake: Callable[[], None] = _nothing

    def put(self, item: Meanwhile) -> None:
        """Add a message."""
        self._items.append(item)
        self._wake()

    def wait(self, end: "Future[Any]", within_s: float | None) -> None:
        """Handle messages until the end has come. Raise `TimeoutError` if it did not come in time."""
        until = None if within_s is None else time.monotonic() + within_s
        arrived = threading.Event()
        self._wake = arrived.set
        end.add_done_callback(lambda _: arrived.set())
        while True:
            arrived.clear()
            self._handle_all()
            if end.done() and not self._items:
                return
            if not arrived.wait(None if until is None else max(0.0, until - time.monotonic())):
                raise TimeoutError

    async def attend(self, end: "Future[Any]") -> None:
        """Handle messages until the end has come, in a coroutine."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(arrived.set)

        self._wake = wake
        end.add_done_callback(lambda _: wake())
        try:
            while True:
                arrived.clear()
                while self._items:
                    if (handled := self.handle(self._items.popleft())) is not None:
                        await handled
                if end.done() and not self._items:
                    return
                await arrived.wait()
        finally:
            self._wake = _nothing

    def _handle_all(self) -> None:
        while self._items:
            handled = self.handle(self._items.popleft())
            if handled is not None:
                handled.close()
                raise McpTestError("an answer is a coroutine, which mcp_client cannot await: use mcp_async_client")


class Pending(Generic[T]):
    """What `made` makes of a `future`'s result: `result()` waits for it, and so does `await`."""

    def __init__(
        self,
        future: "Future[Any]",
        made: Callable[[Any], T],
        inbox: Inbox | None = None,
        note_error: Callable[[object], None] | None = None,
    ) -> None:
        """`inbox` has the messages before the end; `note_error` receives the error of an end without a result."""
        self.future: Final = future
        self.made: Final = made
        self._inbox = inbox
        self._note_error = note_error or (lambda _: None)

    def noted(self, note: Callable[[object], None]) -> "Pending[T]":
        """Return it with `note` called with the result as it is here, or the exception, before the waiter has it."""

        def made(value: Any) -> T:
            result = self.made(value)
            note(result)
            return result

        return Pending(self.future, made, self._inbox, note)

    def then(self, made: Callable[[T], U]) -> "Pending[U]":
        """Return it with `made` applied to the result."""
        return Pending(self.future, lambda value: made(self.made(value)), self._inbox, self._note_error)

    def result(self, within_s: float | None = None) -> T:
        """Wait for it. An interrupt, as by Ctrl-C or pytest-timeout, gives up the request.

        Raise `TimeoutError`, and give up the request, if it did not come in time.
        """
        if self._inbox is not None:
            try:
                self._inbox.wait(self.future, within_s)
            except BaseException as error:
                self._give_up(error)
                raise
            within_s = 0
        try:
            return self.made(self.future.result(within_s))
        except BaseException as error:
            self._give_up(error)
            raise error.with_traceback(None)  # noqa: B904 - the same, without the frames of futures

    def __await__(self) -> Generator[Any, None, T]:
        """Await it; cancelling the task gives up the request."""
        try:
            waiting = asyncio.wrap_future(self.future, loop=asyncio.get_running_loop())
        except RuntimeError:
            self.future.cancel()
            raise McpTestError("mcp_async_client needs asyncio: another kind of loop runs here") from None
        try:
            if self._inbox is not None:
                yield from self._inbox.attend(self.future).__await__()
            return self.made((yield from waiting.__await__()))
        except BaseException as error:
            waiting.cancel()
            self._note_error(error)
            raise

    def _give_up(self, error: BaseException) -> None:
        self.future.cancel()
        self._note_error(error)


def _nothing() -> None:
    """Wake no waiter."""
