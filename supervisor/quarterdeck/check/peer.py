"""One confined start of a server, spoken to over its pipes line by line, or byte by byte; all that comes is recorded.

Reading is bounded: so much of a line, so many bytes in all; what a line is, `hearing` says.  Every wait has a deadline.
"""

import asyncio
import os
import signal
import time
from contextlib import suppress
from typing import Final

import msgspec

from quarterdeck_protocol.mcp.jsonrpc import LineBuffer, LineTooLongError
from quarterdeck_sandbox import ConfinedProcess, infer_hints

from .episode import End, Ending, Episode, Members
from .requests import message
from .speaker import OpenRequest, Outcome, Speaker

MAX_LINE_BYTES: Final = 8 * 1024 * 1024
MAX_READ_BYTES: Final = 64 * 1024 * 1024
"""Of one start; more ends it."""

READ_BYTES: Final = 64 * 1024
READS_A_WAKE: Final = 16

STDERR_BYTES: Final = 32 * 1024
"""Of its end that are kept."""

WRITE_S: Final = 10.0
"""How long a server may leave its stdin unread."""

PIECE_S: Final = 0.2
"""Between the two pieces of a line."""

NOTE_S: Final = 1.0
"""How long a notification may wait for a server that does not read."""

LAST_WORDS_S: Final = 1.0
"""How long what a server has written is still read once it has ended."""

END_S: Final = 15.0
"""How long a server may take to end when it is asked to; clients wait two to five seconds, on a machine at rest."""

GRACE_S: Final = 1.0
"""Of each step by which one is ended that is of no further interest."""


