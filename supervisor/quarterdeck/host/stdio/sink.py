"""Write lines to one descriptor without blocking the event loop.

Pipes and sockets are polled; files, terminals and whatever shares its description with stderr are written by a daemon
thread.  Descriptors are borrowed: their owner closes them.
"""

import asyncio
import errno
import fcntl
import os
import queue
import select
import stat
import sys
import termios
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from itertools import islice
from time import monotonic
from types import TracebackType
from typing import Final, Self

import anyio

from quarterdeck.host.journal import Journal

from .client_streams import can_poll, post

HIGH_WATER_BYTES: Final = 4 * 1024 * 1024
"""A sink that holds more is congested: droppable lines are dropped, and the client is not read."""

LOW_WATER_BYTES: Final = 1024 * 1024
"""A congested sink that holds less has room again."""

BURST_S: Final = 0.0003
"""A line that follows another so closely waits for those behind it: many calls end in one turn of the loop."""

_MAX_PARTS: Final = 256
"""Buffers in one writev; Linux takes 1,024."""

_CHUNK_BYTES: Final = 4096
"""What a pipe or a terminal that can be written to takes without waiting: POSIX's PIPE_BUF on Linux."""

_SOCKET_BYTES: Final = 32 * 1024
"""What a local socket takes whole or not at all: Linux makes one buffer of it."""

_JOIN_BYTES: Final = 32 * 1024
"""Parts that are smaller together are joined: a copy is cheaper than a vector."""

_READER_LEFT: Final = (errno.EPIPE, errno.ECONNRESET)

_NEWLINE: Final = ord("\n")

Part = bytes | memoryview


class Waker:
    """Has a thread look up from its wait; a context manager of the thread, which closes it."""

    def __init__(self) -> None:
        self._fds = os.pipe()
        self._lock = threading.Lock()
        self._is_closed = False

    def wake(self) -> None:
        """From now on `wait_for` returns at once."""
        with self._lock:
            if not self._is_closed:
                os.write(self._fds[1], b"!")

    def wait_for(self, fd: int, event: int) -> bool:
        """Wait until `fd` can be read or written, or has failed; False when woken."""
        poll = select.poll()
        poll.register(fd, event)
        poll.register(self._fds[0], select.POLLIN)
        return self._fds[0] not in dict(poll.poll())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_closed = True
            for fd in self._fds:
                os.close(fd)


