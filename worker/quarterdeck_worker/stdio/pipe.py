"""A server's stdin and stdout as lines, without blocking and without growing beyond their bounds."""

import asyncio
import os
from collections.abc import Callable
from time import monotonic
from typing import Final

from quarterdeck_protocol.mcp.jsonrpc import LineBuffer, LineTooLongError

READ_BYTES: Final = 64 * 1024
"""One read; larger buffers are mapped and unmapped anew by the allocator at each call (measured)."""

READS_A_WAKE: Final = 8
"""Reads before the loop's other work gets its turn, so that a flood cannot starve heartbeats."""

BURST_S: Final = 0.00005
"""A line that follows another so closely waits for those behind it: many calls begin in one turn of the loop."""

MAX_UNREAD_BYTES: Final = 64 * 1024 * 1024
"""What may wait for a server that does not read its stdin."""


class ServerPipe:
    """The two pipes; descriptors are the caller's and must be non-blocking.

    Attributes:
        bytes_read: all that the server wrote.
        stirred: set whenever anything is read or written; whoever waits for it clears it.
    """

    def __init__(
        self,
        stdin_fd: int,
        stdout_fd: int,
        *,
        max_line_bytes: int,
        on_line: Callable[[bytes], None],
        on_drain: Callable[[], None],
        on_end: Callable[[LineTooLongError | None], None],
    ) -> None:
        """Begin to read.

        Args:
            stdin_fd: where lines are written.
            stdout_fd: where lines are read.
            max_line_bytes: a longer line ends the pipe.
            on_line: called with each line; must not raise.
            on_drain: called when the server has read all that had to wait for it.
            on_end: called once: nothing more will be read, because the server closed its end (None) or broke the limit.
        """
        self._in = stdin_fd
        self._out = stdout_fd
        self._lines = LineBuffer(max_line_bytes)
        self._on_line = on_line
        self._on_drain = on_drain
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._queue = bytearray()
        self._writing = False
        self._written_at = 0.0
        self._ended = False
        self.bytes_read = 0
        self.stirred = asyncio.Event()
        self._loop.add_reader(self._out, self._readable)

    @property
    def is_heard(self) -> bool:
        """Whether the server's stdin is open."""
        return self._in >= 0

    @property
    def waits_for_a_line(self) -> bool:
        """Whether a line was begun, and its end is up to the server."""
        return not self._ended and self._lines.pending_bytes > 0

    @property
    def can_write(self) -> bool:
        """Whether the server reads fast enough to be given more."""
        return self._in >= 0 and len(self._queue) <= MAX_UNREAD_BYTES

    def write(self, line: bytes) -> None:
        """Write a line with its end; what does not fit is kept.  Dropped when the server has closed its stdin.

        A line on its own leaves at once, those that follow it closely leave together after the loop's turn: a write for
        each costs more than all else that a call costs here (measured).
        """
        if self._in < 0:
            return
        self.stirred.set()
        if self._queue:
            self._queue += line
            return
        if monotonic() < self._written_at + BURST_S:
            self._queue += line
            self._loop.call_soon(self._end_turn)
            return
        written = self._try_write(line)
        if written < len(line):
            self._queue += memoryview(line)[written:]
            self._watch_writable()

    def stop_writing(self) -> None:
        """Forget the server's stdin; its descriptor may be closed now."""
        if self._writing:
            self._loop.remove_writer(self._in)
            self._writing = False
        self._in = -1
        self._queue.clear()

    def close(self) -> None:
        """Leave the loop; nothing is read or written afterwards, `on_end` is not called."""
        self.stop_writing()
        if not self._ended:
            self._ended = True
            self._loop.remove_reader(self._out)

    def _end_turn(self) -> None:
        if self._queue and not self._writing:
            self._writable()
            if self._queue:
                self._watch_writable()

    def _readable(self) -> None:
        for _ in range(READS_A_WAKE):
            try:
                data = os.read(self._out, READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._end(None)
                return
            self.bytes_read += len(data)
            self.stirred.set()
            try:
                for line in self._lines.feed(data):
                    self._on_line(line)
                    if self._ended:
                        return
            except LineTooLongError as error:
                self._end(error)
                return
            if len(data) < READ_BYTES:
                return

    def _end(self, error: LineTooLongError | None) -> None:
        self.close()
        self._on_end(error)

    def _try_write(self, data: bytes | bytearray) -> int:
        try:
            written = os.write(self._in, data)
        except BlockingIOError:
            return 0
        except OSError:
            # The server closed its stdin; its death, if it is one, arrives by its own way.
            self.stop_writing()
            return len(data)
        self._written_at = monotonic()
        return written

    def _watch_writable(self) -> None:
        if not self._writing and self._in >= 0:
            self._writing = True
            self._loop.add_writer(self._in, self._writable)

    def _writable(self) -> None:
        written = self._try_write(self._queue)
        if self._in < 0:
            return
        del self._queue[:written]
        if not self._queue:
            self._loop.remove_writer(self._in)
            self._writing = False
            self._on_drain()
