"""A test process's connection to the run's supervisor: requests out, futures back.

One thread reads.  A request is a `concurrent.futures.Future`, which a plain test waits for and a coroutine awaits in
whatever loop it runs: nothing of ours lives in a test's loop, and no cancel scope can be left in another task.
"""

import asyncio
import itertools
import os
import socket
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

from quarterdeck_pytest.activation import RunAddress
from quarterdeck_pytest.messages import (
    LENGTH_BYTES,
    Answer,
    BadMessageError,
    Cancel,
    Failed,
    Hello,
    Numbered,
    Reply,
    Request,
    Wrong,
    decode_answer,
    encode,
    fault_of,
    length_of,
)

T = TypeVar("T")

LOG_CHARS: Final = 2000
"""Of the supervisor's log, in the message that it is gone."""


class McpTestError(Exception):
    """A test asks for what there is not, or the run's supervisor is gone; the text is one clear sentence."""


class Pending(Generic[T]):
    """A result that is on its way: `result()` waits for it, and so does `await`.

    Attributes:
        future: what comes.
        made: makes the result of it.
        note: is told the result, or the exception, before whoever waits.
    """

    def __init__(
        self, future: "Future[Any]", made: Callable[[Any], T], note: Callable[[object], None] | None = None
    ) -> None:
        self.future: Final = future
        self.made: Final = made
        self._note = note or (lambda _: None)

    def noted(self, note: Callable[[object], None]) -> "Pending[T]":
        """The same, of whose end `note` is told."""
        return Pending(self.future, self.made, note)

    def result(self, within_s: float | None = None) -> T:
        """Wait for it; who is interrupted, as by Ctrl-C or pytest-timeout, gives the request up.

        Raises:
            TimeoutError: it did not come in time, and is given up.
        """
        __tracebackhide__ = True
        try:
            return self._ended(self.future.result(within_s))
        except BaseException as error:
            self.future.cancel()
            self._note(error)
            raise error.with_traceback(None)  # noqa: B904 - the same, without the frames of futures

    def __await__(self) -> Generator[Any, None, T]:
        """Await it; cancelling the task gives the request up."""
        try:
            waiting = asyncio.wrap_future(self.future, loop=asyncio.get_running_loop())
        except RuntimeError:
            self.future.cancel()
            raise McpTestError("mcp_async_client needs asyncio: another kind of loop runs here") from None
        __tracebackhide__ = True
        try:
            return self._ended((yield from waiting.__await__()))
        except BaseException as error:
            self._note(error)
            raise

    def _ended(self, value: Any) -> T:
        result = self.made(value)
        self._note(result)
        return result


class Connection:
    """The connection; `send` may be called in any thread."""

    def __init__(self, address: RunAddress, worker: str) -> None:
        """Connect, which starts the supervisor where nobody did before.

        Raises:
            McpTestError: it is gone.
        """
        self._address = address
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Reply]] = {}
        self._is_closed = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(address.socket)
            self._send(Hello(address.token, worker))
        except OSError:
            self._socket.close()
            raise self._gone() from None
        self._thread = threading.Thread(target=self._read, name="quarterdeck-pytest-reader", daemon=True)
        self._thread.start()

    def next_id(self) -> int:
        """An id for a request."""
        return next(self._ids)

    def send(self, request: Numbered) -> "Future[Reply]":
        """What comes of it: a reply, a `ProtocolFault` or a `McpTestError`.  Cancelling it gives the request up."""
        future: Future[Reply] = Future()
        with self._lock:
            if self._is_closed:
                raise self._gone()
            self._waiting[request.id] = future
            try:
                self._send(request)
            except OSError:
                del self._waiting[request.id]
                raise self._gone() from None
        future.add_done_callback(lambda done: self._give_up(request.id) if done.cancelled() else None)
        return future

    def close(self) -> None:
        """Hang up; repeatable."""
        with self._lock:
            self._is_closed = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other end was faster
        self._thread.join()
        self._socket.close()

    def _send(self, request: Request) -> None:
        self._socket.sendall(encode(request))

    def _give_up(self, number: int) -> None:
        with self._lock:
            if self._waiting.pop(number, None) is not None and not self._is_closed:
                try:
                    self._send(Cancel(number))
                except OSError:
                    pass  # then it is given up anyway

    def _read(self) -> None:
        try:
            while True:
                self._take(decode_answer(self._exactly(length_of(self._exactly(LENGTH_BYTES)))))
        except (EOFError, OSError, BadMessageError):
            with self._lock:
                self._is_closed = True
                lost, self._waiting = tuple(self._waiting.values()), {}
            for future in lost:
                if future.set_running_or_notify_cancel():
                    future.set_exception(self._gone())

    def _take(self, answer: Answer) -> None:
        with self._lock:
            future = self._waiting.pop(answer.id, None)
        if future is None or not future.set_running_or_notify_cancel():
            return
        match answer:
            case Reply():
                future.set_result(answer)
            case Failed():
                future.set_exception(fault_of(answer))
            case Wrong(_, why):
                future.set_exception(McpTestError(why))

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            piece = self._socket.recv(min(count - len(parts), 1 << 20))
            if not piece:
                raise EOFError
            parts += piece
        return bytes(parts)

    def _gone(self) -> McpTestError:
        """What to say when there is no supervisor: with what it wrote last."""
        try:
            with self._address.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_CHARS))
                said = log.read().decode("utf-8", "replace").strip()
        except OSError:
            said = ""
        more = f"; it wrote:\n{said}" if said else ""
        return McpTestError(f"the supervisor of this test run is gone: its servers have ended with it{more}")
