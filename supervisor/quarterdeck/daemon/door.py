"""Hand this process's client to the daemon, starting one if necessary, and wait for the session to end.

    ask for a daemon    connect; where none listens, listen in its place, start one on that socket, and connect
    hand over           stdin, stdout, stderr, the session's memory; what is wanted, and our environment
    wait                in place of this program, in `wait.py`, the smallest that can

When the daemon dies, the door comes back here with the session's memory, and with the daemon's listening HTTP socket,
if any. It hands both to another daemon, which listens on that socket. If an unreachable daemon of another version has
the ledger, the door serves its client itself: see `cli/run/serve`.
"""

import errno
import logging
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from quarterdeck.common.locks import LOCK_NAME
from quarterdeck.config.places.paths import RUNTIME_DIR_VARIABLE
from quarterdeck.host.journal import Interrupted
from quarterdeck.host.stdio.client_streams import refuse_client
from quarterdeck_protocol.identity import CLIENT_VERSION
from quarterdeck_protocol.plain_words import plain_words

from . import wait
from .messages import ACCEPTED, END, LOG, REFUSED, BadHandoverError, Handover, ServeRequest, encode_request
from .place import (
    DroppedError,
    NoDaemonError,
    OtherDaemonError,
    StartTimeoutError,
    await_key,
    check_no_other,
    daemon_dir,
    process_of,
    reach,
    read_frame,
)
from .session_memory import SessionMemory, make_memory
from .start import start_daemon

MEMORY_VARIABLE: Final = "QUARTERDECK_DOOR_MEMORY"
"""Set by `wait.py`: the descriptor of the memory of a session whose daemon died."""

LISTENER_VARIABLE: Final = "QUARTERDECK_DOOR_LISTENER"
"""Set by `wait.py`: the descriptor of the daemon's listening HTTP socket, or -1 for none."""

LIVES_VARIABLE: Final = wait.LIVES
_OF_DOORS: Final = frozenset({MEMORY_VARIABLE, LISTENER_VARIABLE, LIVES_VARIABLE})

MAX_DEATHS: Final = wait.MAX_DEATHS
"""Daemons that may die under a door within `DEATHS_S`; with the fifth one it gives up."""

DEATHS_S: Final = wait.DEATHS_S

CONNECT_S: Final = 5.0
"""Seconds to enter the queue of a living daemon."""

ACCEPT_S: Final = 10.0
"""Seconds for a running daemon to take the client; one that was just started may take `START_S`."""

START_S: Final = 30.0

MAX_DROPS: Final = 3
"""Daemons that may end before they have taken the client: one that was about to end, and one that was killed then."""

WITHOUT: Final = "quarterdeck serve --own does without it"

ANOTHER_FOLDER: Final = f"have {RUNTIME_DIR_VARIABLE} name a folder of yours that has room and can be written to"
"""`serve --own` would need one, too."""

LOGGED: Final = f"quarterdeck logs --daemon shows why; {WITHOUT}"

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
    """Hand the client over as requested, and become what waits for its end. When the daemon dies, the interpreter runs
    this program again with `come_back` as its arguments. `log_level` and `log_is_json` are for our stderr.

    Raise NotAcceptedError if no daemon can be had or it does not answer, EndedError if it refused this client and has
    told it and us why, OtherDaemonError if an unreachable one has the ledger; then the client was told nothing.
    """
    own = {name: value for name, value in environ.items() if name not in _OF_DOORS}
    memory, blocking = _resumed(environ), _blocking()
    listener = _held_listener(environ) if memory is not None else wait.NO_DESCRIPTOR
    try:
        deaths = _count_death(environ) if memory is not None else []
        for _ in range(MAX_DROPS):
            try:
                connection, fd, again = _hand_over(request, own, memory, listener, log_level, log_is_json)
            except (DroppedError, ConnectionResetError, BrokenPipeError):
                continue
            os.environ[LIVES_VARIABLE] = " ".join(map(str, deaths))
            _wait(connection, fd, listener, again, blocking, come_back)
        raise NotAcceptedError("the daemon ended at its start", LOGGED)
    except OtherDaemonError:
        raise
    except StartTimeoutError as error:
        lock = daemon_dir() / LOCK_NAME
        given_up = NotAcceptedError(str(error), f"end what holds {lock} (fuser {lock} names it)")
    except TimeoutError:
        given_up = NotAcceptedError("the daemon does not answer", f"quarterdeck down ends it; {WITHOUT}")
    except OSError as error:
        given_up = NotAcceptedError(f"the daemon cannot be reached: {plain_words(error)}", ANOTHER_FOLDER)
    except BadHandoverError as error:
        given_up = NotAcceptedError(f"this client cannot be handed over: {error}", WITHOUT)
    except NotAcceptedError as error:
        given_up = error
    if memory is not None:
        answer_left(SessionMemory.map(memory).begin_session(), f"{given_up.message}; {given_up.remedy}")
    raise given_up


