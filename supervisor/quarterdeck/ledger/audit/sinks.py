"""Where records go: a file that is rotated, or a syslog.  Blocking, never for longer than `TIMEOUT_S` a record.

A sink takes a record whole or raises `OSError`; what was taken of it in part is undone, or told again.
(`logging.handlers` swallow errors, wait without end for a peer, and have no frame between messages over TCP.)
"""

import errno
import os
import select
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from quarterdeck.config.load.own_keys import AuditTarget

from .records import FORMATS, Record, as_syslog

TIMEOUT_S: Final = 5.0
"""For a connection, and for one record."""

_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Sink(Protocol):
    """Takes records."""

    def write(self, record: Record) -> None:
        """Take a record.  Raises `OSError` if it was not taken."""

    def close(self) -> None:
        """Close it; the next record opens it again."""


def make_sink(target: AuditTarget) -> Sink:
    """Return the sink of a target; nothing is opened yet."""
    return FileSink(target) if target.kind == "file" else SyslogSink(target)


class FileSink:
    """Appends lines to a file, and renames it to `NAME.1` and so on before it grows too large."""

    def __init__(self, target: AuditTarget) -> None:
        self._path = Path(target.address)
        self._target = target
        self._format = FORMATS[target.format]

    def write(self, record: Record) -> None:
        """See `Sink`."""
        line = self._format(record).encode() + b"\n"
        # By its name each time: another program may rotate it, too.
        if (size := self._size()) and size + len(line) > self._target.max_bytes:
            self._rotate()
        file = os.open(self._path, _FLAGS, 0o600)
        try:
            before = os.fstat(file).st_size
            if os.write(file, line) != len(line):
                os.ftruncate(file, before)  # no half a line
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)

    def close(self) -> None:
        """See `Sink`."""

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return 0

    def _rotate(self) -> None:
        older = [self._path, *(self._path.with_name(f"{self._path.name}.{at}") for at in range(1, self._target.files))]
        if len(older) == 1:
            self._path.unlink()
        for name, next_name in zip(older[-2::-1], older[:0:-1], strict=True):
            with suppress(FileNotFoundError):
                name.rename(next_name)


class SyslogSink:
    """Sends messages of RFC 5424: a datagram each by UDP, with their length before them (RFC 6587) by TCP, and by the
    local socket as it takes them.
    """

    def __init__(self, target: AuditTarget) -> None:
        self._target = target
        self._format = FORMATS[target.format]
        self._socket: socket.socket | None = None
        self._host = socket.gethostname()

    def write(self, record: Record) -> None:
        """See `Sink`."""
        message = as_syslog(record, self._format(record), self._host, os.getpid())
        try:
            link = self._socket = self._socket or self._connect()
            if link.type == socket.SOCK_STREAM:
                _require_open(link)
                message = b"%d %s" % (len(message), message) if self._target.kind == "tcp" else message + b"\n"
            link.sendall(message)
        except OSError:
            self.close()  # so that no second message begins within a first
            raise

    def close(self) -> None:
        """See `Sink`."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> socket.socket:
        target = self._target
        match target.kind:
            case "tcp":
                return socket.create_connection((target.address, target.port), TIMEOUT_S)
            case "udp":
                family, kind, protocol, _, address = socket.getaddrinfo(
                    target.address, target.port, type=socket.SOCK_DGRAM
                )[0]
                return _connected(socket.socket(family, kind, protocol), address)
            case _:
                try:
                    return _connected(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), target.address)
                except OSError:
                    return _connected(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), target.address)


def _connected(link: socket.socket, address: object) -> socket.socket:
    link.settimeout(TIMEOUT_S)
    try:
        link.connect(address)  # type: ignore[arg-type]  # as its family wants it
    except OSError:
        link.close()
        raise
    return link


def _require_open(link: socket.socket) -> None:
    """Raise if the peer has closed the stream: what is sent then is lost without an error."""
    readable = select.poll()
    readable.register(link, select.POLLIN)
    if readable.poll(0) and not link.recv(4096):
        raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
