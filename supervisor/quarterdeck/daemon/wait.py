"""Wait for the end of a door's session: `python -I -S wait.py SOCKET MEMORY BLOCKING LISTENER HANDOVER DIRECTORY CLI…`.

The daemon serves the client; this process carries out the daemon's frames until one says how to end.  When the daemon
dies, this process at once answers the requests in progress from the session's memory (`session_memory`).  The first of
all doors runs the whole door program again in its process and starts another daemon.  The other doors wait for that
daemon here, and hand themselves over as before: many doors that import at once would delay the daemon's start.  If the
wait fails, they run the whole program, too.  All doors bring the HTTP socket that they hold.

Each client has one such process, so it imports only these modules: the socket, mmap and path modules would double its
memory.
"""

import _socket
import os
import select
import signal
import sys
import time

ENDING = (signal.SIGTERM, signal.SIGINT)
"""Signals that ask a door to end, as the daemon is told; blocked until we can tell it."""

NO_DESCRIPTOR = -1

# The part of the session's memory that this process reads; `session_memory` has the whole layout.
GREETED_AT = 8
WRITING_AT = 9
USED_AT = 10
LENGTH_AT = 12
BOUNDS_AT = 16
TAKING_AT = 24
GREETING_AT = 32
MAX_GREETING_BYTES = 64 * 1024
FIRST_SLOT_AT = GREETING_AT + MAX_GREETING_BYTES
SLOT_BYTES = 128
SLOTS = 4096
"""The most requests in progress of one client."""
LOST_AT = FIRST_SLOT_AT + SLOTS * SLOT_BYTES
LOST_KINDS = 4
"""The number of kinds of requests, each with its own answer; see `RequestKind`."""
INITIALIZE = 1
"""The kind of `initialize`, which the next daemon answers itself."""

ANSWER_MS = 500
"""Milliseconds that a client may take to read each answer; the next daemon gives the remaining answers."""

MAX_DEATHS = 4
DEATHS_S = 60.0
"""Seconds in which `MAX_DEATHS` daemons may die; after one more, the door gives up with a message."""

LIVES = "QUARTERDECK_DOOR_LIVES"
"""The variable with the times of these deaths: monotonic seconds, separated by blanks."""

NEXT_S = 4.0
"""Seconds for the first door to have another daemon listen: imports take 0.1 s, more on a busy machine."""

STAGGER_S = 0.1
STAGGERS = 40
"""Doors that waited in vain return one after the other; their process ids spread them over this many steps."""

LOOK_S = 0.05

ACCEPT_S = 60.0
"""Seconds that a starting daemon may take to accept this client."""

KEY_BYTES = 64
"""The length of a daemon's key."""

CHUNK_BYTES = 4096
"""Bytes that a writable pipe takes without blocking."""


def say(text: bytes) -> None:
    """Write to our stderr without blocking: a client that does not read it must not delay our exit."""
    try:
        room = select.poll()
        room.register(2, select.POLLOUT)
        while text and room.poll(0):
            text = text[os.write(2, text[:CHUNK_BYTES]) :]
    except OSError:
        pass  # nobody reads it


class Door:
    """The connection to the daemon, and the HTTP socket kept for the next daemon: `listener`, or NO_DESCRIPTOR.
    `was_told` says whether a signal has asked this door to end.
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
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # also for the program that this process executes next
        while self._code is None and self._next():
            pass
        return self._code

    def is_accepted(self) -> bool:
        """Wait until the daemon accepts the client or ends this door. Return False if it does neither."""
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
            pass  # the next read detects the daemon's death

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
    """Hand the client over to the daemon that another door starts. `directory` is where the dead daemon listened,
    `request` its key and the handover with it. Return the door to the next daemon and the request for the one after it,
    or None if the whole door program must run.
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
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # until `wait` can notify this daemon
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
    """Return whether this door is the first to return since the daemon died, or cannot determine the order."""
    try:
        name = f"{directory}/after-{request[:16].decode()}"
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    except (OSError, ValueError):
        pass
    return True


def _next_daemon(door: Door, directory: str, request: bytes) -> "tuple[_socket.socket | None, bytes]":
    """Return a connection to our user's next daemon, or None if none comes, and the request with its key."""
    until = time.monotonic() + NEXT_S + os.getpid() % STAGGERS * STAGGER_S
    while not door.was_told and time.monotonic() < until:
        # A new daemon changes the key before the socket.
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
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read() or b""
    except OSError:
        return b""


def _close(fd: int) -> None:
    if fd != NO_DESCRIPTOR:
        os.close(fd)


def answer_lost(memory: int, out: int) -> None:
    """Answer a dead daemon's requests in progress on `out`; those that the client does not read stay for the next."""
    texts, at = [], LOST_AT
    for _ in range(LOST_KINDS):
        size = _number(memory, at, 2)
        texts.append(os.pread(memory, size, at + 2))
        at += 2 + size
    used = min(_number(memory, USED_AT, 2), SLOTS)
    if not (used and all(texts)):
        return  # no session was served
    slots, void = os.pread(memory, used * SLOT_BYTES, FIRST_SLOT_AT), void_slot(os.pread(memory, GREETING_AT, 0))
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
            if not size or slot == void or (kind == INITIALIZE and has_greeting):
                continue
            start = slot * SLOT_BYTES + 2
            line = texts[kind if kind < LOST_KINDS else 0].replace(b"\0", slots[start : start + size], 1)
            if left := _written(out, room, line):
                os.pwrite(memory, bytes((len(left) < len(line),)), WRITING_AT)
                return
            os.pwrite(memory, b"\0", FIRST_SLOT_AT + slot * SLOT_BYTES)
    except OSError:
        pass  # the client has left


def void_slot(head: bytes) -> int:
    """Return the slot of the request that was being taken up when its daemon died, so that its line is still unread; -1
    for none. `head` is the memory before the greeting.
    """
    taking = int.from_bytes(head[TAKING_AT : TAKING_AT + 2], "big")
    return (taking >> 1) - 1 if taking & 1 == head[BOUNDS_AT] >> 7 else -1


def _number(memory: int, at: int, size: int) -> int:
    return int.from_bytes(os.pread(memory, size, at), "big")


def _written(out: int, room: "select.poll", line: bytes) -> bytes:
    """Write a line. Return the part for which the reader left no room."""
    while line and room.poll(ANSWER_MS):
        try:
            line = line[os.write(out, line[:CHUNK_BYTES]) :]
        except BlockingIOError:
            break
    return line


def restore(blocking: "list[int]") -> None:
    """Make this process's streams block again, which a killed daemon could not: a shell may go on with them."""
    for fd in blocking:
        try:
            os.set_blocking(fd, True)
        except OSError:
            pass  # it is closed


def main(words: "list[str]") -> None:
    """Wait on one daemon after the other, until the door ends or the whole door program must run."""
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
            # A client that waits for the end of our stdout also waits for the end of this process.
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
    os.execv(sys.executable, [sys.executable, "-I", *words[7:]])  # noqa: S606 - this needs no shell


if __name__ == "__main__":
    main(sys.argv)
