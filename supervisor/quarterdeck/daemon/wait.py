"""Wait for the end of a door's session: `python -I -S wait.py SOCKET MEMORY BLOCKING LISTENER HANDOVER DIRECTORY CLI…`.

The daemon serves the client; this process carries out the daemon's frames until one says how to end.  When the daemon
dies, the requests that it had under way are answered here, at once, from the session's memory (`session_memory`).  Of
all doors the first comes back whole in its process and starts another daemon.  The others wait for that here, and hand
themselves over as before: many doors that import at once would keep the daemon from its start.  Where that fails, the
door comes back whole.  All of them bring the HTTP socket that they hold.

Imports only these modules: there is one such process for each client, and the socket, mmap and path modules would
double its memory.
"""

import _socket
import os
import select
import signal
import sys
import time

ENDING = (signal.SIGTERM, signal.SIGINT)
"""Signals that ask a door to end, which the daemon is told; they are held back until we can."""

NO_DESCRIPTOR = -1

# The part of the session's memory that this process reads; `session_memory` has the whole layout.
GREETED_AT = 8
WRITING_AT = 9
USED_AT = 10
LENGTH_AT = 12
BOUNDS_AT = 16
GREETING_AT = 24
MAX_GREETING_BYTES = 64 * 1024
FIRST_SLOT_AT = GREETING_AT + MAX_GREETING_BYTES
SLOT_BYTES = 128
SLOTS = 4096
"""The most requests that one client may have under way."""
LOST_AT = FIRST_SLOT_AT + SLOTS * SLOT_BYTES
LOST_KINDS = 4
"""Kinds of requests, each with an answer of its own; see `RequestKind`."""
INITIALIZE = 1
"""The kind of a greeting, which the next daemon takes up itself."""

ANSWER_MS = 500
"""How long a client may take to read each answer; the next daemon gives the answers that are left."""

MAX_DEATHS = 4
DEATHS_S = 60.0
"""With one more death of a daemon within this time the whole door gives up, and says so."""

LIVES = "QUARTERDECK_DOOR_LIVES"
"""The variable with the times of these deaths, monotonic seconds with blanks between them."""

NEXT_S = 4.0
"""How long the first door may take to have another daemon listen: it imports for a tenth of a second, or much longer on
a busy machine."""

STAGGER_S = 0.1
STAGGERS = 40
"""Doors that waited in vain come back one after the other, spread by their process ids."""

LOOK_S = 0.05

ACCEPT_S = 60.0
"""For the daemon that starts to take this client."""

KEY_BYTES = 64
"""Of a daemon's key."""

CHUNK_BYTES = 4096
"""A pipe that can be written to takes this much without blocking."""


def say(text: bytes) -> None:
    """Write on our stderr what it takes now: a client that does not read it must not keep us from ending."""
    try:
        room = select.poll()
        room.register(2, select.POLLOUT)
        while text and room.poll(0):
            text = text[os.write(2, text[:CHUNK_BYTES]) :]
    except OSError:
        pass  # nobody reads it


