"""What tests leave behind in their own process: children, listening sockets, temporary directories, locks.

Python tells an audit hook of each directory that `tempfile` makes, each address that is bound and each file that is
locked, which is noted with the test that runs.  What a fixture of a wider scope made is no leak while it is in use: it
is looked at when the session has ended.  Nothing of the product is imported; Linux alone shows locks and children.
"""

import os
import socket
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

MAX_NOTES: Final = 10_000
"""Of each kind; a suite that makes more is told of the first."""

STARTED: Final = 19
"""Where the time of its start stands in `/proc/PID/stat`, behind the name; the state stands first."""

PYTHONS_FOLDER: Final = "pymp-"
"""How `multiprocessing` names the folder that it removes when the interpreter ends."""

PYTHONS_HELPERS: Final = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Children that it keeps until then."""

STARTING_S: Final = 2.0
"""How long a program may be without a command line that was executed just now, on a busy machine."""

POLL_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Child:
    """A process below this one; its start tells it from a later one of the same id; its name may change."""

    pid: int
    started: str
    name: str = field(compare=False)


class Watch:
    """Notes what the tests of this process make; one for the process's life, as an audit hook cannot be taken out."""

    def __init__(self) -> None:
        """Note nothing before a test begins."""
        self._test = ""
        self._directories: dict[str, str] = {}
        self._sockets: list[tuple[weakref.ref[socket.socket], str, str]] = []
        self._locks: dict[tuple[int, int], tuple[str, str]] = {}
        self._children: dict[Child, str] = {}
        self._before: frozenset[Child] = frozenset()
        self._is_on = True
        sys.addaudithook(self._hear)

    def begin(self, test: str) -> None:
        """This test runs from here on; what is there already is not its own.  Harmless for one that runs."""
        if self._test != test:
            self._test = test
            self._before = frozenset(children_of(os.getpid()))

    def end(self) -> None:
        """It has ended: children that are new are its own."""
        if not self._test:
            return
        for child in children_of(os.getpid()):
            if child not in self._before and len(self._children) < MAX_NOTES:
                self._children.setdefault(child, self._test)
        self._test = ""

    def left(self) -> list[str]:
        """What is still there, one line each, with the test that left it; and listen no more."""
        self._is_on = False
        return sorted((*self._left_children(), *self._left_sockets(), *self._left_directories(), *self._left_locks()))

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._is_on or not self._test:
            return
        if event == "tempfile.mkdtemp":
            if len(self._directories) < MAX_NOTES:
                self._directories[os.fspath(args[0])] = self._test
        elif event == "socket.bind":
            if len(self._sockets) < MAX_NOTES and isinstance(args[0], socket.socket):
                self._sockets.append((weakref.ref(args[0]), str(args[1]), self._test))
        elif event in {"fcntl.flock", "fcntl.lockf"}:
            self._hear_lock(args[0])

    def _hear_lock(self, file: Any) -> None:
        with suppress(OSError, ValueError, TypeError):
            descriptor = file if isinstance(file, int) else file.fileno()
            found = os.fstat(descriptor)
            if len(self._locks) < MAX_NOTES:
                name = os.readlink(f"/proc/self/fd/{descriptor}")
                self._locks[found.st_dev, found.st_ino] = (name, self._test)

    def _left_children(self) -> Iterator[str]:
        there = set(children_of(os.getpid()))
        for child, test in self._children.items():
            if child in there and not _is_pythons_own(child):
                yield f"{test} left process {child.pid} ({child.name})"

    def _left_sockets(self) -> Iterator[str]:
        for reference, address, test in self._sockets:
            found = reference()
            with suppress(OSError):
                if found is not None and found.fileno() != -1 and _listens(found):
                    yield f"{test} left a socket that listens on {address}"

    def _left_directories(self) -> Iterator[str]:
        for directory, test in self._directories.items():
            if os.path.isdir(directory) and not os.path.basename(directory).startswith(PYTHONS_FOLDER):
                yield f"{test} left the temporary directory {directory}"

    def _left_locks(self) -> Iterator[str]:
        held = set(held_locks(os.getpid()))
        for place, (name, test) in self._locks.items():
            if place in held:
                yield f"{test} left a lock on {name}"


def children_of(pid: int) -> list[Child]:
    """The processes whose parent this one is and that run; none where `/proc` does not tell."""
    found = []
    for tasks in _read(f"/proc/{pid}/task"):
        for word in _text(f"/proc/{pid}/task/{tasks}/children").split():
            stat = _text(f"/proc/{word}/stat")
            name, _, rest = stat.partition("(")[2].rpartition(")")
            fields = rest.split()
            if len(fields) > STARTED and fields[0] != "Z":
                found.append(Child(int(word), fields[STARTED], name))
    return found


def held_locks(pid: int) -> Iterator[tuple[int, int]]:
    """The files that a process holds a lock on, by device and inode; none where `/proc` does not tell."""
    for line in _text("/proc/locks").splitlines():
        fields = line.split()
        if len(fields) > 5 and fields[1] in {"FLOCK", "POSIX"} and fields[4] == str(pid):
            major, minor, inode = fields[5].split(":")
            yield os.makedev(int(major, 16), int(minor, 16)), int(inode)


def _is_pythons_own(child: Child) -> bool:
    """Whether it is a helper of `multiprocessing`, which ends with the interpreter."""
    until = time.monotonic() + STARTING_S
    # One that has just been executed has no command line yet.
    while not (command := _text(f"/proc/{child.pid}/cmdline")) and child in children_of(os.getpid()):
        if time.monotonic() > until:
            break
        time.sleep(POLL_S)
    return any(helper in command for helper in PYTHONS_HELPERS)


def _listens(found: socket.socket) -> bool:
    return bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _read(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
