"""Answer a stdio client's `initialize` before the imports are done.

A legacy client waits for the answer to `initialize` before it does anything else.  So the line is read at once, in a
thread, and answered from here as soon as the configuration is read and the ledger is ours: whether this client can be
served is known then.  Later the session gets the same line, and its answer, which says the same, is dropped.  Where
nothing can be served, every request that has come is answered with an error that says why.

The claim on the process's standard streams is here too.  Imports next to nothing, on purpose.
"""

import fcntl
import json
import os
import select
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import msgspec

from quarterdeck_protocol.identity import CLIENT_NAME, CLIENT_VERSION

if TYPE_CHECKING:
    import asyncio

_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2


@contextmanager
def claimed_stdio() -> Iterator[tuple[int, int]]:
    """Private duplicates of stdin and stdout.

    Meanwhile the public ones lead nowhere and to stderr, so that a stray print, or a child that inherits them, can
    neither read nor write the protocol.  Both are restored at the end.
    """
    private_in = fcntl.fcntl(_STDIN, fcntl.F_DUPFD_CLOEXEC, 3)
    private_out = fcntl.fcntl(_STDOUT, fcntl.F_DUPFD_CLOEXEC, 3)
    try:
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(nowhere, _STDIN)
        try:
            os.dup2(_STDERR, _STDOUT)
        except OSError:
            # Started without a stderr.
            os.dup2(nowhere, _STDOUT)
        os.close(nowhere)
        yield private_in, private_out
    finally:
        # What was printed meanwhile may still wait in Python's buffer; restored, it would go to the client.
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(private_in, _STDIN)
        os.dup2(private_out, _STDOUT)
        os.close(private_in)
        os.close(private_out)


def can_poll(fd: int, stderr_fd: int = _STDERR) -> bool:
    """Whether `fd` can be polled, and made non-blocking without anyone else noticing, above all `stderr_fd`."""
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    try:
        return not os.path.sameopenfile(fd, stderr_fd)
    except OSError:
        return True


def post(loop: "asyncio.AbstractEventLoop", call: Callable[..., None], *args: object) -> bool:
    """Run `call` on the loop from a thread; False once the loop is gone."""
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        return False
    return True


MAX_HEAD_BYTES: Final = 64 * 1024
"""A longer first line is not answered here."""

REQUEST_S: Final = 1.0
"""How long one that cannot serve waits for its client's first request, to say why."""

_PAUSE_S: Final = 0.01
"""Before the next try, where a descriptor that does not block has less room than poll says."""

CANNOT_SERVE: Final = -32603
"""JSON-RPC's internal error: the request may be right, and is not answered all the same."""

WRITE_S: Final = 1.0
"""How long a client may take to read its greeting, or why there is none."""

CHUNK_BYTES: Final = 4096
"""What a pipe that can be written to takes without waiting: a client that does not read holds nobody up."""

MAX_REASON_CHARS: Final = 4096
"""Of why nothing can be served: a message and a remedy."""


class FirstLine(msgspec.Struct, frozen=True):
    """What was read before the session could, as bytes.

    Attributes:
        greeted_id: the id of the request in it that has its answer.
        greeted_at: when it had it, monotonic seconds.
        unsent: what the client has not taken yet of that answer.
    """

    data: bytes = b""
    greeted_id: int | str | None = None
    greeted_at: float | None = None
    unsent: bytes = b""


class EarlyReply:
    """Waits for a client's first line in a thread, from `start` to `finish` or `refuse`."""

    def __init__(
        self,
        stdin_fd: int = _STDIN,
        stdout_fd: int = _STDOUT,
        *,
        read: Callable[[int, int], bytes] = os.read,
        on_greeted: Callable[[], None] = lambda: None,
    ) -> None:
        """Read nothing yet.

        Args:
            stdin_fd: borrowed until `finish` or `refuse` has returned.
            stdout_fd: likewise.
            read: reads from a descriptor at most so many bytes, in the thread.
            on_greeted: told when the client has its answer, in the thread.
        """
        self._in = stdin_fd
        self._out = stdout_fd
        self._read = read
        self._on_greeted = on_greeted
        self._data = b""
        self._head: FirstLine | None = None
        self._instructions: str | None = None
        self._capabilities = b"{}"
        # Written to where something was decided, closed where it is over: the thread looks up from its wait.
        self._news_r, self._news_w = os.pipe()
        self._thread = threading.Thread(target=self._wait, name="early reply", daemon=True)

    def start(self) -> None:
        """Begin to wait."""
        self._thread.start()

    def admit(self, instructions: str, capabilities: bytes) -> None:
        """Answer the client from now on: it can be served, and is told this, and that we can so much."""
        self._capabilities = capabilities
        self._instructions = instructions
        os.write(self._news_w, b"!")

    def finish(self) -> FirstLine:
        """Stop waiting; from here on the descriptors are the caller's.  To be called once, or `refuse`."""
        os.close(self._news_w)
        self._thread.join()
        os.close(self._news_r)
        return self._head or FirstLine(self._data)

    def refuse(self, reason: str, within_s: float = REQUEST_S) -> None:
        """Answer every request that has come, or comes within this time, with an error; the greeting is over."""
        refuse_client(self._in, self._out, self.finish(), reason, within_s)

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._in, select.POLLIN)
        poll.register(self._news_r, select.POLLIN)
        has_line = is_over = False
        while not (is_over or (has_line and self._instructions is not None)):
            for fd, _ in poll.poll():
                if fd == self._news_r:
                    is_over = not os.read(fd, 1)
                else:
                    try:
                        chunk = self._read(fd, MAX_HEAD_BYTES)
                    except OSError:
                        chunk = b""
                    self._data += chunk
                    has_line = b"\n" in self._data
                    if has_line or not chunk or len(self._data) >= MAX_HEAD_BYTES:
                        poll.unregister(fd)
        if has_line and self._instructions is not None:
            self._greet(self._instructions)

    def _greet(self, instructions: str) -> None:
        greeted_id, answer = answer_to(self._data.partition(b"\n")[0], instructions, self._capabilities)
        if greeted_id is None:
            return
        unsent = b""
        try:
            unsent = write_soon(self._out, answer, time.monotonic() + WRITE_S)
        except OSError:
            pass  # the client has left; the session will see it too
        if not unsent:
            self._on_greeted()
        self._head = FirstLine(self._data, greeted_id, time.monotonic(), unsent)


