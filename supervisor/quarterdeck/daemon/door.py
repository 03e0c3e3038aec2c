"""The door: hand this process's client to the daemon, started where none runs, and wait for its end.

    ask for a daemon    connect; where none listens, listen in its place, start one on that socket, and connect
    hand over           stdin, stdout, stderr, the session's memory; what is wanted, and our environment
    wait                in place of this program, in `wait.py`, the smallest that can

When the daemon dies, the door comes back here with the session's memory and goes through another one.
"""

import logging
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

from quarterdeck.common.identity import CLIENT_VERSION

from . import wait
from .messages import ACCEPTED, END, LOG, Handover, ServeRequest, encode_request
from .place import NoDaemonError, connect, daemon_dir, read_key
from .session_memory import make_memory
from .start import start_daemon

MEMORY_VARIABLE: Final = "QUARTERDECK_DOOR_MEMORY"
"""Set by `wait.py`: the descriptor of the memory of a session whose daemon died."""

LIVES_VARIABLE: Final = "QUARTERDECK_DOOR_LIVES"
"""When daemons of this door died, monotonic seconds with blanks between them."""

MAX_DEATHS: Final = 5
"""Daemons that may die under a door within `DEATHS_S`; with the next one it gives up."""

DEATHS_S: Final = 60.0

CONNECT_S: Final = 5.0
"""To be let into the queue of a daemon that lives."""

ACCEPT_S: Final = 10.0
"""For a daemon that runs to take the client; one that was started just now may take `START_S`."""

START_S: Final = 60.0

_log = logging.getLogger("quarterdeck.door")


class NotAcceptedError(Exception):
    """The daemon does not take this client; the text says why, and what can be done."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class EndedError(Exception):
    """The daemon said how this door has to end before it waited."""

    def __init__(self, code: int) -> None:
        super().__init__(f"ended with {code}")
        self.code = code


def enter(
    request: ServeRequest,
    come_back: list[str],
    *,
    log_level: int,
    log_is_json: bool,
    environ: Mapping[str, str] = os.environ,
) -> NoReturn:
    """Hand the client over and become what waits for its end.

    Args:
        request: what the client is to be served.
        come_back: arguments of the interpreter that run this program anew, for when the daemon dies.
        log_level: of the least severe lines that are wanted on our stderr.
        log_is_json: whether they are wanted as JSON.
        environ: our environment.

    Raises:
        NotAcceptedError: no daemon can be had, or it does not answer.
        EndedError: it refused this client, and has told it and us why.
    """
    deaths = [float(word) for word in environ.get(LIVES_VARIABLE, "").split()]
    resumed = environ.get(MEMORY_VARIABLE)
    own = {name: value for name, value in environ.items() if name not in (MEMORY_VARIABLE, LIVES_VARIABLE)}
    if resumed is not None:
        deaths = [at for at in deaths if at > time.monotonic() - DEATHS_S] + [time.monotonic()]
        if len(deaths) > MAX_DEATHS:
            raise NotAcceptedError(
                f"the daemon died {len(deaths)} times within {DEATHS_S:g} s",
                "quarterdeck logs --daemon shows why; quarterdeck serve --own does without it",
            )
    try:
        connection, wait_s = _connected(own)
        with connection:
            connection.settimeout(wait_s)
            memory = int(resumed) if resumed is not None else make_memory(daemon_dir())
            key = read_key(daemon_dir())
            environment = {os.fsencode(name): os.fsencode(value) for name, value in own.items()}
            handover = Handover(
                key,
                CLIENT_VERSION,
                os.getpid(),
                request,
                environment,
                log_level=log_level,
                log_is_json=log_is_json,
                is_resumed=resumed is not None,
            )
            _send(connection, encode_request(handover), [0, 1, 2, memory])
            _await_acceptance(connection)
            connection.settimeout(None)
            os.environ[LIVES_VARIABLE] = " ".join(map(str, deaths))
            _wait(connection.detach(), memory, come_back)
    except TimeoutError:
        raise NotAcceptedError(
            "the daemon does not answer", "quarterdeck down ends it; quarterdeck serve --own does without it"
        ) from None
    except (ConnectionResetError, BrokenPipeError):
        raise _ended_early() from None
    except OSError as error:
        raise NotAcceptedError(
            f"the daemon cannot be reached: {error.strerror or error}", "quarterdeck serve --own does without it"
        ) from error


def _connected(environ: Mapping[str, str]) -> tuple[socket.socket, float]:
    """A connection to the daemon, and how long it may take to answer."""
    directory = daemon_dir()
    try:
        return connect(directory, CONNECT_S), ACCEPT_S
    except NoDaemonError:
        start_daemon(directory, environ)
        return connect(directory, CONNECT_S), START_S


def _send(connection: socket.socket, data: bytes, fds: list[int]) -> None:
    sent = socket.send_fds(connection, [data], fds)
    connection.sendall(data[sent:])


def _await_acceptance(connection: socket.socket) -> None:
    """Read frame by frame, no byte more: what follows belongs to `wait.py`."""
    while True:
        head = _exactly(connection, 5)
        kind, text = head[:1], _exactly(connection, int.from_bytes(head[1:])).decode("utf-8", "replace")
        if kind == LOG:
            sys.stderr.write(text)
        elif kind == END:
            raise EndedError(int(text))
        elif kind == ACCEPTED:
            if text != CLIENT_VERSION:
                _log.warning("this is quarterdeck %s, the daemon is %s: restart it", CLIENT_VERSION, text)
            return


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise _ended_early()
        data += more
    return data


def _ended_early() -> NotAcceptedError:
    return NotAcceptedError(
        "the daemon ended at its start", "quarterdeck logs --daemon shows why; quarterdeck serve --own does without it"
    )


def _wait(connection: int, memory: int, come_back: list[str]) -> NoReturn:
    for fd in (connection, memory):
        os.set_inheritable(fd, True)  # noqa: FBT003 - takes no keyword
    sys.stderr.flush()
    arguments = [sys.executable, "-I", "-S", str(Path(wait.__file__)), str(connection), str(memory), *come_back]
    os.execv(sys.executable, arguments)  # noqa: S606 - no shell is wanted
