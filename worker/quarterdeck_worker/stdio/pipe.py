"""Carry a connection over a server's stdin and stdout, without blocking and without growing beyond their bounds."""

import asyncio
import os
from time import monotonic
from typing import Final

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord
from quarterdeck_protocol.mcp.jsonrpc import LineBuffer, LineTooLongError
from quarterdeck_worker.connection import Connection

READ_BYTES: Final = 64 * 1024
"""One read; larger buffers are mapped and unmapped anew by the allocator at each call (measured)."""

READS_A_WAKE: Final = 8
"""Reads before the loop's other work gets its turn, so that a flood cannot starve heartbeats."""

BURST_S: Final = 0.0003
"""A line that follows another so closely waits for those behind it: many calls begin in one turn of the loop."""

MAX_UNREAD_BYTES: Final = 64 * 1024 * 1024  # what may wait for a server that does not read its stdin


NO_STDIN: Final = FaultRecord(FaultKind.TOOL_ERROR, "the server has closed its stdin", "server_lost", Delivery.NOT_SENT)
UNREAD: Final = FaultRecord(FaultKind.TOOL_ERROR, "the server does not read what it is sent", "busy", Delivery.NOT_SENT)


class ServerPipe:
    """The two pipes, a `Carrier`; descriptors are the caller's and must be non-blocking."""

    def __init__(self, connection: Connection, stdin_fd: int, stdout_fd: int, *, max_line_bytes: int) -> None:
        self._connection = connection
        self._in = stdin_fd
        self._out = stdout_fd
        self._lines = LineBuffer(max_line_bytes)
        self._loop = asyncio.get_running_loop()
        self._queue = bytearray()
        self._writing = False
        self._written_at = 0.0
        self._ended = False
        self.bytes_read = 0  # all that the server wrote
        # The line that was too long, if that was the end: longer than `max_line_bytes`
        self.overflow: LineTooLongError | None = None
        self.stirred = asyncio.Event()  # set whenever anything is read or written; the waiter clears it
        self._loop.add_reader(self._out, self._readable)

    @property
    def waits_for_a_line(self) -> bool:
        """Whether a line was begun, and its end is up to the server."""
        return not self._ended and self._lines.pending_bytes > 0

    def refusal(self) -> FaultRecord | None:
        """Return why nothing can be written; None while the server reads fast enough to be given more."""
        if self._in < 0:
            return NO_STDIN
        return UNREAD if len(self._queue) > MAX_UNREAD_BYTES else None

    def write(self, lines: bytes) -> None:
        """Write whole lines; what does not fit is kept.  Dropped when the server has closed its stdin.

        A line on its own leaves at once, those that follow it closely leave together after the loop's turn: a write for
        each costs more than all else that a call costs here (measured).
        """
        if self._in < 0:
            return
        self.stirred.set()
        if self._queue:
            self._queue += lines
            return
        if monotonic() < self._written_at + BURST_S:
            self._queue += lines
            self._loop.call_soon(self._end_turn)
            return
        written = self._try_write(lines)
        if written < len(lines):
            self._queue += memoryview(lines)[written:]
            self._watch_writable()

    def stop_writing(self) -> None:
        """Forget the server's stdin; its descriptor may be closed now."""
        if self._writing:
            self._loop.remove_writer(self._in)
            self._writing = False
        self._in = -1
        self._queue.clear()

    def close(self) -> None:
        """Leave the loop; nothing is read or written afterwards, and the connection is told of no end."""
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
                    self._connection.receive(line)
                    if self._ended:
                        return
            except LineTooLongError as error:
                self._end(error)
                return
            if len(data) < READ_BYTES:
                return

    def _end(self, error: LineTooLongError | None) -> None:
        self.close()
        self.overflow = error
        self._connection.end()

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
            self._connection.flush()
