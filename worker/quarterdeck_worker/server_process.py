"""A stdio server's process with its three pipes: lines for the session, stderr kept, death noticed and explained.

The SDK's own transport hides the process, reads without a bound, and logs a traceback for each line of junk.  Here
`StdioLines` sorts the lines: answers of calls, notifications, and the rest for the SDK's session.
"""

import asyncio
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
import mcp_types as types
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from quarterdeck_protocol.configs import CLOSE_GRACE_S, StdioServerConfig
from quarterdeck_protocol.faults import Delivery, Dossier, FaultKind, FaultRecord
from quarterdeck_protocol.link.frames import OpenOrder
from quarterdeck_protocol.mcp.jsonrpc import BodyError, LineTooLongError, Message, correlation_key, split_line
from quarterdeck_protocol.secrets import Redactor
from quarterdeck_sandbox import ConfinedProcess, StderrKeeper, infer_hints

from .notifications import LogParams, Notifier, ProgressParams, log_text
from .server_pipe import READ_BYTES, ServerPipe
from .tool_calls import RawCalls, ids_in

MAX_INBOX: Final = 256
"""Messages that wait for the SDK before the server is no longer read."""

MAX_NOTE_BYTES: Final = 1024 * 1024
"""Of a notification: nothing that is told in one is longer, and to read it costs many times its size."""

PASSED_ON: Final = frozenset({"notifications/cancelled", "notifications/subscriptions/acknowledged"})
"""Notifications that the SDK's session keeps account of; every other one is ours or nobody's."""

UNKNOWN_METHOD: Final = {"code": types.METHOD_NOT_FOUND, "message": "this client did not declare that capability"}
"""The answer to every request of a server but `ping`."""

UNREADABLE: Final = types.ErrorData(code=types.PARSE_ERROR, message="the server's answer does not follow MCP")
"""Instead of an answer with our id that the SDK cannot read, which it would wait for until its deadline."""

ECHOED: Final = types.ErrorData(code=types.INVALID_REQUEST, message="the program sends back what it is sent")
"""Instead of the answer of a program that copies its input to its output, as `cat` does."""

OPENING_REQUESTS: Final = frozenset({"initialize", "server/discover"})
"""Only clients send these."""