class Sink(ABC):
    """Writes lines to one descriptor, whole and in order; lines that follow one another closely go out together."""

    def __init__(
        self, fd: int, *, on_broken: Callable[[], None], on_room: Callable[[], None], journal: Journal | None = None
    ) -> None:
        self._fd = fd
        self._journal = journal or Journal()
        self._is_half = False
        self._on_broken = on_broken
        self._on_room = on_room
        self._loop = asyncio.get_running_loop()
        self._parts: deque[Part] = deque()
        self._held_bytes = 0
        self._taken_bytes = 0
        self._marks: deque[tuple[int, Callable[[], None]]] = deque()
        self._answers: deque[tuple[int, bytes]] = deque()
        self._is_over = False
        self.failure: OSError | None = None
        """Why nothing can be written any more, when it is not that the reader has left."""
        self.is_congested = False
        """Whether the reader is too slow for what was written."""
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._emptied: asyncio.Event | None = None  # of whoever waits for it

    def write(self, *parts: Part, answers: bytes = b"") -> None:
        """Send one whole line, its newline included; dropped once the reader is gone.

        Args:
            parts: of the line.
            answers: the id of the request that it answers, as JSON; the journal is told before it leaves, and when it
                has left: until then another process could have to give it.
        """
        if self._is_over:
            return
        size = sum(map(len, parts))
        if size <= _JOIN_BYTES:
            self._parts.append(b"".join(parts))
        else:
            self._parts.extend(parts)
        was_empty = not self._held_bytes
        self._held_bytes += size
        self._taken_bytes += size
        if answers:
            self._answers.append((self._taken_bytes, answers))
        if self._held_bytes > HIGH_WATER_BYTES:
            self.is_congested = True
            self._has_room.clear()
        if was_empty:
            self._start()

    def then(self, act: Callable[[], None]) -> None:
        """Do this once all that is held now has left; never, when it does not."""
        if self._held_bytes:
            self._marks.append((self._taken_bytes, act))
        elif not self._is_over:
            act()

    async def room(self) -> None:
        """Wait while congested."""
        await self._has_room.wait()

    async def close(self, timeout_s: float) -> None:
        """Send what is held, for at most `timeout_s`, then nothing any more."""
        try:
            with anyio.move_on_after(timeout_s):
                if self._held_bytes:
                    self._emptied = self._emptied or asyncio.Event()
                    await self._emptied.wait()
        finally:
            self._finish()

    @abstractmethod
    def _start(self) -> None:
        """Parts have come where none were."""

    @abstractmethod
    def _stop(self) -> None:
        """Nothing more is written: leave the descriptor as it was found."""

    def _tell_half(self, *, is_half: bool) -> None:
        """Tell whether a line is half written, or may be, when that is news."""
        if is_half is not self._is_half:
            self._is_half = is_half
            self._journal.writing(is_half=is_half)

    def _wrote(self, size: int) -> None:
        self._held_bytes -= size
        left = self._taken_bytes - self._held_bytes
        while self._answers and self._answers[0][0] <= left:
            self._journal.ended(self._answers.popleft()[1])
        while self._marks and self._marks[0][0] <= left:
            self._marks.popleft()[1]()
        if self.is_congested and self._held_bytes <= LOW_WATER_BYTES:
            self.is_congested = False
            self._has_room.set()
            self._on_room()
        if self._emptied is not None and not self._held_bytes:
            self._emptied.set()

    def _broke(self, error: OSError) -> None:
        if not self._is_over:
            if error.errno not in _READER_LEFT:
                self.failure = error
            self._finish()
            self._on_broken()

    def _finish(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._stop()
            self._parts.clear()
            self._marks.clear()
            self._answers.clear()
            self._wrote(self._held_bytes)


class PolledSink(Sink):
    """A pipe or socket.

    Who dies right after a write has told the journal before.  So it writes what surely goes whole, and of a longer line
    the last byte alone; whether that is right is seen afterwards.
    """

    def __init__(
        self, fd: int, *, on_broken: Callable[[], None], on_room: Callable[[], None], journal: Journal | None = None
    ) -> None:
        super().__init__(fd, on_broken=on_broken, on_room=on_room, journal=journal)
        self._sure_bytes = _SOCKET_BYTES if stat.S_ISSOCK(os.fstat(fd).st_mode) else _CHUNK_BYTES
        self._was_blocking = os.get_blocking(fd)
        self._waits = False
        self._written_at = 0.0
        os.set_blocking(fd, False)

    def _start(self) -> None:
        # An answer on its own leaves at once, those that follow it closely leave together after the loop's turn.
        if monotonic() < self._written_at + BURST_S:
            self._loop.call_soon(self._flush)
        else:
            self._flush()

    def _stop(self) -> None:
        self._loop.remove_writer(self._fd)
        os.set_blocking(self._fd, self._was_blocking)

    def _flush(self) -> None:
        if self._is_over:
            return
        try:
            while self._parts:
                self._write_some()
        except BlockingIOError:
            if not self._waits:
                self._waits = True
                self._loop.add_writer(self._fd, self._flush)
            return
        except OSError as error:
            self._broke(error)
            return
        self._written_at = monotonic()
        if self._waits:
            self._waits = False
            self._loop.remove_writer(self._fd)

    def _write_some(self) -> None:
        parts = list(islice(self._parts, _MAX_PARTS))
        size = self._held_bytes if len(parts) == len(self._parts) else sum(map(len, parts))
        was_half, journal = self._is_half, self._journal
        is_sure = size <= self._sure_bytes or self._takes(size)
        if not is_sure:
            parts = self._sure_parts(parts)
            size = sum(map(len, parts))
            is_sure = size <= self._sure_bytes
        if not is_sure or parts[-1][-1] != _NEWLINE:
            self._tell_half(is_half=True)
        left = self._taken_bytes - self._held_bytes
        for end, id_json in self._answers:
            if end > left + size:
                break
            journal.leaving(id_json)
        written = 0
        try:
            written = os.writev(self._fd, parts)
        finally:
            if written < size:
                for end, id_json in self._answers:
                    if left + written < end <= left + size:
                        journal.kept(id_json)
                if not written:
                    self._tell_half(is_half=was_half)
        self._drop(written)

    def _takes(self, size: int) -> bool:
        """Whether a pipe has room for so much, though each of its pages were but half full."""
        try:
            room = fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ)
            held = int.from_bytes(fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)), sys.byteorder)
        except (OSError, AttributeError):
            return False
        return size + 2 * held + 4 * _CHUNK_BYTES <= room

    def _sure_parts(self, parts: list[Part]) -> list[Part]:
        """As many of these as surely go whole; of a first one that is too long all but the end of its line."""
        if len(parts[0]) > self._sure_bytes:
            return [memoryview(parts[0])[:-1] if parts[0][-1] == _NEWLINE else parts[0]]
        size, count = 0, 0
        while size + len(parts[count]) <= self._sure_bytes:
            size += len(parts[count])
            count += 1
        return parts[:count]

    def _drop(self, size: int) -> None:
        left = size
        if size == self._held_bytes:
            self._parts.clear()
            self._tell_half(is_half=False)
            left = 0
        while left:
            part = self._parts[0]
            if left < len(part):
                self._parts[0] = memoryview(part)[left:]
                self._tell_half(is_half=part[left - 1] != _NEWLINE)
                break
            left -= len(part)
            self._parts.popleft()
            if not left:
                self._tell_half(is_half=part[-1] != _NEWLINE)
        self._wrote(size)


