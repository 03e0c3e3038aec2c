"""A door that waits, as small as can be: `python -I -S wait.py SOCKET MEMORY BLOCKING CLI ARGUMENT…`.

The daemon serves the client; here its frames are carried out until it says how to end.  When it dies, the door itself
comes back in this process and goes through another daemon.  No import but these: a door is a process for each client,
as long as it is open, and the socket and path modules would double its memory.
"""

import os
import select
import signal
import sys

ENDING = (signal.SIGTERM, signal.SIGINT)
"""Signals that ask a door to end, which the daemon is told; they are held back until we can."""


def say(text: bytes) -> None:
    """Write this on our stderr, as much as that takes now: a client that does not read it must not keep us from ending.

    A pipe that can be written to takes 4096 bytes.
    """
    try:
        room = select.poll()
        room.register(2, select.POLLOUT)
        while text and room.poll(0):
            text = text[os.write(2, text[:4096]) :]
    except OSError:
        pass  # nobody reads it


def wait(connection: int) -> int | None:
    """Carry out what the daemon says; the exit code, or None when it died and the client is still to be served."""
    was_told = False

    def tell(*_: object) -> None:
        nonlocal was_told
        was_told = True
        try:
            os.write(connection, b"T")
        except OSError:
            pass  # its death is seen below

    for number in ENDING:
        signal.signal(number, tell)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # in what comes after us in this process, too
    data = b""
    while True:
        try:
            more = os.read(connection, 65536)
        except OSError:
            more = b""
        if not more:
            # Who was told to end starts no other: at the end of a login it would outlive all that is ended.
            return 0 if was_told else None
        data += more
        while len(data) >= 5 and len(data) >= (end := 5 + int.from_bytes(data[1:5], "big")):
            kind, text, data = data[:1], data[5:end], data[end:]
            if kind == b"E":
                return int(text)
            if kind == b"L":
                say(text)


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
    code = wait(int(sys.argv[1]))
    restore([int(digit) for digit in sys.argv[3]])
    if code is not None:
        # Whoever waits for the end of our stdout waits for that of the process.
        os._exit(code)
    os.close(int(sys.argv[1]))
    os.environ["QUARTERDECK_DOOR_MEMORY"] = sys.argv[2]
    os.execv(sys.executable, [sys.executable, "-I", *sys.argv[4:]])  # noqa: S606 - no shell is wanted
