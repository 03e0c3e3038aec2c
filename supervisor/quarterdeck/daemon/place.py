"""Where the daemon of a state directory is reached, how it is read, and the lock under which one starts or ends.

    <runtime root>/daemon-<digest of the state directory>-<protocol>/     0700
        door.sock   what doors connect to
        key         a line that a door must know: a confined program that reaches the socket cannot read it
        lock        held by whoever starts a daemon, or ends one
        process     the daemon's pid, in a file that it holds as long as it lives

The directory goes with the daemon.  Where a service manager holds the socket (`quarterdeck service install`), it lies
in `service-<digest>-<protocol>/`, with a key and a process of its own, and stays from one daemon to the next.
"""

import errno
import hashlib
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from quarterdeck.common.local_socket import make_key, peer_of, read_key
from quarterdeck.common.locks import LOCK_NAME, acquire, read_told, tell
from quarterdeck.config.places.paths import (
    RUNTIME_DIR_VARIABLE,
    ledger_dir,
    make_private_dir,
    remove_spare_root,
    runtime_dir,
    state_dir,
    writing_below,
)

from .messages import HEAD_BYTES, MAX_TEXT_BYTES, PROTOCOL

SOCKET_NAME: Final = "door.sock"
KEY_NAME: Final = "key"
PROCESS_NAME: Final = "process"
MAX_PID_BYTES: Final = 20

BACKLOG: Final = 128
"""Doors that wait to be taken in: as many as one editor's windows can open at once, many times over."""

LOCK_S: Final = 30.0
"""Seconds that another process may take to start or to end the daemon."""

CROWD_S: Final = 0.05
"""Seconds before the next try if the daemon's queue is full, or a daemon that was just started has no key yet."""

DYING_S: Final = 1.0
"""Seconds to wait for a dying daemon: the kernel takes milliseconds, plus its turn on a busy machine."""

_EXITING: Final = 0x4
"""PF_EXITING of a process's flags (linux/sched.h): set before anything that it had is closed."""

_DEAD: Final = (b"Z", b"X")


class NoDaemonError(ConnectionError):
    """No daemon listens; the text says where."""


class NoAnswerError(ConnectionError):
    """A daemon listens, and does not answer as it should; the text says how."""


class DroppedError(NoAnswerError):
    """The daemon closed the connection without an answer: it was about to end, or was killed."""


class OtherDaemonError(ConnectionError):
    """An unreachable daemon has the ledger: it is of another version, or lost its directory."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"another daemon (process {pid}) has the ledger: of another version, or without its directory")
        self.pid = pid


class StartTimeoutError(TimeoutError):
    """Another process has been starting or ending the daemon for too long."""


def daemon_dir() -> Path:
    """The directory of a daemon that listens on its own socket; not made."""
    return runtime_dir() / f"daemon-{_state_digest()}-{PROTOCOL}"


def service_dir() -> Path:
    """The directory of the socket that a service manager holds; not made."""
    return runtime_dir() / f"service-{_state_digest()}-{PROTOCOL}"


def _state_digest() -> str:
    return hashlib.sha256(os.fsencode(state_dir().resolve())).hexdigest()[:12]


def running_dir() -> Path:
    """Return the directory of the running daemon, if any: connecting to a service manager's socket would start one."""
    service = service_dir()
    return service if process_of(service) is not None else daemon_dir()


def ledger_daemon() -> int | None:
    """Return the process of the daemon that has the ledger of our state directory, or None.

    A dying one is awaited: the kernel closes a killed process's socket before its hold of the ledger.
    """
    from quarterdeck.ledger.store.lease import DAEMON, read_holder  # most doors find a daemon

    until = time.monotonic() + DYING_S
    while (holder := read_holder(ledger_dir(state_dir()))) is not None and holder.command == DAEMON:
        if not _is_dying(holder.pid) or time.monotonic() > until:
            return holder.pid
        time.sleep(CROWD_S)
    return None