class ThreadedSink(Sink):
    """A file, a terminal, or a description that stderr shares."""

    def __init__(
        self, fd: int, *, on_broken: Callable[[], None], on_room: Callable[[], None], journal: Journal | None = None
    ) -> None:
        # A duplicate: the thread may come back from a write when the descriptor is somebody else's.
        super().__init__(os.dup(fd), on_broken=on_broken, on_room=on_room, journal=journal)
        self._batches: queue.SimpleQueue[list[Part] | None] = queue.SimpleQueue()
        self._news = Waker()
        threading.Thread(target=self._write, name="quarterdeck-stdout", daemon=True).start()

    def _start(self) -> None:
        self._loop.call_soon(self._hand_over)

    def _stop(self) -> None:
        self._news.wake()
        self._batches.put(None)

    def _hand_over(self) -> None:
        if self._parts:
            self._tell_half(is_half=True)  # as far as anyone can tell
            self._batches.put(list(self._parts))
            self._parts.clear()

    def _landed(self, size: int) -> None:
        if not self._is_over:
            self._tell_half(is_half=False)
            self._wrote(size)
            self._hand_over()

    def _write(self) -> None:
        with self._news:
            try:
                is_file = stat.S_ISREG(os.fstat(self._fd).st_mode)
                while (batch := self._batches.get()) is not None:
                    for part in batch:
                        if not self._write_part(memoryview(part), None if is_file else _CHUNK_BYTES):
                            return
                    if not post(self._loop, self._landed, sum(map(len, batch))):
                        return
            except OSError as error:
                post(self._loop, self._broke, error)
            finally:
                os.close(self._fd)

    def _write_part(self, view: memoryview, most: int | None) -> bool:
        """Whether it was written; it is not once the sink is over."""
        while view:
            if self._is_over or not self._news.wait_for(self._fd, select.POLLOUT):
                return False
            view = view[os.write(self._fd, view[:most]) :]
        return True


def open_sink(
    fd: int,
    *,
    on_broken: Callable[[], None],
    on_room: Callable[[], None],
    journal: Journal | None = None,
    stderr_fd: int = 2,
) -> Sink:
    """The right writer for `fd`.

    Args:
        fd: borrowed until `close`.
        on_broken: called once when the reader is gone.
        on_room: called when the sink was congested and no longer is.
        stderr_fd: see `can_poll`.
        journal: told which answers leave, and whether a line is half written.
    """
    kind = PolledSink if can_poll(fd, stderr_fd) else ThreadedSink
    return kind(fd, on_broken=on_broken, on_room=on_room, journal=journal)
