"""Standard streams that a command can rely on: open, and when they break it is said once, with an exit code.

A closed one is opened on nothing, so that no file or socket of ours takes its number.  What cannot be written to stderr
is dropped.  What cannot be written to stdout ends the command with `OutputError`: its device is full, its reader left.

Imports next to nothing: it is done before everything else.
"""

import io
import os
import sys
from typing import TextIO


class OutputError(Exception):
    """Stdout cannot be written any more; `number` says why."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.number = number


class _Stdout(io.FileIO):
    """Tells of the first failure, and takes no more from then on: nobody else shall tell it again, as the
    interpreter's end would.
    """

    failure: OutputError | None = None

    def write(self, data: object, /) -> int:
        if self.failure is None:
            try:
                return super().write(data) or 0  # type: ignore[arg-type]
            except OSError as error:
                self.failure = OutputError(error.errno or 0)
                raise self.failure from None
        return memoryview(data).nbytes  # type: ignore[arg-type]


class _Stderr(io.FileIO):
    """Drops what cannot be written: there is nowhere to complain."""

    def write(self, data: object, /) -> int:
        try:
            return super().write(data) or 0  # type: ignore[arg-type]
        except OSError:
            return memoryview(data).nbytes  # type: ignore[arg-type]


def secure_streams() -> None:
    """Replace the interpreter's standard streams."""
    global _closed
    streams = (sys.stdin, sys.stdout, sys.stderr)
    _closed = frozenset(number for number, stream in enumerate(streams) if stream is None)
    for number in sorted(_closed):
        fd = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
        if fd != number:
            os.dup2(fd, number)
            os.close(fd)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it lives as long as we do
    sys.stdout = _text(_Stdout(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Stderr(2, "w", closefd=False), sys.stderr)


def closed_streams() -> frozenset[int]:
    """The standard descriptors that were closed when we were started."""
    return _closed


def output_failure() -> OutputError | None:
    """Why what was said on stdout is not all there, once `secure_streams` was called; None when it is."""
    try:
        sys.stdout.flush()
    except OutputError as error:
        return error
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.failure if isinstance(raw, _Stdout) else None


_closed: frozenset[int] = frozenset()


def _text(raw: io.FileIO, before: TextIO | None) -> TextIO:
    encoding = before.encoding if before is not None else "utf-8"
    is_terminal = raw.isatty()
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding,
        # A server's text may hold what the locale cannot say.
        errors="backslashreplace",
        line_buffering=is_terminal or raw.fileno() == 2,
    )