def _is_dying(pid: int) -> bool:
    """Return whether the kernel is ending this process; False if the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return Path("/proc/self/stat").exists()  # it is gone by now
    state, *_, flags = stat.rpartition(b")")[2].split()[:7]  # proc(5); a name may hold anything
    return state in _DEAD or bool(int(flags) & _EXITING)


def check_no_other() -> None:
    """Check, when no daemon can be reached, that no unknown one has the ledger. Raise OtherDaemonError if one has."""
    pid = ledger_daemon()
    # One of ours is about to end, or to listen.
    if pid is not None and pid not in (process_of(daemon_dir()), process_of(service_dir())):
        raise OtherDaemonError(pid)


def reach(within_s: float) -> tuple[socket.socket, Path]:
    """Return a connection to the daemon, or to the service manager that starts it, and the directory where it listens.

    Raise NoDaemonError if none listens and nothing would start it, OSError if the connection fails.
    """
    try:
        return connect(daemon_dir(), within_s), daemon_dir()
    except NoDaemonError as error:
        try:
            return connect(service_dir(), within_s), service_dir()
        except NoDaemonError:
            raise error from None


@contextmanager
def start_lock(directory: Path, wait_s: float = LOCK_S) -> Iterator[None]:
    """Be the only one who starts or ends the daemon of this directory, which is made. Blocking.

    Raise StartTimeoutError if another process is at it for longer than `wait_s`, UnsafePathError if the directory is
    not ours alone or cannot be made.
    """
    path = directory / LOCK_NAME
    while True:
        with writing_below(directory.parent, RUNTIME_DIR_VARIABLE):
            make_private_dir(directory)
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # the daemon that ended took the directory along
        try:
            if not acquire(lock, wait_s):
                raise StartTimeoutError(f"another process has been starting or ending the daemon for {wait_s:g} s")
            if _is_at(lock, path):
                yield
                return
        finally:
            os.close(lock)


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def connect(directory: Path, within_s: float) -> socket.socket:
    """Connect to our user's daemon. Raise NoDaemonError if none listens, OSError if the connection fails."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(within_s)
        until = time.monotonic() + within_s
        while True:
            try:
                connection.connect(os.fsencode(directory / SOCKET_NAME))
                break
            except (FileNotFoundError, ConnectionRefusedError) as error:
                raise NoDaemonError(f"{directory}: {error.strerror}") from None
            except BlockingIOError:  # as many wait as may
                if time.monotonic() > until:
                    raise TimeoutError("the daemon lets nobody in") from None
                time.sleep(CROWD_S)
        if not peer_of(connection).is_ours:
            raise PermissionError(errno.EPERM, "the daemon's socket belongs to another user")
    except BaseException:
        connection.close()
        raise
    return connection


def read_frame(connection: socket.socket, until: float, fds: list[int] | None = None) -> tuple[bytes, bytes]:
    """Return the kind and the text of the daemon's next frame, and read no byte more: what follows may be another
    reader's. `until` is on the monotonic clock; `fds` takes the frame's descriptor, if any, which is closed otherwise.

    Raise DroppedError if the daemon closes the connection before, OSError (or TimeoutError) if it cannot be read.
    """
    head = b""
    if fds is not None:
        connection.settimeout(max(0.001, until - time.monotonic()))
        head, found, _, _ = socket.recv_fds(connection, 1, 1, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        fds += found
        if not head:
            raise DroppedError("the daemon closed the connection")
    head += _read_exactly(connection, HEAD_BYTES - len(head), until)
    if (size := int.from_bytes(head[1:])) > MAX_TEXT_BYTES:
        raise OSError(errno.EPROTO, "what listens there is no daemon of ours")
    return head[:1], _read_exactly(connection, size, until)


def _read_exactly(connection: socket.socket, size: int, until: float) -> bytes:
    data = b""
    while len(data) < size:
        connection.settimeout(max(0.001, until - time.monotonic()))
        more = connection.recv(size - len(data))
        if not more:
            raise DroppedError("the daemon closed the connection")
        data += more
    return data


def listen(directory: Path) -> socket.socket:
    """Listen instead of a daemon that is gone; under `start_lock` only. Raise UnusableDirectoryError if there is no
    room, or the directory cannot be written to.
    """
    staging = directory / f".{SOCKET_NAME}-{secrets.token_hex(4)}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with writing_below(directory, RUNTIME_DIR_VARIABLE):
            listener.bind(os.fsencode(staging))
            os.chmod(staging, 0o600)
            listener.listen(BACKLOG)
            make_key(directory / KEY_NAME)
            for passed in directory.glob("after-*"):  # of doors that came back first after earlier deaths
                passed.unlink(missing_ok=True)
        # Not seen before it listens: a door that finds it need not try again.
        os.rename(staging, directory / SOCKET_NAME)
    except BaseException:
        listener.close()
        staging.unlink(missing_ok=True)
        raise
    return listener


def socket_mark(directory: Path) -> tuple[int, int] | None:
    """Return what distinguishes the present socket from others at its path; None without one."""
    try:
        found = os.stat(directory / SOCKET_NAME)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def await_key(directory: Path, within_s: float) -> str:
    """The line that a door must know, waited for where a service manager starts the daemon; empty without one."""
    until = time.monotonic() + (within_s if directory == service_dir() else 0.0)
    while not (key := read_key(directory / KEY_NAME)) and time.monotonic() < until:
        time.sleep(CROWD_S)
    return key


def tell_process(directory: Path) -> int:
    """Write our pid as the daemon's, which counts until the returned descriptor is closed. Raise UnusableDirectoryError
    if it cannot be written.
    """
    with writing_below(directory, RUNTIME_DIR_VARIABLE):
        return tell(directory / PROCESS_NAME, str(os.getpid()).encode())


def process_of(directory: Path) -> int | None:
    """Return the pid of the living daemon, or None. It is not the socket's peer: that is the process that called
    listen(), which may be a service manager, or long gone.
    """
    try:
        return int(read_told(directory / PROCESS_NAME, MAX_PID_BYTES) or b"")
    except ValueError:
        return None


def vacate(directory: Path) -> None:
    """Remove the files by which clients reach this daemon, for the next one. Call it only under `start_lock`."""
    for name in (SOCKET_NAME, f".{SOCKET_NAME}", KEY_NAME, PROCESS_NAME):
        with suppress(OSError):
            (directory / name).unlink(missing_ok=True)


def remove(directory: Path) -> None:
    """Take the directory away; under `start_lock` only."""
    shutil.rmtree(directory, ignore_errors=True)
    remove_spare_root(directory.parent)
