"""Read a client's descriptor without blocking the event loop, and the SDK's stream pair over its lines.

Pipes and sockets are polled; files, terminals and whatever shares its description with stderr are read by a daemon
thread.  Descriptors are borrowed: their owner closes them.  The streams are bounded towards the session, and wait for a
slow client.
"""

import asyncio
import os
import select
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCResponse
from pydantic_core import PydanticSerializationError

from .early_reply import can_poll, post
from .sink import Sink, Waker

CHUNK_BYTES: Final = 64 * 1024
"""One read: a pipe's capacity on Linux."""

_MAX_UNREAD_CHUNKS: Final = 16
"""Chunks that a reading thread may be ahead of the loop."""


class Source(ABC):
    """Reads one descriptor; `on_data` gets chunks, `on_end` is called once at its end."""

    def __init__(self, fd: int, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._fd = fd
        self._on_data = on_data
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()

    @abstractmethod
    def resume(self) -> None:
        """Read; harmless while reading."""

    @abstractmethod
    def pause(self) -> None:
        """Read nothing more for now; what was read already still comes."""

    @abstractmethod
    def close(self) -> None:
        """Read nothing more, ever."""


class PolledSource(Source):
    """A pipe or socket."""

    def __init__(self, fd: int, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        super().__init__(fd, on_data, on_end)
        self._was_blocking = os.get_blocking(fd)
        self._is_closed = False
        self._is_reading = False
        os.set_blocking(fd, False)

    def resume(self) -> None:
        """Read; harmless while reading."""
        if not self._is_closed and not self._is_reading:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._read)

    def pause(self) -> None:
        """Read nothing more for now."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def close(self) -> None:
        """Read nothing more, and leave the descriptor as it was found."""
        if not self._is_closed:
            self.pause()
            self._is_closed = True
            os.set_blocking(self._fd, self._was_blocking)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._on_data(data)
        else:
            self.close()
            self._on_end()


class ThreadedSource(Source):
    """A file or a terminal.

    Its thread reads nothing that is not there, from a duplicate of its own: once closed, it takes no line that is meant
    for whoever has the terminal next, and reads from no file that got the descriptor's number.
    """

    def __init__(self, fd: int, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        super().__init__(os.dup(fd), on_data, on_end)
        self._may_read = threading.Event()
        self._permits = threading.Semaphore(_MAX_UNREAD_CHUNKS)
        self._is_closed = False
        self._news = Waker()
        threading.Thread(target=self._read, name="quarterdeck-stdin", daemon=True).start()

    def resume(self) -> None:
        """Read; harmless while reading."""
        self._may_read.set()

    def pause(self) -> None:
        """Read nothing more for now."""
        self._may_read.clear()

    def close(self) -> None:
        """Read nothing more, and have the thread end."""
        self._is_closed = True
        self._news.wake()
        self._may_read.set()
        self._permits.release()

    def _read(self) -> None:
        with self._news:
            try:
                data = b"more"
                while data:
                    self._permits.acquire()
                    self._may_read.wait()
                    if self._is_closed or not self._news.wait_for(self._fd, select.POLLIN):
                        return
                    try:
                        data = os.read(self._fd, CHUNK_BYTES)
                    except OSError:
                        data = b""
                    if not post(self._loop, self._take, data):
                        return
            finally:
                os.close(self._fd)

    def _take(self, data: bytes) -> None:
        self._permits.release()
        if self._is_closed:
            return
        if data:
            self._on_data(data)
        else:
            self._is_closed = True
            self._on_end()


def open_source(fd: int, on_data: Callable[[bytes], None], on_end: Callable[[], None], *, stderr_fd: int = 2) -> Source:
    """The right reader for `fd`; it reads once resumed."""
    return (PolledSource if can_poll(fd, stderr_fd) else ThreadedSource)(fd, on_data, on_end)


MAX_WAITING: Final = 256
"""Messages that the session has not taken yet; with more the client is not read."""


class OnAnswered(Protocol):
    """Told of each request that the session has answered."""

    def __call__(self, request_id: int | str | None, *, is_success: bool) -> None:
        """The session answered `request_id`."""
        ...


class _Managed:
    """What the SDK asks of both streams."""

    async def aclose(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class ClientInput(_Managed):
    """What the session reads.  Filled from the event loop; `on_room` tells that it took something."""

    def __init__(self, *, on_room: Callable[[], None], on_closed: Callable[[], None]) -> None:
        self._on_room = on_room
        self._on_closed = on_closed
        self._waiting: deque[SessionMessage | Exception] = deque()
        self._news = asyncio.Event()
        self._is_ended = False
        self._is_closed = False

    @property
    def is_full(self) -> bool:
        """Whether the session is behind."""
        return len(self._waiting) >= MAX_WAITING

    def put(self, message: SessionMessage) -> None:
        """Give the session one message."""
        self._waiting.append(message)
        self._news.set()

    def end(self) -> None:
        """Nothing more comes."""
        self._is_ended = True
        self._news.set()

    async def receive(self) -> SessionMessage | Exception:
        """The next message.

        Raises:
            anyio.EndOfStream: nothing more comes.
            anyio.ClosedResourceError: the session closed this end.
        """
        while not self._waiting:
            if self._is_closed:
                raise anyio.ClosedResourceError
            if self._is_ended:
                raise anyio.EndOfStream
            self._news.clear()
            await self._news.wait()
        message = self._waiting.popleft()
        self._on_room()
        return message

    async def aclose(self) -> None:
        """The session reads no more."""
        if not self._is_closed:
            self._is_closed = True
            self._waiting.clear()
            self._news.set()
            self._on_closed()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class ClientOutput(_Managed):
    """What the session writes; waits while the client does not read."""

    def __init__(self, sink: Sink, on_answered: OnAnswered, *, greeted_id: int | str | None = None) -> None:
        """Write to `sink`.

        Args:
            sink: where lines go.
            on_answered: told of each answer.
            greeted_id: a request that has its answer already; the session's own is dropped.
        """
        self._sink = sink
        self._greeted_id = greeted_id
        self._on_answered = on_answered
        self._is_closed = False

    async def send(self, item: SessionMessage) -> None:
        """Write one message as one line.

        Raises:
            anyio.ClosedResourceError: the session had closed this end.
        """
        if self._is_closed:
            raise anyio.ClosedResourceError
        message = item.message
        answer = message if isinstance(message, JSONRPCResponse | JSONRPCError) else None
        if answer is not None and self._greeted_id is not None and answer.id == self._greeted_id:
            self._greeted_id = None
        else:
            self._sink.write(_to_line(message), b"\n")
        if answer is not None:
            self._on_answered(answer.id, is_success=isinstance(answer, JSONRPCResponse))
        await self._sink.room()

    async def aclose(self) -> None:
        """The session writes no more."""
        self._is_closed = True


def _to_line(message: JSONRPCMessage) -> bytes:
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except (PydanticSerializationError, UnicodeEncodeError):
        # A value that JSON or UTF-8 cannot say must cost its own request, not the connection.
        refused = ErrorData(code=INTERNAL_ERROR, message="The answer cannot be written as JSON")
        request_id = message.id if isinstance(message, JSONRPCResponse | JSONRPCError) else None
        return JSONRPCError(jsonrpc="2.0", id=request_id, error=refused).model_dump_json().encode()
