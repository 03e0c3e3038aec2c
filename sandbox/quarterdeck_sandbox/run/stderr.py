"""A server's stderr: redacted, its end kept for the dossier, the rest in a file of bounded size.

Each line of the file begins with its time in UTC and whole seconds, and a tab; `split_time` takes it off.  Lines of
older files, and the dossier's, have none.
"""

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from quarterdeck_protocol.secrets import Redactor

TAIL_BYTES: Final = 32 * 1024  # what a dossier keeps

LOG_BYTES: Final = 4 * 1024 * 1024
"""A log file's size before it becomes the one older file that is kept."""


_STAMP: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)\t")


def split_time(line: bytes) -> tuple[str, bytes]:
    """Return when a log's line was written, as ISO 8601 in UTC, and its text; no time for a line of an older file."""
    found = _STAMP.match(line)
    return (found[1].decode(), line[found.end() :]) if found is not None else ("", line)


class StderrKeeper:
    """Keeps a server's stderr: a tail, and a log at `log_path` (0600) unless that is empty.  Raises OSError."""

    def __init__(self, log_path: str, redactor: Redactor, clock: Callable[[], float] = time.time) -> None:
        self._path = Path(log_path) if log_path else None
        self._redactor = redactor
        self._clock = clock
        self._file: BinaryIO | None = None
        self._size = 0
        self._is_within_line = False
        self._is_torn = False
        self._tail = bytearray()
        self._is_cut = False
        self._partial = b""
        self._open()

    @property
    def tail(self) -> str:
        """The last `TAIL_BYTES`, from the beginning of a line if there is one."""
        text = bytes(self._tail) + self._redactor.clean(self._partial)
        if self._is_cut or len(text) > TAIL_BYTES:
            text = text[-TAIL_BYTES:]
            text = text[text.find(b"\n") + 1 :]
        return text.decode(errors="replace")

    def feed(self, data: bytes) -> None:
        """Take what was read; lines are redacted whole, so a secret split over two reads is found."""
        lines, newline, rest = (self._partial + data).rpartition(b"\n")
        if not newline and len(rest) > TAIL_BYTES:
            lines, rest = rest, b""
        self._partial = rest
        if lines or newline:
            self._keep(self._redactor.clean(lines + newline))

    def close(self) -> None:
        """Write what is left, and close the log."""
        if self._partial:
            self._keep(self._redactor.clean(self._partial) + b"\n")
            self._partial = b""
        self._close_log()

    def _keep(self, data: bytes) -> None:
        self._tail += data
        self._is_cut = self._is_cut or len(self._tail) > TAIL_BYTES
        del self._tail[:-TAIL_BYTES]
        try:
            self._log(data)
        except OSError:
            # A full disk costs the log, not the server.
            self._close_log()

    def _log(self, data: bytes) -> None:
        if self._file is None or self._path is None:
            return
        stamped = self._stamped(data)
        self._file.write(stamped)
        self._size += len(stamped)
        if self._size >= LOG_BYTES:
            self._close_log()
            os.replace(self._path, self._path.with_name(self._path.name + ".1"))
            self._open()

    def _stamped(self, data: bytes) -> bytes:
        """Put the time before each line; return no more than a log may hold: the end counts."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ\t", time.gmtime(self._clock())).encode()
        begin = b"" if self._is_within_line else b"\n" + stamp if self._is_torn else stamp
        self._is_torn = False
        self._is_within_line = not data.endswith(b"\n")
        stamped = begin + data[:-1].replace(b"\n", b"\n" + stamp) + data[-1:]
        if len(stamped) <= LOG_BYTES:
            return stamped
        # A line that lost its begin has a time all the same, or the server could write one there.
        return stamp + stamped[len(stamp) - LOG_BYTES :]

    def _close_log(self) -> None:
        """Close the file, its last line whole: the next one has a time of its own."""
        if self._file is not None:
            file, self._file = self._file, None
            with file, suppress(OSError):
                if self._is_within_line:
                    self._is_within_line = False
                    file.write(b"\n")

    def _open(self) -> None:
        if self._path is None:
            return
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(fd, "ab", buffering=0)
        self._size = os.fstat(fd).st_size
        # A worker that was killed may have left a line without its end.
        self._is_torn = self._size > 0 and os.pread(fd, 1, self._size - 1) != b"\n"
