"""The streams of a client on stdio: claimed for the protocol, and answered with an error where nothing can be served.

Imports next to nothing, on purpose: it comes before all else.
"""

import fcntl
import json
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

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
"""Of what is looked at for requests to refuse."""

REQUEST_S: Final = 1.0
"""How long one that cannot serve waits for its client's first request, to say why."""

_PAUSE_S: Final = 0.01
"""Before the next try, where a descriptor that does not block has less room than poll says."""

CANNOT_SERVE: Final = -32603
"""JSON-RPC's internal error: the request may be right, and is not answered all the same."""

WRITE_S: Final = 1.0
"""How long a client may take to read why it is not served."""

CHUNK_BYTES: Final = 4096
"""What a pipe that can be written to takes without waiting: a client that does not read holds nobody up."""

MAX_REASON_CHARS: Final = 4096
"""Of why nothing can be served: a message and a remedy."""


def refuse_client(
    stdin_fd: int,
    stdout_fd: int,
    reason: str,
    within_s: float = REQUEST_S,
    *,
    unread: bytes = b"",
    greeted_id: int | str | None = None,
    ids: Iterable[bytes] = (),
) -> None:
    """Answer every request that has come, or comes within this time, with an error.

    Args:
        stdin_fd: of the client; borrowed.
        stdout_fd: likewise.
        reason: why nothing can be served.
        within_s: for the first request, where none has come.
        unread: what was read before.
        greeted_id: of the greeting that has its answer.
        ids: of requests that came before, as JSON.
    """
    data, until = unread, time.monotonic() + within_s
    answers = b"".join(_refused(json.loads(each), reason) for each in ids)
    try:
        while more := _read_before(stdin_fd, until if b"\n" not in data and not answers else 0.0):
            data += more
            if len(data) >= MAX_HEAD_BYTES:
                break
        answers += b"".join(refusal(line, reason, besides=greeted_id) for line in data.split(b"\n"))
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


class _Client(Enum):
    """The client at the process's standard streams."""

    UNKNOWN = auto()
    WAITS = auto()
    IS_ANSWERED = auto()


def expect_client() -> None:
    """Have the client at the standard streams answered if nothing is served; a person at a terminal waits for none."""
    global _client
    if _client is not _Client.UNKNOWN:
        return
    try:
        mode = os.fstat(_STDIN).st_mode
    except OSError:
        return  # there is none
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode):
        _client = _Client.WAITS


def client_is_served() -> None:
    """The session answers that client from here on."""
    global _client
    _client = _Client.IS_ANSWERED


def refuse_waiting_client(reason: str) -> None:
    """Tell the client that `expect_client` found why it cannot be served; nothing where it is served already."""
    global _client
    if _client is _Client.WAITS:
        _client = _Client.IS_ANSWERED
        refuse_client(_STDIN, _STDOUT, reason)


_client = _Client.UNKNOWN
