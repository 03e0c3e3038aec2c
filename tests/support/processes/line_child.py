"""A child process that speaks in lines over stdio, with a deadline on every wait.  Knows nothing of JSON.

Blocking and loop-free, so that it adds next to nothing to what a bench measures.  Not to be shared between threads.
"""

import os
import select
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self

CHUNK_BYTES: Final = 64 * 1024
"""One read: a full pipe on Linux."""

GRACE_S: Final = 20.0
"""What a child gets to end by itself once its stdin is closed, and once more after SIGTERM."""


class PeerClosedError(ConnectionError):
    """The child closed its stdout, or its stdin is closed to us."""


class LineChild:
    """The child; a context manager that ends it, by its pid alone, and waits for it."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float = 10.0,
        grace_s: float = GRACE_S,
        popen: "Callable[..., subprocess.Popen[bytes]]" = subprocess.Popen,
        **options: Any,
    ) -> None:
        """Start the child.

        Args:
            argv: its command line.
            deadline_s: how long a wait may take where the call names no time of its own, in seconds.
            grace_s: patience at each step of `close`, in seconds.
            popen: what starts it.
            options: what else `popen` is told.

        Raises:
            OSError: it cannot be started.
        """
        self.deadline_s = deadline_s
        self._grace_s = grace_s
        self._lines: deque[bytes] = deque()
        self._partial: list[bytes] = []
        self._ended = False
        # A file, for a pipe that nobody drains would stall a talkative child.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `close`
        try:
            self.process = popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, bufsize=0, **options
            )
        except BaseException:
            self._stderr.close()
            raise
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        self._out_fd, self._in_fd = self._stdin.fileno(), self._stdout.fileno()
        os.set_blocking(self._out_fd, False)
        os.set_blocking(self._in_fd, False)
        self._readable = select.poll()
        self._readable.register(self._in_fd, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self.process.pid

    def stderr_text(self) -> str:
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), size, 0).decode(errors="replace")

    def write(self, data: bytes, within_s: float | None = None) -> None:
        """Write all of `data` to the child, reading meanwhile what it writes, so that neither waits for the other.

        Raises:
            TimeoutError: the child did not take it all within the deadline.
            PeerClosedError: nobody reads the child's stdin any more.
        """
        view = memoryview(data)
        deadline = self._deadline(within_s)
        while True:
            try:
                view = view[os.write(self._out_fd, view) :]
            except BlockingIOError:
                pass
            except (BrokenPipeError, ValueError) as error:
                raise PeerClosedError("the child's stdin is closed") from error
            if not view:
                return
            self._wait_to_write(deadline)

    def read_line(self, within_s: float | None = None, *, until: float | None = None) -> bytes:
        """The next line without its newline, from what was read already or as it comes.

        Args:
            within_s: how long to wait for it, in seconds; None means `deadline_s`.
            until: the deadline as a monotonic time instead.

        Raises:
            TimeoutError: no whole line came within the deadline.
            PeerClosedError: stdout ended; an unfinished line is lost.
        """
        deadline = self._deadline(within_s) if until is None else until
        while not self._lines:
            if self._ended:
                raise PeerClosedError(f"the child's stdout ended (exit code {self.process.poll()})")
            if not self._readable.poll(_remaining_ms(deadline)):
                raise TimeoutError("the child wrote no line in time")
            self._take_in()
        return self._lines.popleft()

    def close_stdin(self) -> None:
        """Tell the child that no more comes.  Harmless when repeated."""
        self._stdin.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End the child: close stdin, wait, SIGTERM, wait, SIGKILL, reap.  Harmless when repeated."""
        self.close_stdin()
        for push in (None, self.process.terminate, self.process.kill):
            if push is not None and self.process.poll() is None:
                push()
            if self._reap():
                break
        self._stdout.close()
        self._stderr.close()

    def _reap(self) -> bool:
        """Whether the child ends within the grace; its output is drained, for it may be stuck in a write."""
        deadline = time.monotonic() + self._grace_s
        while self.process.poll() is None and time.monotonic() < deadline:
            if self._ended:
                time.sleep(0.002)
            elif self._readable.poll(5):
                self._take_in()
                self._lines.clear()
                self._partial.clear()
        return self.process.poll() is not None

    def _take_in(self) -> None:
        try:
            chunk = os.read(self._in_fd, CHUNK_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self._ended = True
            return
        self._partial.append(chunk)
        # Joined only when a line ends, so that one of 100 MB costs linear time.
        if b"\n" in chunk:
            *lines, rest = b"".join(self._partial).split(b"\n")
            self._partial = [rest]
            self._lines.extend(lines)

    def _wait_to_write(self, deadline: float) -> None:
        either = select.poll()
        either.register(self._out_fd, select.POLLOUT)
        if not self._ended:
            either.register(self._in_fd, select.POLLIN)
        ready = dict(either.poll(_remaining_ms(deadline)))
        if not ready:
            raise TimeoutError("the child did not read its stdin in time")
        if self._in_fd in ready:
            self._take_in()

    def _deadline(self, within_s: float | None) -> float:
        return time.monotonic() + (self.deadline_s if within_s is None else within_s)


def _remaining_ms(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic()) * 1000