class Door:
    """The connection to the daemon, and what is kept for the next one.

    Attributes:
        listener: the descriptor of the HTTP socket that this door holds, or NO_DESCRIPTOR.
        was_told: whether a signal has asked this door to end.
    """

    def __init__(self, connection: "_socket.socket", listener: int = NO_DESCRIPTOR) -> None:
        self._socket = connection
        self._came = NO_DESCRIPTOR
        self._data = b""
        self._code: int | None = None
        self.listener = listener
        self.was_told = False

    def wait(self) -> "int | None":
        """Carry out the daemon's frames. Return the exit code, or None once the daemon has died."""
        for number in ENDING:
            signal.signal(number, self._tell)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # in what comes after us in this process, too
        while self._code is None and self._next():
            pass
        return self._code

    def is_accepted(self) -> bool:
        """Wait until the daemon has taken the client, or has ended this door. Return False if it did neither."""
        while self._code is None:
            kind = self._next()
            if kind == b"A":
                return True
            if not kind or kind == b"R":
                return False
        return True

    def tell(self) -> None:
        """Tell the daemon that this door was asked to end."""
        self.was_told = True
        try:
            self._socket.send(b"T")
        except OSError:
            pass  # its death is seen by the next read

    def close(self) -> None:
        """Close the connection; the listener stays open."""
        self._socket.close()

    def _tell(self, *_: object) -> None:
        self.tell()

    def _next(self) -> bytes:
        """Carry out the next frame. Return its kind, or nothing once the daemon has died."""
        while len(self._data) < 5 or len(self._data) < 5 + int.from_bytes(self._data[1:5], "big"):
            if not (more := self._receive()):
                return b""
            self._data += more
        end = 5 + int.from_bytes(self._data[1:5], "big")
        kind, text, self._data = self._data[:1], self._data[5:end], self._data[end:]
        if kind == b"E":
            self._code = int(text)
        elif kind == b"L":
            say(text)
        elif kind == b"H":
            self._hold()
        return kind

    def _receive(self) -> bytes:
        try:
            data, ancillary, _, _ = self._socket.recvmsg(65536, _socket.CMSG_SPACE(4))
        except OSError:
            return b""
        for level, kind, found in ancillary:
            if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS) and len(found) >= 4:
                _close(self._came)
                self._came = int.from_bytes(found[:4], sys.byteorder)
        return data

    def _hold(self) -> None:
        _close(self.listener)
        self.listener, self._came = self._came, NO_DESCRIPTOR


def go_on(door: Door, memory: int, directory: str, request: bytes) -> "tuple[Door, bytes] | None":
    """Go through the daemon that another door starts.

    Args:
        door: the one whose daemon died.
        memory: the session's memory.
        directory: in which the daemon listened.
        request: the dead daemon's key, and the handover with it.

    Returns:
        the door to the next daemon, and the request for the one after that; None if this door has to come back whole.
    """
    now = time.monotonic()
    deaths = [at for at in map(float, os.environ.get(LIVES, "").split()) if at > now - DEATHS_S]
    if len(deaths) >= MAX_DEATHS or _is_first(directory, request):
        return None
    connection, request = _next_daemon(door, directory, request)
    if connection is None:
        return None
    following = Door(connection, door.listener)
    fds = [0, 1, 2, memory, *([] if door.listener == NO_DESCRIPTOR else [door.listener])]
    rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)
    data = request[KEY_BYTES:-1] + (b"\xc2" if door.listener == NO_DESCRIPTOR else b"\xc3")
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # until `wait` can tell this daemon
    try:
        connection.settimeout(ACCEPT_S)
        sent = connection.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        if sent < len(data):
            connection.sendall(data[sent:])
        is_accepted = following.is_accepted()
        connection.settimeout(None)
    except OSError:
        is_accepted = False
    door.listener = following.listener
    if not is_accepted:
        following.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        return None
    os.environ[LIVES] = " ".join(map(str, (*deaths, now)))
    if door.was_told:
        following.tell()
    return following, request


def _is_first(directory: str, request: bytes) -> bool:
    """Return whether no other door has come back since this daemon died, or none of them can be told apart."""
    try:
        name = f"{directory}/after-{request[:16].decode()}"
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    except (OSError, ValueError):
        pass
    return True


def _next_daemon(door: Door, directory: str, request: bytes) -> "tuple[_socket.socket | None, bytes]":
    """Return a connection to the next daemon of our user, and the request with its key; None where none comes."""
    until = time.monotonic() + NEXT_S + os.getpid() % STAGGERS * STAGGER_S
    while not door.was_told and time.monotonic() < until:
        # The key is another one before the socket is.
        if len(key := _read(f"{directory}/key").strip()) == KEY_BYTES and key != request[:KEY_BYTES]:
            connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
            try:
                connection.connect(f"{directory}/door.sock")
                found = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
                if int.from_bytes(found[4:8], sys.byteorder) == os.geteuid():
                    return connection, request.replace(request[:KEY_BYTES], key, 2)
            except OSError:
                pass
            connection.close()
        time.sleep(LOOK_S)
    return None, request


