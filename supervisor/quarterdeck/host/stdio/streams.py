"""Read a client's descriptor without blocking the event loop.

Pipes and sockets are polled; files, terminals and whatever shares its description with stderr are read by a daemon
thread.  Descriptors are borrowed: their owner closes them.
"""

import asyncio
import os
import select
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from quarterdeck.host.journal import Journal

from .client_streams import can_poll, post
from .sink import Waker

CHUNK_BYTES: Final = 64 * 1024
"""One read: a pipe's capacity on Linux."""

_MAX_UNREAD_CHUNKS: Final = 16
"""Chunks that a reading thread may be ahead of the loop."""


class Source(ABC):
    """Reads one descriptor; `on_data` gets chunks that `journal` has, `on_end` is called once at its end."""

    def __init__(
        self, fd: int, on_data: Callable[[bytes], None], on_end: Callable[[], None], journal: Journal | None = None
    ) -> None:
        self._fd = fd
        self._journal = journal or Journal()
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

    def __init__(
        self, fd: int, on_data: Callable[[bytes], None], on_end: Callable[[], None], journal: Journal | None = None
    ) -> None:
        super().__init__(fd, on_data, on_end, journal)
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
            data = self._journal.read(self._fd, CHUNK_BYTES)
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

    def __init__(
        self, fd: int, on_data: Callable[[bytes], None], on_end: Callable[[], None], journal: Journal | None = None
    ) -> None:
        super().__init__(os.dup(fd), on_data, on_end, journal)
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
            self._journal.received(data)
            self._on_data(data)
        else:
            self._is_closed = True
            self._on_end()


def open_source(
    fd: int,
    on_data: Callable[[bytes], None],
    on_end: Callable[[], None],
    journal: Journal | None = None,
    *,
    stderr_fd: int = 2,
) -> Source:
    """The right reader for `fd`; it reads once resumed."""
    return (PolledSource if can_poll(fd, stderr_fd) else ThreadedSource)(fd, on_data, on_end, journal)