class Peer(Speaker):
    """Speaks to a server process. Call `close` in the end."""

    def __init__(self, process: ConfinedProcess, episode: Episode) -> None:
        super().__init__(episode)
        self.process = process
        self._loop = asyncio.get_running_loop()
        self._lines = LineBuffer(MAX_LINE_BYTES)
        self._held: bytearray | None = None
        self._writing = asyncio.Lock()
        self._read = 0
        self._stderr = bytearray()
        self._stderr_read = 0
        self._eof = asyncio.Event()
        self._loop.add_reader(process.stdout_fd, self._readable)
        self._loop.add_reader(process.stderr_fd, self._stderr_readable)
        self._watching = self._loop.create_task(self._watch())

    # Speaking

    async def carry(self, request: OpenRequest, wait_s: float, *, in_pieces: bool) -> Outcome:
        """Write a request's line, and wait for its answer."""
        line = request.message + b"\n"
        mark, began = self._stderr_read, time.monotonic()
        if in_pieces:
            await self.write(line[: len(line) // 2], wait_s)
            await asyncio.sleep(PIECE_S)
            line = line[len(line) // 2 :]
        if await self.write(line, wait_s):
            await self._answered_or_gone(request.answer, wait_s - (time.monotonic() - began))
        if self.gone.is_set() and not request.answer.done():
            await self._drained()
        request.close()
        is_lost = self.gone.is_set()
        ending = Ending.ANSWERED if request.reply is not None else Ending.LOST if is_lost else Ending.SILENT
        if ending is Ending.SILENT and request.method != "initialize":
            self.hearing.cancelled(request.request_id, time.monotonic())
            await self.notify(
                "notifications/cancelled", {"requestId": request.request_id, "reason": "no longer wanted"}
            )
        return Outcome(ending, self.hints_since(mark, request.reply))

    async def notify(self, method: str, params: Members | None = None) -> bool:
        """Write a notification. Return whether the server took it."""
        return await self.write(message(method, params) + b"\n")

    async def write(self, data: bytes, wait_s: float = WRITE_S) -> bool:
        """Write bytes as they are. Return False if the server does not take them in time."""
        if self._held is not None:
            self._held += data
            return True
        until = time.monotonic() + min(wait_s, WRITE_S)
        view = memoryview(data)
        async with self._writing:
            while view and not self.gone.is_set() and self.process.stdin_fd >= 0:
                try:
                    view = view[os.write(self.process.stdin_fd, view) :]
                except BlockingIOError:
                    if time.monotonic() > until:
                        return False
                    await asyncio.sleep(0.01)
                except OSError:
                    return False
        self._write_answers()
        return not view

    def hold(self) -> None:
        """Keep everything that is written from now on, until `release`."""
        self._held = bytearray()

    async def release(self) -> None:
        """Write all that was kept at once."""
        held, self._held = self._held, None
        await self.write(bytes(held or b""))

    async def end(self, asked: str) -> None:
        """Ask it to end (`stdin`, `half line` or `term`), and record how long it takes."""
        if self.gone.is_set():
            return
        mark, began = self._stderr_read, time.monotonic()
        if asked == "half line":
            await self.write(b'{"jsonrpc": "2.0", "id": 99, "met')
        if asked == "term":
            self.process.signal(signal.SIGTERM)
        else:
            self.process.close_stdin()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self.gone.wait()
        after_s = time.monotonic() - began if self.gone.is_set() else None
        await self._drained()
        self._stderr_readable()
        words = bytes(self._stderr[-new:]) if (new := self._stderr_read - mark) else b""
        last = words.decode(errors="replace")
        self.episode.end = End(asked, after_s, self.process.returncode, self.process.limit, last)

    async def close(self) -> None:
        """End the whole tree, release its pipes, and record its usage."""
        self.process.look()
        if self.gone.is_set() and not self.episode.end.asked:
            await self._drained()
            self.episode.end = End("", None, self.process.returncode, self.process.limit)
        await self.process.stop(GRACE_S)
        self._watching.cancel()
        for fd in (self.process.stdout_fd, self.process.stderr_fd):
            self._loop.remove_reader(fd)
        self._stderr_readable()
        self.process.close_fds()
        self.episode.cpu_s = self.process.cpu_s
        self.episode.peak_bytes = self.process.dossier("", ()).peak_rss_bytes
        self.episode.stderr = bytes(self._stderr).decode(errors="replace")

    def hints_since(self, mark: int, reply: Members | None) -> tuple[str, ...]:
        """Return hosts and files that it was refused, by its stderr since `mark` and its answer."""
        new = self._stderr_read - mark
        text = bytes(self._stderr[-new:]).decode(errors="replace") if new else ""
        if reply is not None and (b"error" in (told := msgspec.json.encode(reply)[:8192]) or b"isError" in told):
            text += "\n" + told.decode(errors="replace").replace("\\n", "\n")
        return wanted_outside(text, self.process) if text else ()

    @property
    def stderr_mark(self) -> int:
        """The number of bytes read from its stderr."""
        return self._stderr_read

    # Listening

    def _readable(self) -> None:
        for _ in range(READS_A_WAKE):
            try:
                data = os.read(self.process.stdout_fd, READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self._read += len(data)
            if not data or self._read > MAX_READ_BYTES:
                self._stop_reading("it wrote more than 64 MiB on stdout" if data else "")
                return
            try:
                for line in self._lines.feed(data):
                    self.hearing.receive(line, time.monotonic())
            except LineTooLongError:
                self._stop_reading("a line on stdout is longer than 8 MiB")
                return
            self._write_answers()

    def _stop_reading(self, why: str) -> None:
        self._loop.remove_reader(self.process.stdout_fd)
        self._eof.set()
        if why:
            self.hearing.note(self.episode.misshapen, why)
            self.process.kill()

    def _write_answers(self) -> None:
        """Answer the server's requests, but never within a line of ours; one that does not read gets no answer."""
        if self._writing.locked():
            return
        with suppress(OSError):
            while self.hearing.answers:
                os.write(self.process.stdin_fd, self.hearing.answers.pop(0))

    def _stderr_readable(self) -> None:
        for _ in range(READS_A_WAKE):
            try:
                data = os.read(self.process.stderr_fd, READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._loop.remove_reader(self.process.stderr_fd)
                return
            self._stderr_read += len(data)
            self._stderr += data
            del self._stderr[:-STDERR_BYTES]

    async def _watch(self) -> None:
        await self.process.wait()
        self.gone.set()

    async def _answered_or_gone(self, answer: "asyncio.Future[Members]", wait_s: float) -> None:
        gone = self._loop.create_task(self.gone.wait())
        try:
            await asyncio.wait((answer, gone), timeout=max(0.0, wait_s), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()

    async def _drained(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._eof.wait()


def wanted_outside(text: str, process: ConfinedProcess) -> tuple[str, ...]:
    """Return in few words the hosts and files that a text says were refused, except its own directories."""
    confinement = process.confinement
    own = os.path.dirname(confinement.plan.env["HOME"])
    hints = infer_hints(text[-8192:], confinement)
    return tuple(
        hint.partition(";")[0] for hint in hints if ("reached" in hint or "hidden" in hint) and own not in hint
    )
