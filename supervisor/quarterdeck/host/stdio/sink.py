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
        self._parts: deque[tuple[Part, bytes]] = deque()
        """What is held; a line's last part with the id of the request that it answers, empty for none."""
        self._held_bytes = 0
        self._acts: list[tuple[int, Callable[[], None]]] = []
        """What is to be done, each with the number of bytes that leave before."""
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
        if size > _JOIN_BYTES:
            *first, last = parts
            self._parts.extend((part, b"") for part in first)
            self._parts.append((last, answers))
        else:
            self._parts.append((b"".join(parts), answers))
        held = self._held_bytes = self._held_bytes + size
        if held > HIGH_WATER_BYTES:
            self.is_congested = True
            self._has_room.clear()
        if held == size:
            self._start()

    def then(self, act: Callable[[], None]) -> None:
        """Do this once all that is held now has left; never, when it does not."""
        if self._held_bytes:
            self._acts.append((self._held_bytes, act))
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
        """So much has left."""
        self._held_bytes -= size
        if self._acts:
            acts = [(left - size, act) for left, act in self._acts]
            self._acts = [each for each in acts if each[0] > 0]
            for left, act in acts:
                if left <= 0:
                    act()
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
            self._acts.clear()
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
        was_half, journal, size = self._is_half, self._journal, self._held_bytes
        if size <= self._sure_bytes or self._takes(size):
            data: Part = b"".join([part for part, _ in self._parts])
            count = len(self._parts)
        else:
            data, count = self._sure_parts()
            size = len(data)
            if size > self._sure_bytes or data[-1] != _NEWLINE:
                self._tell_half(is_half=True)
        ids = [id_json for _, id_json in islice(self._parts, count) if id_json]
        for id_json in ids:
            journal.leaving(id_json)
        try:
            written = os.write(self._fd, data)
        except OSError:
            self._keep(count, 0)
            self._tell_half(is_half=was_half)
            raise
        if written == self._held_bytes:
            self._parts.clear()
            for id_json in ids:
                journal.ended(id_json)
            if self._is_half:
                self._tell_half(is_half=False)
        else:
            self._keep(count, written)
            self._drop(written)
        self._wrote(written)

    def _takes(self, size: int) -> bool:
        """Whether a pipe has room for so much, though each of its pages were but half full."""
        try:
            room = fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ)
            held = int.from_bytes(fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)), sys.byteorder)
        except (OSError, AttributeError):
            return False
        return size + 2 * held + 4 * _CHUNK_BYTES <= room

    def _sure_parts(self) -> tuple[Part, int]:
        """As much as surely goes whole, and how many parts it is; of a longer first part all but the end of its line,
        which is none.
        """
        first, _ = self._parts[0]
        if len(first) > self._sure_bytes:
            return (memoryview(first)[:-1], 0) if first[-1] == _NEWLINE else (first, 1)
        size, parts = 0, list[Part]()
        for part, _ in self._parts:
            size += len(part)
            if size > self._sure_bytes:
                break
            parts.append(part)
        return b"".join(parts), len(parts)

    def _keep(self, count: int, written: int) -> None:
        """Of the first parts, tell what is not answered after all, since only so many bytes were written."""
        end = 0
        for part, id_json in islice(self._parts, count):
            end += len(part)
            if id_json and end > written:
                self._journal.kept(id_json)

    def _drop(self, size: int) -> None:
        """So much of what is held was written."""
        while size:
            part, id_json = self._parts[0]
            if size < len(part):
                self._parts[0] = memoryview(part)[size:], id_json
                self._tell_half(is_half=part[size - 1] != _NEWLINE)
                return
            self._parts.popleft()
            size -= len(part)
            if not size:
                self._tell_half(is_half=part[-1] != _NEWLINE)
            if id_json:
                self._journal.ended(id_json)


class ThreadedSink(Sink):
    """A file, a terminal, or a description that stderr shares."""

    def __init__(
        self, fd: int, *, on_broken: Callable[[], None], on_room: Callable[[], None], journal: Journal | None = None
    ) -> None:
        # A duplicate: the thread may come back from a write when the descriptor is somebody else's.
        super().__init__(os.dup(fd), on_broken=on_broken, on_room=on_room, journal=journal)
        self._batches: queue.SimpleQueue[list[tuple[Part, bytes]] | None] = queue.SimpleQueue()
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

    def _landed(self, batch: list[tuple[Part, bytes]]) -> None:
        if not self._is_over:
            self._tell_half(is_half=False)
            for _, id_json in batch:
                if id_json:
                    self._journal.ended(id_json)
            self._wrote(sum(len(part) for part, _ in batch))
            self._hand_over()

    def _write(self) -> None:
        with self._news:
            try:
                is_file = stat.S_ISREG(os.fstat(self._fd).st_mode)
                while (batch := self._batches.get()) is not None:
                    for part, _ in batch:
                        if not self._write_part(memoryview(part), None if is_file else _CHUNK_BYTES):
                            return
                    if not post(self._loop, self._landed, batch):
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
