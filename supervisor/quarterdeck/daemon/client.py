"""Ask the daemon, or tell it to stay, to end, or to make room for another: blocking, for commands."""

import os
import signal
import time
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck.common.identity import CLIENT_VERSION
from quarterdeck.common.local_socket import peer_of, read_key

from .messages import ANSWER, Ask, DaemonStatus, Order, encode_request
from .place import KEY_NAME, SOCKET_NAME, DroppedError, NoAnswerError, NoDaemonError, connect, read_frame

ANSWER_S: Final = 10.0
"""For an answer, which takes milliseconds."""

CONNECT_S: Final = 5.0
"""To be let into the queue of a daemon that does not take anybody in."""

END_S: Final = 60.0
"""For a daemon to end: calls under way, servers, native commands, each with deadlines that take less than half."""

POLL_S: Final = 0.05


def ask_daemon(directory: Path, order: Order) -> DaemonStatus:
    """What the daemon says to an order.

    Raises:
        NoDaemonError: none runs.
        NoAnswerError: one runs, and does not answer.
    """
    deadline = time.monotonic() + ANSWER_S
    while True:
        try:
            return _ask(directory, order)
        except DroppedError:
            # Another one, or none, is there in a moment.
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def _ask(directory: Path, order: Order) -> DaemonStatus:
    try:
        with connect(directory, ANSWER_S) as connection:
            connection.sendall(encode_request(Ask(read_key(directory / KEY_NAME), CLIENT_VERSION, order)))
            kind, text = read_frame(connection, time.monotonic() + ANSWER_S)
    except (NoDaemonError, DroppedError):
        raise
    except ConnectionError as error:
        raise DroppedError(f"the daemon cannot be asked: {error.strerror or error}") from error
    except TimeoutError:
        raise NoAnswerError(f"the daemon does not answer within {ANSWER_S:g} s") from None
    except OSError as error:
        raise NoAnswerError(f"the daemon cannot be asked: {error.strerror or error}") from error
    try:
        if kind != ANSWER:
            raise NoAnswerError("the daemon is of another version")
        return msgspec.json.decode(text, type=DaemonStatus)
    except msgspec.MsgspecError as error:
        raise NoAnswerError(f"the daemon is of another version: {error}") from None


def kill_daemon(directory: Path) -> int:
    """Kill the daemon that does not answer; its process, or 0 where it cannot be told.  What it ran ends with it.

    Raises:
        NoDaemonError: none runs any more.
        OSError: it cannot be reached, or not be killed.
    """
    with connect(directory, CONNECT_S) as connection:
        pid = peer_of(connection).pid
    if pid > 0:
        os.kill(pid, signal.SIGKILL)
    return pid


def wait_until_gone(directory: Path, pid: int) -> bool:
    """Wait until the daemon that was told to end has, `END_S` at most; whether it has."""
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return not (directory / SOCKET_NAME).exists()
        time.sleep(POLL_S)
    return False