def _resumed(environ: Mapping[str, str]) -> int | None:
    """Return the descriptor of a resumed session's memory, or None, also for a variable that names no memory."""
    try:
        fd = int(environ[MEMORY_VARIABLE])
        SessionMemory.map(fd).close()
    except (KeyError, ValueError, OverflowError, OSError):
        return None
    return fd


def _held_listener(environ: Mapping[str, str]) -> int:
    """Return the descriptor of the last daemon's HTTP socket, which this door holds, or NO_DESCRIPTOR."""
    try:
        fd = int(environ[LISTENER_VARIABLE])
        return fd if stat.S_ISSOCK(os.fstat(fd).st_mode) else wait.NO_DESCRIPTOR
    except (KeyError, ValueError, OverflowError, OSError):
        return wait.NO_DESCRIPTOR


def _count_death(environ: Mapping[str, str]) -> list[float]:
    """Return when this door's daemons died lately, the last one now. Raise NotAcceptedError after too many."""
    now = time.monotonic()
    deaths = [*(float(word) for word in environ.get(LIVES_VARIABLE, "").split()), now]
    deaths = [at for at in deaths if at > now - DEATHS_S]
    if len(deaths) > MAX_DEATHS:
        raise NotAcceptedError(f"the daemon died {len(deaths)} times within {DEATHS_S:g} s", LOGGED)
    return deaths


def take_left(environ: MutableMapping[str, str]) -> tuple[Interrupted, bytes] | None:
    """Return the session that the last daemon left and the notes of its native tools, or None; clear its variables."""
    fd = _resumed(environ)
    if (listener := _held_listener(environ)) != wait.NO_DESCRIPTOR:
        os.close(listener)  # this process uses no further daemon
    for name in _OF_DOORS:
        environ.pop(name, None)
    if fd is None:
        return None
    memory = SessionMemory.map(fd)
    left, notes = memory.begin_session(), memory.notes()
    memory.close()
    os.close(fd)
    return (left, notes) if left != Interrupted() else None


def answer_left(left: Interrupted, reason: str) -> None:
    """Answer the requests that the last daemon left with an error; no process else will."""
    refuse_client(0, 1, reason, 0.0, unread=left.unread, greeted_id=left.greeted_id, ids=left.under_way)


def _hand_over(
    request: ServeRequest,
    environ: Mapping[str, str],
    resumed: int | None,
    listener: int,
    log_level: int,
    log_is_json: bool,
) -> tuple[int, int, int]:
    """Hand the client over to a daemon. Return the descriptors of the connection, of the session's memory, and of the
    handover that `wait.py` makes to the next daemon (or NO_DESCRIPTOR).
    """
    connection, directory, wait_s = _connected(environ)
    with connection:
        until = time.monotonic() + wait_s
        memory = resumed if resumed is not None else make_memory(directory)
        try:
            handover = Handover(
                await_key(directory, wait_s),
                CLIENT_VERSION,
                os.getpid(),
                request,
                {os.fsencode(name): os.fsencode(value) for name, value in environ.items()},
                log_level=log_level,
                log_is_json=log_is_json,
                is_resumed=resumed is not None,
                holds_listener=listener != wait.NO_DESCRIPTOR,
            )
            connection.settimeout(wait_s)
            data = encode_request(handover)
            # From now on the client may have its answer, and end us: that waits for `wait.py`, which knows how.
            signal.pthread_sigmask(signal.SIG_BLOCK, wait.ENDING)
            with suppress(BrokenPipeError, ConnectionResetError):  # it may have said why, before it left
                _send(connection, data, [0, 1, 2, memory, *([listener] if handover.holds_listener else ())])
            _await_acceptance(connection, until)
        except BaseException:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, wait.ENDING)
            if resumed is None:
                os.close(memory)
            raise
        connection.settimeout(None)
        return connection.detach(), memory, _kept(handover) if directory == daemon_dir() else wait.NO_DESCRIPTOR


