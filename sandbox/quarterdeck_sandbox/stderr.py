"""What a server says on stderr: redacted, its end kept for the dossier, the rest kept in a file of bounded size."""

import os
from pathlib import Path
from typing import BinaryIO, Final

from quarterdeck_protocol.secrets import Redactor

TAIL_BYTES: Final = 32 * 1024
"""What a dossier keeps."""

LOG_BYTES: Final = 4 * 1024 * 1024
"""A log file's size before it becomes the one older file that is kept."""


class StderrKeeper:
    """The sink of one server's stderr."""

    def __init__(self, log_path: str, redactor: Redactor) -> None:
        """Keep a tail, and a log at `log_path` (0600) unless it is empty.

        Raises:
            OSError: the log cannot be opened.
        """
        self._path = Path(log_path) if log_path else None
        self._redactor = redactor
        self._file: BinaryIO | None = None
        self._size = 0
        self._tail = bytearray()
        self._is_cut = False
        self._partial = b""
        self._open()

    @property
    def tail(self) -> str:
        """The last `TAIL_BYTES`, from a line's begin where there is one."""
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
        """Write what is left."""
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
        self._file.write(data[-LOG_BYTES:])
        self._size += len(data)
        if self._size > LOG_BYTES:
            self._close_log()
            os.replace(self._path, self._path.with_name(self._path.name + ".1"))
            self._open()

    def _close_log(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _open(self) -> None:
        if self._path is None:
            return
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(fd, "ab", buffering=0)
        self._size = os.fstat(fd).st_size
