"""One confined start of a server, spoken to over its pipes line by line, or byte by byte; all that comes is recorded.

Reading is bounded: so much of a line, so many bytes in all, so much of each thing that is kept.  Every wait has a
deadline.  A request of the server's is answered at once: `ping`, and all else with -32601.
"""

import asyncio
import os
import signal
import time
from contextlib import suppress
from typing import Final

import msgspec

from quarterdeck_protocol.mcp.jsonrpc import METHOD_NOT_FOUND, LineBuffer, LineTooLongError
from quarterdeck_protocol.schema.canonical import JsonValue
from quarterdeck_sandbox import ConfinedProcess, infer_hints

from .episode import End, Ending, Episode, Exchange, FileChanges, Members, RequestId
from .schemas import shown

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
MAX_READ_BYTES: Final = 128 * 1024 * 1024
"""Of one start; more ends it."""

READ_BYTES: Final = 64 * 1024
READS_A_WAKE: Final = 16

MAX_KEPT: Final = 20
"""Of each kind of thing that is recorded."""

MAX_PROGRESS: Final = 1000
"""Notifications of one request that are kept."""

MAX_ANSWERED: Final = 1000
"""Requests of the server's that are answered."""

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


class Peer:
    """See the module.  `close` must be called in the end."""

    def __init__(self, process: ConfinedProcess, episode: Episode) -> None:
        self.process = process
        self.episode = episode
        self.started_at = time.monotonic()
        self.gone = asyncio.Event()
        self.null_errors = 0
        """Errors that name no request."""
        self._loop = asyncio.get_running_loop()
        self._lines = LineBuffer(MAX_LINE_BYTES)
        self._pending: dict[RequestId, asyncio.Future[Members]] = {}
        self._methods: dict[RequestId, str] = {}
        self._progress: dict[str, list[Members]] = {}
        self._cancelled: dict[RequestId, float] = {}
        self.late: set[RequestId] = set()
        """Cancelled requests that were answered all the same, a while later."""
        self._next_id = 0
        self._read = 0
        self._answered = 0
        self._stderr = bytearray()
        self._stderr_read = 0
        self._eof = asyncio.Event()
        self._loop.add_reader(process.stdout_fd, self._readable)
        self._loop.add_reader(process.stderr_fd, self._stderr_readable)
        self._watching = self._loop.create_task(self._watch())

    # Speaking

    async def request(
        self,
        purpose: str,
        method: str,
        params: Members | None = None,
        *,
        wait_s: float,
        subject: str = "",
        request_id: RequestId | None = None,
        progress: bool = False,
        in_pieces: bool = False,
    ) -> Exchange:
        """Send a request, wait for its answer at most `wait_s`, then cancel it; what came of it is recorded.

        Args:
            purpose: see `Exchange`.
            method: of the request.
            params: of the request, without a progress token.
            wait_s: how long its answer may take.
            subject: see `Exchange`.
            request_id: in place of the next number.
            progress: whether progress is asked for.
            in_pieces: whether its line is written in two pieces, the second a while later.
        """
        if request_id is None:
            self._next_id += 1
            request_id = self._next_id
        sent: Members = dict(params or {})
        token = f"progress-{request_id}"
        if progress:
            meta = sent.get("_meta")
            sent["_meta"] = {**(meta if isinstance(meta, dict) else {}), "progressToken": token}
            self._progress[token] = []
        line = msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": sent}) + b"\n"
        answer: asyncio.Future[Members] = self._loop.create_future()
        self._pending[request_id], self._methods[request_id] = answer, method
        mark, began = self._stderr_read, time.monotonic()
        if in_pieces:
            await self.write(line[: len(line) // 2], wait_s)
            await asyncio.sleep(PIECE_S)
            line = line[len(line) // 2 :]
        if await self.write(line, wait_s):
            await self._answered_or_gone(answer, wait_s - (time.monotonic() - began))
        if self.gone.is_set() and not answer.done():
            await self._drained()
        waited_s = time.monotonic() - began
        del self._pending[request_id]
        reply = answer.result() if answer.done() else None
        ending = Ending.ANSWERED if reply is not None else Ending.LOST if self.gone.is_set() else Ending.SILENT
        if ending is Ending.SILENT and method != "initialize":
            self._cancelled[request_id] = time.monotonic()
            await self.notify("notifications/cancelled", {"requestId": request_id, "reason": "no longer wanted"})
        exchange = Exchange(
            purpose,
            method,
            sent,
            request_id,
            ending,
            reply,
            waited_s,
            subject,
            tuple(self._progress.get(token, ())),
            FileChanges(),
            self.hints_since(mark, reply),
        )
        self.episode.exchanges.append(exchange)
        return exchange

    async def notify(self, method: str, params: Members | None = None) -> bool:
        """Send a notification."""
        return await self.write(
            msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params or {}}) + b"\n"
        )

    async def write(self, data: bytes, wait_s: float = WRITE_S) -> bool:
        """Write bytes as they are; False when the server does not take them in time."""
        until = time.monotonic() + min(wait_s, WRITE_S)
        view = memoryview(data)
        while view and not self.gone.is_set() and self.process.stdin_fd >= 0:
            try:
                view = view[os.write(self.process.stdin_fd, view) :]
            except BlockingIOError:
                if time.monotonic() > until:
                    return False
                await asyncio.sleep(0.01)
            except OSError:
                return False
        return not view

    async def end(self, asked: str) -> None:
        """Ask it to end, and record how long that takes; it is killed when it does not.

        `asked` is `stdin`, `half line` or `term`.
        """
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
        """End the whole tree, release its pipes, and record what it took."""
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
        self.episode.peak_bytes = self.process.peak_rss_bytes
        self.episode.stderr = bytes(self._stderr).decode(errors="replace")

    def hints_since(self, mark: int, reply: Members | None) -> tuple[str, ...]:
        """What it wanted and was not given, by what it wrote on stderr since then and by its answer."""
        new = self._stderr_read - mark
        text = bytes(self._stderr[-new:]).decode(errors="replace") if new else ""
        if reply is not None and (b"error" in (told := msgspec.json.encode(reply)[:8192]) or b"isError" in told):
            text += "\n" + told.decode(errors="replace").replace("\\n", "\n")
        return wanted_outside(text, self.process) if text else ()

    @property
    def stderr_mark(self) -> int:
        """How much was read of its stderr."""
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
                self._stop_reading("it wrote more than 128 MiB on stdout" if data else "")
                return
            try:
                for line in self._lines.feed(data):
                    self._receive(line)
            except LineTooLongError:
                self._stop_reading("a line on stdout is longer than 16 MiB")
                return

    def _stop_reading(self, why: str) -> None:
        self._loop.remove_reader(self.process.stdout_fd)
        self._eof.set()
        if why:
            self._keep(self.episode.misshapen, why)
            self.process.kill()

    def _receive(self, line: bytes) -> None:
        try:
            message = msgspec.json.decode(line)
            line.decode()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._junk(line)
            return
        if isinstance(message, list):
            self._keep(self.episode.misshapen, "a batch, which only 2025-03-26 knows")
            for each in message[:MAX_KEPT]:
                if isinstance(each, dict):
                    self._message(each)
        elif isinstance(message, dict):
            self._message(message)
        else:
            self._junk(line)

    def _junk(self, line: bytes) -> None:
        self.episode.junk_lines += 1
        self._keep(self.episode.junk, shown(line[:400].decode(errors="replace")))

    def _message(self, message: Members) -> None:
        if message.get("jsonrpc") != "2.0":
            self._keep(self.episode.misshapen, f'"jsonrpc" is {shown(str(message.get("jsonrpc")))}, not "2.0"')
        method = message.get("method")
        if isinstance(method, str):
            if "id" in message:
                self._asked(method, message["id"])
            elif method == "notifications/progress":
                self._progressed(message.get("params"))
        else:
            self._replied(message)

    def _asked(self, method: str, request_id: JsonValue) -> None:
        if method != "ping":
            self._keep(self.episode.asked, shown(method))
        self._answered += 1
        if self._answered > MAX_ANSWERED:
            return
        answer: Members = {"jsonrpc": "2.0", "id": request_id}
        if method == "ping":
            answer["result"] = {}
        else:
            answer["error"] = {"code": METHOD_NOT_FOUND, "message": "this client did not declare that capability"}
        with suppress(OSError):
            os.write(self.process.stdin_fd, msgspec.json.encode(answer) + b"\n")

    def _progressed(self, params: JsonValue) -> None:
        token = params.get("progressToken") if isinstance(params, dict) else None
        told = self._progress.get(token) if isinstance(token, str) else None
        if told is None or not isinstance(params, dict):
            self._keep(self.episode.foreign_progress, shown(str(token)))
        elif len(told) < MAX_PROGRESS:
            told.append(params)

    def _replied(self, message: Members) -> None:
        problem = _misshapen(message)
        if problem:
            self._keep(self.episode.misshapen, problem)
        request_id = message.get("id")
        if request_id is None:
            self.null_errors += "error" in message
            return
        if request_id == ODD_ID:
            return
        known = request_id if isinstance(request_id, int | str) and not isinstance(request_id, bool) else None
        if known is None:
            self._keep(self.episode.strays, f"an answer's id is {shown(str(request_id))}")
        elif (pending := self._pending.get(known)) is not None:
            if pending.done():
                self._keep(self.episode.strays, f"{self._methods[known]} was answered twice")
            else:
                pending.set_result(message)
        elif (other := self._spelt_otherwise(known)) is not None:
            self._keep(self.episode.strays, f"id {other!r} was answered as {known!r}")
            if not (pending := self._pending[other]).done():
                pending.set_result(message)
        elif known in self._cancelled:
            if time.monotonic() - self._cancelled[known] > LATE_S:
                self.late.add(known)
        elif known in self._methods:
            self._keep(self.episode.strays, f"{self._methods[known]} was answered twice")
        else:
            self._keep(self.episode.strays, f"an answer to {shown(repr(known))}, which was never asked")

    def _spelt_otherwise(self, request_id: RequestId) -> RequestId | None:
        return next((each for each in self._pending if each != request_id and str(each) == str(request_id)), None)

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
        """Wait for what was written before the end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._eof.wait()

    def _keep(self, kept: list[str], text: str) -> None:
        if text not in kept and len(kept) < MAX_KEPT:
            kept.append(text)


ODD_ID: Final = {"a": 1}
"""Of a request that is none: whoever answers it may repeat it."""

LATE_S: Final = 0.25
"""An answer that comes so soon after its cancellation may have crossed it."""


def wanted_outside(text: str, process: ConfinedProcess) -> tuple[str, ...]:
    """Hosts and files that a text says could not be had, in a few words each."""
    hints = infer_hints(text[-8192:], process.confinement)
    return tuple(hint.partition(";")[0] for hint in hints if "reached" in hint or "hidden" in hint)


def _misshapen(message: Members) -> str:
    """What is wrong with an answer, as JSON-RPC has it; empty for nothing."""
    if "id" not in message:
        return "a message has neither method nor id"
    if ("result" in message) == ("error" in message):
        return "an answer has " + ("both result and error" if "result" in message else "neither result nor error")
    if "result" in message:
        return "" if isinstance(message["result"], dict) else "a result is no object"
    error = message["error"]
    if not isinstance(error, dict):
        return "an error is no object"
    if not isinstance(error.get("code"), int) or isinstance(error.get("code"), bool):
        return "an error's code is no whole number"
    return "" if isinstance(error.get("message"), str) else "an error's message is no text"