class StdioLines:
    """The two streams that the SDK's session runs on, over a `ServerPipe`."""

    def __init__(self, stdin_fd: int, stdout_fd: int, notifier: Notifier, *, max_line_bytes: int) -> None:
        self._newsroom = notifier
        self._inbox: deque[SessionMessage] = deque()
        self._filled = anyio.Event()
        self._asked: set[types.RequestId] = set()
        self.raw_calls: RawCalls | None = None
        self.ended = anyio.Event()
        self.overflow: LineTooLongError | None = None
        self.is_echo = False
        self.junk_lines = 0
        self.sorted_lines = 0
        self.on_junk: Callable[[bytes], None] = lambda _: None
        self.pipe = ServerPipe(stdin_fd, stdout_fd, max_line_bytes=max_line_bytes, on_line=self._sort, on_end=self._end)

    @asynccontextmanager
    async def streams(
        self,
    ) -> AsyncIterator[
        tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
    ]:
        """What `ClientSession` takes; both end with the block."""
        to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        from_session, to_server = anyio.create_memory_object_stream[SessionMessage](0)
        async with to_session, from_server, from_session, to_server, anyio.create_task_group() as tasks:
            tasks.start_soon(self._feed, to_session)
            tasks.start_soon(self._write, to_server)
            try:
                yield from_server, from_session
            finally:
                tasks.cancel_scope.cancel()

    def _sort(self, line: bytes) -> None:
        self.sorted_lines += 1
        try:
            message = split_line(line)
        except BodyError:
            self._junk(line)
            return
        if message.method is msgspec.UNSET:
            self._reply(correlation_key(message.id), message, line)
        elif message.id is msgspec.UNSET:
            if len(line) > MAX_NOTE_BYTES:
                self.junk_lines += 1
                return
            self._notification(str(message.method), message, line)
        elif message.method in OPENING_REQUESTS and (key := correlation_key(message.id)) in self._asked:
            self._asked.discard(key)
            self.is_echo = True
            self._take_in(types.JSONRPCError(jsonrpc="2.0", id=key, error=ECHOED))
        else:
            self._answer(str(message.method), message.id)

    def _answer(self, method: str, request_id: int | str | None) -> None:
        """Answer a server's request at once: a flood of them must not stand before its own answers."""
        if self.pipe.can_write:
            outcome: dict[str, object] = {"result": {}} if method == "ping" else {"error": UNKNOWN_METHOD}
            self.pipe.write(msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, **outcome}) + b"\n")

    def _reply(self, key: int | str | None, message: Message, line: bytes) -> None:
        if self.raw_calls is not None and isinstance(key, int) and self.raw_calls.is_ours(key):
            self.raw_calls.answered(key, message)
        elif key in self._asked:
            self._pass_on(line)
            self._asked.discard(key)

    def _notification(self, method: str, message: Message, line: bytes) -> None:
        try:
            match method:
                case "notifications/progress":
                    self._progress(msgspec.json.decode(message.params, type=ProgressParams))
                case "notifications/message":
                    note = msgspec.json.decode(message.params, type=LogParams)
                    self._newsroom.log(note.level, note.logger, log_text(msgspec.json.decode(note.data)))
                case "notifications/tools/list_changed":
                    self._newsroom.tools_changed()
                case _ if method in PASSED_ON:
                    self._pass_on(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.junk_lines += 1

    def _progress(self, note: ProgressParams) -> None:
        calls = self.raw_calls
        if calls is not None and (request_id := calls.owner_of(correlation_key(note.progressToken))) is not None:
            self._newsroom.progress(request_id, note.progress, note.total, note.message)

    def _junk(self, line: bytes) -> None:
        self.junk_lines += 1
        self.on_junk(line)
        if not line.startswith(b"{"):
            return
        if self.raw_calls is not None:
            self.raw_calls.spoiled(line)
        for key in ids_in(line):
            if key in self._asked:
                self._asked.discard(key)
                self._take_in(types.JSONRPCError(jsonrpc="2.0", id=key, error=UNREADABLE))

    def _pass_on(self, line: bytes) -> None:
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError:
            self._junk(line)
        else:
            self._take_in(message)

    def _take_in(self, message: types.JSONRPCMessage) -> None:
        self._inbox.append(SessionMessage(message))
        self._filled.set()
        if len(self._inbox) >= MAX_INBOX:
            self.pipe.pause()

    def _end(self, error: LineTooLongError | None) -> None:
        self.overflow = error
        self.ended.set()
        self._filled.set()

    async def _feed(self, to_session: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        async with to_session:
            while True:
                while self._inbox:
                    try:
                        await to_session.send(self._inbox.popleft())
                    except anyio.BrokenResourceError:
                        return  # the session is gone first
                if self.ended.is_set():
                    return
                self.pipe.resume()
                self._filled = anyio.Event()
                await self._filled.wait()

    async def _write(self, to_server: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async for item in to_server:
            if isinstance(item.message, types.JSONRPCRequest):
                self._asked.add(item.message.id)
            line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            self.pipe.write(line.encode() + b"\n")


LAST_WORDS_S: Final = 0.2
"""How long the pipes of a server that has ended are still read."""

EXIT_AFTER_EOF_S: Final = 1.0
"""How long a server that closed its stdout may take to exit before it is said to have hung up alive."""

FIRST_LOOK_S: Final = 0.005
"""Between the first two looks, then twice as long each time: one that ends soon is measured, too."""

LOOK_S: Final = 2.0
"""Between two looks at the server's memory, for its dossier."""

JUNK_LINES_LOGGED: Final = 20
"""Lines on stdout that are no MCP, kept in the log for the server's author; the rest is only counted."""

JUNK_LINE_BYTES: Final = 300

HINTS: Final = {
    126: "its command found a program that is not executable",
    127: "its command could not find a program",
    -signal.SIGKILL: "it was killed from outside, perhaps by the system because memory ran out",
    -signal.SIGSEGV: "it crashed in native code",
    -signal.SIGABRT: "it aborted in native code",
}
"""What a return code says to who knows the system: a status of a shell's, or minus a signal."""


class ServerProcess:
    """See the module.  `close` must be called in the end, whatever happened."""

    def __init__(
        self, process: ConfinedProcess, config: StdioServerConfig, order: OpenOrder, notifier: Notifier
    ) -> None:
        self._process = process
        self._limits = config.sandbox.limits
        self._condemned = ""
        self._loop = asyncio.get_running_loop()
        self._stderr = StderrKeeper(order.log_path, Redactor(order.secrets))
        longest = min(config.max_result_bytes, self._limits.line_bytes or config.max_result_bytes)
        self.lines = StdioLines(process.stdin_fd, process.stdout_fd, notifier, max_line_bytes=longest)
        self.lines.on_junk = self._log_junk
        self._loop.add_reader(process.stderr_fd, self._read_stderr)
        self._watching = self._loop.create_task(self._watch())
        self._network_loss = ""
        self._watching_network = self._loop.create_task(self._watch_network())

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """How it exited, as far as that is known."""
        return self._process.returncode

    def code_of_end(self, otherwise: str) -> str:
        """The code of what we ended it for; `otherwise` when it was not us."""
        return "network_lost" if self._network_loss else "limit_hit" if self._process.limit else otherwise

    def refusal(self) -> FaultRecord | None:
        """Why it cannot be sent a call now; None when it can."""
        pipe = self.lines.pipe
        if not pipe.is_heard:
            code, message = "server_lost", "the server has closed its stdin"
        elif not pipe.can_write:
            code, message = "busy", "the server does not read what it is sent"
        else:
            return None
        return FaultRecord(FaultKind.TOOL_ERROR, message, code, Delivery.NOT_SENT)

    async def lost(self) -> FaultRecord:
        """Wait until the server is gone, or as good as gone, and say why."""
        await first_of(self._process.wait, self.lines.ended.wait)
        if self.lines.overflow is not None:
            return self._record("result_too_large", f"a line on stdout exceeds {self.lines.overflow.max_bytes:,} bytes")
        if not self.lines.ended.is_set():
            with anyio.move_on_after(LAST_WORDS_S):
                await self.lines.ended.wait()
        await self.settle()
        code = self.code_of_end("server_lost" if self.returncode is None else "exited")
        return self._record(code, self.describe_end())

    def condemn(self, limit: str, detail: str) -> None:
        """Kill the server because it passed a limit, which its dossier names."""
        self._condemned = detail
        self._process.kill_for(limit)

    async def _watch(self) -> None:
        """Look at it now and then; what it says on stdout is judged here, its tree by the supervisor's monitor."""
        limits, lines, since, pause_s = self._limits, -1, 0.0, FIRST_LOOK_S
        while True:
            self._process.look()
            now = self._loop.time()
            if self.lines.sorted_lines != lines or not self.lines.pipe.waits_for_a_line:
                lines, since = self.lines.sorted_lines, now
            if limits.partial_line_s is not None and now - since > limits.partial_line_s:
                self.condemn("partial_line_s", f"a line had no end for {now - since:.0f} s")
            if limits.output_bytes is not None and self.lines.pipe.bytes_read > limits.output_bytes:
                self.condemn("output_bytes", f"it wrote {self.lines.pipe.bytes_read:,} bytes on stdout")
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_S)

    async def _watch_network(self) -> None:
        """End a server whose network is gone: it would answer every call with errors of its own, and look ready."""
        why = await self._process.network_lost()
        self._network_loss = why
        self._process.kill()

    async def settle(self) -> None:
        """Give a server that hung up a moment to exit, so that its end can be told."""
        if self.lines.ended.is_set() and self.lines.overflow is None:
            with anyio.move_on_after(EXIT_AFTER_EOF_S):
                await self._process.wait()
        self._read_stderr()

    async def close(self) -> None:
        """Stop the process and everything it started, release the pipes; see `ConfinedProcess.stop`."""
        self._watching.cancel()
        self._watching_network.cancel()
        self.lines.pipe.stop_writing()
        await self._process.stop(CLOSE_GRACE_S)
        self.lines.pipe.close()
        self._read_stderr()
        self._loop.remove_reader(self._process.stderr_fd)
        self._stderr.close()
        self._process.close_fds()

    def dossier(self) -> Dossier:
        """What is known of it by now."""
        code = self._process.returncode
        limit = self._process.limit
        hints = [HINTS[code]] if code in HINTS and limit is None and not self._network_loss else []
        if self.lines.junk_lines == 1:
            hints.append("it wrote 1 line on stdout that is not an MCP message")
        elif self.lines.junk_lines:
            hints.append(f"it wrote {self.lines.junk_lines:,} lines on stdout that are not MCP messages")
        hints += infer_hints(self._stderr.tail, self._process.confinement)
        return Dossier(
            exit_status=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            limit=limit,
            stderr_tail=self._stderr.tail,
            peak_rss_bytes=self._process.peak_rss_bytes,
            peak_is_sampled=self._process.peak_is_sampled,
            cpu_s=self._process.cpu_s,
            uptime_s=self._process.uptime_s,
            hints=tuple(hints),
        )

    def describe_end(self) -> str:
        """How it ended, in a sentence's end."""
        code = self._process.returncode
        if self._network_loss:
            return f"the server was ended because its network was gone ({self._network_loss})"
        if (limit := self._process.limit) is not None:
            return f"the server hit its limit {limit}" + (f": {self._condemned}" if self._condemned else "")
        if code is None:
            return "the server closed its stdout and goes on running"
        if code >= 0:
            return f"the server exited with status {code}"
        return f"the server was killed by {signal_name(-code)}"

    def _record(self, code: str, message: str) -> FaultRecord:
        return FaultRecord(FaultKind.TRANSPORT, message, code=code, delivery=Delivery.UNKNOWN, dossier=self.dossier())

    def _read_stderr(self) -> None:
        for _ in range(16):
            try:
                data = os.read(self._process.stderr_fd, READ_BYTES)
            except (BlockingIOError, OSError):
                return
            if not data:
                self._loop.remove_reader(self._process.stderr_fd)
                return
            self._stderr.feed(data)

    def _log_junk(self, line: bytes) -> None:
        if self.lines.junk_lines <= JUNK_LINES_LOGGED:
            self._stderr.feed(b"[quarterdeck] not MCP on stdout: %s\n" % line[:JUNK_LINE_BYTES])


def signal_name(number: int) -> str:
    """`SIGKILL` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


async def first_of(*waits: Callable[[], Awaitable[object]]) -> None:
    """Return when one of `waits` does; the others are cancelled."""
    async with anyio.create_task_group() as tasks:

        async def first(wait: Callable[[], Awaitable[object]]) -> None:
            await wait()
            tasks.cancel_scope.cancel()

        for wait in waits:
            tasks.start_soon(first, wait)
