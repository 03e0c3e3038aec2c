"""Ask the daemon, or tell it to stay, to end, or to make room for another: blocking, for commands."""

import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from quarterdeck.common.http_wish import HttpWish
from quarterdeck_protocol.identity import CLIENT_VERSION

from .messages import ANSWER, HOLD, Ask, DaemonStatus, Order, encode_request
from .place import DroppedError, NoAnswerError, NoDaemonError, await_key, connect, process_of, read_frame

ANSWER_S: Final = 10.0
"""Seconds for an answer, which takes milliseconds."""

LISTEN_S: Final = 30.0
"""Seconds for an answer to `STAY`: the daemon may first have to listen on HTTP, and import what that takes."""

END_S: Final = 60.0
"""Seconds for a daemon to end calls, servers and native commands, whose deadlines take less than half of it."""

POLL_S: Final = 0.05


class HeldListener:
    """The listening HTTP socket of a replaced daemon, kept for the next one; a context manager that closes it. A
    replaced daemon's doors hold the socket, too; without doors this is the only holder.
    """

    def __init__(self) -> None:
        self._fds: list[int] = []

    @property
    def fds(self) -> list[int]:
        """The socket's descriptor; empty without a socket."""
        return self._fds

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._fds:
            os.close(self._fds.pop())


def ask_daemon(
    directory: Path,
    order: Order,
    http: HttpWish | None = None,
    held: HeldListener | None = None,
    metrics: str = "",
) -> DaemonStatus:
    """Return the daemon's status after an order, and after it has begun to listen at `http`, unless that is None, and
    to serve `metrics`, unless that is empty.
    `held` takes the HTTP socket of a daemon that `REPLACE` ends, and gives it to the daemon that gets `STAY`.

    Raise NoDaemonError if none runs, NoAnswerError if it does not answer.
    """
    deadline = time.monotonic() + ANSWER_S
    while True:
        try:
            return _ask(directory, order, http, held or HeldListener(), metrics)
        except DroppedError:
            # Another one, or none, is there in a moment.
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def _ask(directory: Path, order: Order, http: HttpWish | None, held: HeldListener, metrics: str) -> DaemonStatus:
    within_s = LISTEN_S if order is Order.STAY else ANSWER_S
    try:
        with connect(directory, ANSWER_S) as connection:
            given = held.fds if order is Order.STAY else []
            ask = Ask(await_key(directory, ANSWER_S), CLIENT_VERSION, order, http, bool(given), metrics)
            data = encode_request(ask)
            # Even nothing cannot be sent once it has answered and closed the connection, which it may do at once.
            if rest := data[socket.send_fds(connection, [data], given) :]:
                connection.sendall(rest)
            until = time.monotonic() + within_s
            kind, text = read_frame(connection, until, held.fds if order is Order.REPLACE else None)
            if kind == HOLD:
                kind, text = read_frame(connection, until)
    except (NoDaemonError, DroppedError):
        raise
    except ConnectionError as error:
        raise DroppedError(f"the daemon cannot be asked: {error.strerror or error}") from error
    except TimeoutError:
        raise NoAnswerError(f"the daemon does not answer within {within_s:g} s") from None
    except OSError as error:
        raise NoAnswerError(f"the daemon cannot be asked: {error.strerror or error}") from error
    try:
        if kind != ANSWER:
            raise NoAnswerError("the daemon is of another version")
        return msgspec.json.decode(text, type=DaemonStatus)
    except msgspec.MsgspecError as error:
        raise NoAnswerError(f"the daemon is of another version: {error}") from None


def kill_daemon(directory: Path) -> int:
    """Kill a daemon that does not answer, and with it all that it runs. Return its pid.

    Raise NoAnswerError if it has not written its pid, which its first instructions do, and OSError if it cannot be
    killed.
    """
    pid = process_of(directory)
    if pid is None:
        raise NoAnswerError("which process it is cannot be told")
    with _opened(pid) as fd:
        # Asked again: it may have ended before there was a descriptor of it, and its number be another's.
        if process_of(directory) == pid:
            if fd is None:
                os.kill(pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
    return pid


def wait_until_gone(pid: int, drain_s: float = 0.0) -> bool:
    """Wait until the daemon that was told to end has, `END_S` at most beside its `drain_s`; whether it has."""
    with _opened(pid) as fd:
        if fd is not None:
            ended = select.poll()
            ended.register(fd, select.POLLIN)
            return bool(ended.poll((END_S + drain_s) * 1000))
        deadline = time.monotonic() + END_S + drain_s
        while is_there := _is_there(pid):
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        return not is_there


@contextmanager
def _opened(pid: int) -> Iterator[int | None]:
    """Open a process. Yield None if it is gone, or the system has no such descriptors."""
    try:
        fd = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except ProcessLookupError:
        fd = None
    try:
        yield fd
    finally:
        if fd is not None:
            os.close(fd)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):  # another user's is another process
        return False
    return True