def refuse_client(
    stdin_fd: int, stdout_fd: int, head: FirstLine, reason: str, within_s: float = REQUEST_S, ids: Iterable[bytes] = ()
) -> None:
    """Answer every request that has come, or comes within this time, with an error.

    Args:
        stdin_fd: of the client; borrowed.
        stdout_fd: likewise.
        head: what was read before.
        reason: why nothing can be served.
        within_s: for the first request, where none has come.
        ids: of requests that came before, as JSON.
    """
    data, until = head.data, time.monotonic() + within_s
    answers = head.unsent + b"".join(_refused(json.loads(each), reason) for each in ids)
    try:
        while more := _read_before(stdin_fd, until if b"\n" not in data and not answers else 0.0):
            data += more
            if len(data) >= MAX_HEAD_BYTES:
                break
        answers += b"".join(refusal(line, reason, besides=head.greeted_id) for line in data.split(b"\n"))
        write_soon(stdout_fd, answers, time.monotonic() + WRITE_S)
    except OSError:
        pass  # the client has left


def write_soon(fd: int, data: bytes, until: float) -> bytes:
    """Write what a reader takes before `until`, monotonic; the rest.

    Raises:
        OSError: there is no reader.
    """
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    while data and poll.poll(max(0.0, until - time.monotonic()) * 1000):
        try:
            data = data[os.write(fd, data[:CHUNK_BYTES]) :]
        except BlockingIOError:
            time.sleep(_PAUSE_S)
            if time.monotonic() > until:
                break
    return data


def _read_before(fd: int, until: float) -> bytes:
    """What the client says before `until`, monotonic; empty when that is nothing, or it has left."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    left_s = max(0.0, until - time.monotonic())
    return os.read(fd, MAX_HEAD_BYTES) if poll.poll(left_s * 1000) else b""


def answer_to(line: bytes, instructions: str, capabilities: bytes) -> tuple[int | str | None, bytes]:
    """The id and the answer, with its line's end, of an `initialize` that is right; None and nothing of all else."""
    from quarterdeck_protocol.mcp.server.answers import greeting
    from quarterdeck_protocol.mcp.server.requests import Request
    from quarterdeck_protocol.mcp.server.session import ServerSession

    session = ServerSession(lambda *_: None)
    request = session.receive(line)
    if not isinstance(request, Request) or request.method != "initialize":
        return None, b""
    server_info = msgspec.json.encode({"name": CLIENT_NAME, "version": CLIENT_VERSION})
    result = greeting(request.version, capabilities, server_info, instructions)
    return json.loads(request.id_json), b"".join((*session.answer(request, (result,)), b"\n"))


def refusal(line: bytes, reason: str, *, besides: int | str | None = None) -> bytes:
    """The error, with its line's end, that answers the request in `line`; nothing where there is none to answer.

    Args:
        line: what a client said.
        reason: why nothing can be served.
        besides: the id of a request that has its answer.
    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return b""
    match message:
        case {"id": int() | str() as request_id, "method": str()} if request_id != besides:
            return _refused(request_id, reason)
    return b""


def _refused(request_id: int | str, reason: str) -> bytes:
    text = f"quarterdeck cannot serve: {reason}"[:MAX_REASON_CHARS]
    return _line({"id": request_id, "error": {"code": CANNOT_SERVE, "message": text}})


def _line(members: dict[str, object]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}, separators=(",", ":")).encode() + b"\n"


def start_early() -> None:
    """Read what comes on the process's standard input, unless that is a terminal: a person waits for no answer.

    Only the first time: what was read, or answered, is not begun anew.
    """
    global _early, _has_begun
    if _has_begun:
        return
    _has_begun = True
    try:
        mode = os.fstat(_STDIN).st_mode
    except OSError:
        return  # there is none
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode):
        _early = EarlyReply()
        _early.start()


def admit_early(instructions: str, capabilities: bytes) -> None:
    """Have the client that `start_early` reads greeted with these instructions and capabilities: it can be served."""
    if _early is not None:
        _early.admit(instructions, capabilities)


def finish_early() -> FirstLine:
    """What `start_early` has read and `admit_early` has had answered; nothing where nothing was read."""
    global _early
    early, _early = _early, None
    return early.finish() if early is not None else FirstLine()


def refuse_early(reason: str) -> None:
    """Tell the client that `start_early` reads why it cannot be served; nothing where it is served already."""
    global _early
    early, _early = _early, None
    if early is not None:
        early.refuse(reason)


_early: EarlyReply | None = None
_has_begun = False
