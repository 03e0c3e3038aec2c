"""Wait for the end of a door's session: `python -I -S wait.py SOCKET MEMORY BLOCKING LISTENER CLI ARGUMENT…`.

The daemon serves the client; this process carries out the daemon's frames until one says how to end.  When the daemon
dies, the requests that it had under way are answered here, at once, from the session's memory (`session_memory`).  Then
the door itself comes back in this process and goes through another daemon, with the HTTP socket that it holds.

Imports only these modules: there is one such process for each client, and the socket, mmap and path modules would
double its memory.
"""

import _socket
import os
import select
import signal
import sys

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

    def __init__(self, connection: int, listener: int = NO_DESCRIPTOR) -> None:
        self._socket = _socket.socket(fileno=connection)
        self._came = NO_DESCRIPTOR
        self.listener = listener
        self.was_told = False

    def wait(self) -> "int | None":
        """Carry out the daemon's frames. Return the exit code, or None once the daemon has died."""
        for number in ENDING:
            signal.signal(number, self._tell)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # in what comes after us in this process, too
        data = b""
        while more := self._receive():
            data += more
            while len(data) >= 5 and len(data) >= (end := 5 + int.from_bytes(data[1:5], "big")):
                kind, text, data = data[:1], data[5:end], data[end:]
                if kind == b"E":
                    return int(text)
                if kind == b"L":
                    say(text)
                elif kind == b"H":
                    self._hold()
        return None

    def close(self) -> None:
        """Close the connection; the listener stays open."""
        self._socket.close()

    def _tell(self, *_: object) -> None:
        self.was_told = True
        try:
            self._socket.send(b"T")
        except OSError:
            pass  # its death is seen by the next read

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


if __name__ == "__main__":
    memory = int(sys.argv[2])
    door = Door(int(sys.argv[1]), int(sys.argv[4]))
    code = door.wait()
    if code is None:
        answer_lost(memory, 1)
        if door.was_told:
            code = 0  # another daemon, started now, would outlive a logout
    restore([int(digit) for digit in sys.argv[3]])
    if code is not None:
        # Whoever waits for the end of our stdout waits for that of the process.
        os._exit(code)
    door.close()
    os.environ["QUARTERDECK_DOOR_MEMORY"] = sys.argv[2]
    os.environ["QUARTERDECK_DOOR_LISTENER"] = str(door.listener)
    os.execv(sys.executable, [sys.executable, "-I", *sys.argv[5:]])  # noqa: S606 - no shell is wanted