def _read(path: "str | int") -> bytes:
    """Return all that a file holds, or nothing where it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read() or b""
    except OSError:
        return b""


def _close(fd: int) -> None:
    if fd != NO_DESCRIPTOR:
        os.close(fd)


def answer_lost(memory: int, out: int) -> None:
    """Answer the requests that a dead daemon had under way; those of a client that does not read stay to be answered.

    Args:
        memory: the session's memory.
        out: the client's end of our stdout.
    """
    texts, at = [], LOST_AT
    for _ in range(LOST_KINDS):
        size = _number(memory, at, 2)
        texts.append(os.pread(memory, size, at + 2))
        at += 2 + size
    used = min(_number(memory, USED_AT, 2), SLOTS)
    if not (used and all(texts)):
        return  # no session was served
    slots = os.pread(memory, used * SLOT_BYTES, FIRST_SLOT_AT)
    has_greeting = bool(_number(memory, LENGTH_AT, 4))
    room = select.poll()
    room.register(out, select.POLLOUT)
    try:
        if _number(memory, WRITING_AT, 1):
            if _written(out, room, b"\n"):
                return
            os.pwrite(memory, b"\0", WRITING_AT)
        for slot in range(used):
            size, kind = slots[slot * SLOT_BYTES], slots[slot * SLOT_BYTES + 1]
            if not size or (kind == INITIALIZE and has_greeting):
                continue
            start = slot * SLOT_BYTES + 2
            line = texts[kind if kind < LOST_KINDS else 0].replace(b"\0", slots[start : start + size], 1)
            if left := _written(out, room, line):
                os.pwrite(memory, bytes((len(left) < len(line),)), WRITING_AT)
                return
            os.pwrite(memory, b"\0", FIRST_SLOT_AT + slot * SLOT_BYTES)
    except OSError:
        pass  # the client has left


def _number(memory: int, at: int, size: int) -> int:
    return int.from_bytes(os.pread(memory, size, at), "big")


def _written(out: int, room: "select.poll", line: bytes) -> bytes:
    """Write a line. Return the part that its reader left no room for."""
    while line and room.poll(ANSWER_MS):
        try:
            line = line[os.write(out, line[:CHUNK_BYTES]) :]
        except BlockingIOError:
            break
    return line


def restore(blocking: "list[int]") -> None:
    """Make the streams of this process block again that did: a daemon that was killed could not.

    They may be a terminal, which a shell goes on with.
    """
    for fd in blocking:
        try:
            os.set_blocking(fd, True)
        except OSError:
            pass  # it is closed


def main(words: "list[str]") -> None:
    """Wait, through one daemon after the other, until the door ends or has to come back whole."""
    memory, blocking, directory = int(words[2]), [int(digit) for digit in words[3]], words[6]
    door, request = Door(_socket.socket(fileno=int(words[1])), int(words[4])), b""
    while True:
        code = door.wait()
        if code is None:
            answer_lost(memory, 1)
            if door.was_told:
                code = 0  # another daemon, started now, would outlive a logout
        restore(blocking)
        if code is not None:
            # Whoever waits for the end of our stdout waits for that of the process.
            os._exit(code)
        door.close()
        if directory and not request:
            request = _read(int(words[5]))
        following = go_on(door, memory, directory, request) if request else None
        if following is None:
            break
        door, request = following
    if door.was_told:
        os._exit(0)
    os.environ["QUARTERDECK_DOOR_MEMORY"] = words[2]
    os.environ["QUARTERDECK_DOOR_LISTENER"] = str(door.listener)
    os.execv(sys.executable, [sys.executable, "-I", *words[7:]])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main(sys.argv)
