"""A stdio server as the SDK sees it: its lines sorted into short answers, news, and the rest for the SDK's session.

The SDK's own transport hides the process, reads without a bound, and logs a traceback for each line of junk; this
one owns neither the process nor a log.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
import mcp_types as types
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from quarterdeck_protocol.jsonrpc import BodyError, LineTooLongError, Message, correlation_key, split_line
from quarterdeck_worker.calls import ShortCalls, ids_in
from quarterdeck_worker.news import LogParams, Newsroom, ProgressParams, log_text
from quarterdeck_worker.pipe import ServerPipe

MAX_INBOX: Final = 256
"""Messages that wait for the SDK before the server is no longer read."""

MAX_NOTE_BYTES: Final = 1024 * 1024
"""Of a notification: nothing that is told in one is longer, and to read it costs many times its size."""

PASSED_ON: Final = frozenset({"notifications/cancelled", "notifications/subscriptions/acknowledged"})
"""Notifications that the SDK's session keeps account of; every other one is ours or nobody's."""

UNKNOWN_METHOD: Final = {"code": types.METHOD_NOT_FOUND, "message": "this client did not declare that capability"}
"""The answer to every request of a server but `ping`."""

UNREADABLE: Final = types.ErrorData(code=types.PARSE_ERROR, message="the server's answer does not follow MCP")
"""What is waited for in vain otherwise: an answer with our id that the SDK cannot read."""


ECHOED: Final = types.ErrorData(code=types.INVALID_REQUEST, message="the program sends back what it is sent")
"""What a program's answer comes to that copies its input to its output, as `cat` does."""

OPENING_REQUESTS: Final = frozenset({"initialize", "server/discover"})
"""Only clients send these."""


class StdioLines:
    """The two streams that the SDK's session runs on, over a `ServerPipe`."""

    def __init__(self, stdin_fd: int, stdout_fd: int, newsroom: Newsroom, *, max_line_bytes: int) -> None:
        self._newsroom = newsroom
        self._inbox: deque[SessionMessage] = deque()
        self._filled = anyio.Event()
        self._asked: set[types.RequestId] = set()
        self.short: ShortCalls | None = None
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
        if self.short is not None and isinstance(key, int) and self.short.is_ours(key):
            self.short.answered(key, message)
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
        request_id = self.short.owner_of(correlation_key(note.progressToken)) if self.short is not None else None
        if request_id is not None:
            self._newsroom.progress(request_id, note.progress, note.total, note.message)

    def _junk(self, line: bytes) -> None:
        self.junk_lines += 1
        self.on_junk(line)
        if not line.startswith(b"{"):
            return
        if self.short is not None:
            self.short.spoiled(line)
        for key in ids_in(line):
            if key in self._asked:
                self._asked.discard(key)
                self._take_in(types.JSONRPCError(jsonrpc="2.0", id=key, error=UNREADABLE))

    def _pass_on(self, line: bytes) -> None:
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError:
            self._junk(line)
            return
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