def _kept(handover: Handover) -> int:
    """Store a handover, its key first, for the next daemon. Return NO_DESCRIPTOR if it needs a file of ours."""
    if len(handover.key) != wait.KEY_BYTES or not (hasattr(os, "memfd_create") and hasattr(socket, "SO_PEERCRED")):
        return wait.NO_DESCRIPTOR
    again = msgspec.structs.replace(handover, is_resumed=True)
    try:
        fd = os.memfd_create("quarterdeck handover", 0)
        with open(fd, "wb", closefd=False) as file:
            file.write(handover.key.encode() + encode_request(again))
        os.lseek(fd, 0, os.SEEK_SET)
    except (OSError, BadHandoverError):
        return wait.NO_DESCRIPTOR
    return fd


def _connected(environ: Mapping[str, str]) -> tuple[socket.socket, Path, float]:
    """Return a connection to the daemon, its directory, and how long it may take to answer."""
    try:
        connection, directory = reach(CONNECT_S)
    except NoDaemonError:
        start_daemon(daemon_dir(), environ)
        return *reach(CONNECT_S), START_S
    # Behind a service manager's socket may be a daemon that it starts now.
    is_up = directory == daemon_dir() or process_of(directory) is not None
    if not is_up:
        try:
            check_no_other()
        except OtherDaemonError:
            connection.close()
            raise
    return connection, directory, ACCEPT_S if is_up else START_S


def _send(connection: socket.socket, data: bytes, fds: list[int]) -> None:
    sent = socket.send_fds(connection, [data], fds)
    connection.sendall(data[sent:])


def _await_acceptance(connection: socket.socket, until: float) -> None:
    while True:
        kind, data = read_frame(connection, until)
        text = data.decode("utf-8", "replace")
        if kind == LOG:
            sys.stderr.write(text)
        elif kind == END:
            if not (text.isascii() and text.isdigit()):
                raise OSError(errno.EPROTO, "what listens there is no daemon of ours")
            raise EndedError(int(text))
        elif kind == ACCEPTED:
            if text != CLIENT_VERSION:
                ours = f"this is quarterdeck {CLIENT_VERSION}, the daemon is {text}"
                _log.warning("%s: `quarterdeck up --replace` starts one of this version", ours)
            return
        elif kind == REFUSED:
            raise NotAcceptedError(f"the daemon does not take this client: {text}", LOGGED)


def _blocking() -> str:
    """Return which of our standard descriptors block, as digits; the daemon changes that while it serves."""
    return "".join(str(fd) for fd in (0, 1, 2) if os.get_blocking(fd))


def _wait(connection: int, memory: int, listener: int, again: int, blocking: str, come_back: list[str]) -> NoReturn:
    for fd in (connection, memory):
        os.set_inheritable(fd, True)  # noqa: FBT003 - takes no keyword
    sys.stderr.flush()
    directory = str(daemon_dir()) if again != wait.NO_DESCRIPTOR else ""
    words = [str(connection), str(memory), blocking, str(listener), str(again), directory, *come_back]
    arguments = [sys.executable, "-I", "-S", str(Path(wait.__file__)), *words]
    os.execv(sys.executable, arguments)  # noqa: S606 - no shell is wanted
