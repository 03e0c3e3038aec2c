"""Leftovers of tests: processes, sockets, temporary directories and files, locks.

An audit hook notes each directory and file that `tempfile` makes, each address that is bound and each file that is
locked, with the running test. Processes are known by their parent, and those that have another by then by a variable
that they inherit. A wider fixture's resources are no leak while in use: all is inspected when the session has ended.
Nothing of the product is imported; only Linux reports locks and processes.
"""

import os
import secrets
import socket
import stat
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

MAX_NOTES: Final = 10_000  # of each kind; of more only the first are noted
STARTED: Final = 19  # position of the start time in `/proc/PID/stat`, behind the name; the state is at 0
PYTHONS_FOLDER: Final = "pymp-"  # prefix of the folder that `multiprocessing` removes when the interpreter ends
PYTHONS_HELPERS: Final = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Children that it keeps until then."""

VARIABLE: Final = "QUARTERDECK_PYTEST_TEST"  # set while a test uses a server; inherited even without a parent
LEAVING_S: Final = 2.0  # seconds that a process may take to exit after the session: not every test waits for its own
STARTING_S: Final = 2.0  # seconds that a program may be without a command line right after exec, on a busy machine
POLL_S: Final = 0.01

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Child:
    """A process below this one; its start time tells it from a later one of the same id; its name may change."""

    pid: int
    started: str
    name: str = field(compare=False)


class Watch:
    """Notes the resources of this process's tests; one for the process's life, as an audit hook cannot be removed."""

    def __init__(self) -> None:
        self._test = ""
        self._token = secrets.token_hex(8)
        self._made: dict[str, str] = {}
        self._sockets: list[tuple[weakref.ref[socket.socket], str]] = []
        self._paths: dict[str, str] = {}
        self._locks: dict[tuple[int, int], tuple[str, str]] = {}
        self._children: dict[Child, str] = {}
        self._before: frozenset[Child] = frozenset()
        self._is_on = True
        sys.addaudithook(self._hear)

    def begin(self, test: str) -> None:
        """Attribute new resources to this test; existing ones are not its own. Harmless for the running test."""
        if self._test != test:
            self._test = test
            self._before = frozenset(children_of(os.getpid()))
            os.environ[VARIABLE] = f"{self._token} {test}".replace("\0", "(null)")

    def end(self) -> None:
        """End the running test: new children are its own."""
        if not self._test:
            return
        for child in children_of(os.getpid()):
            if child not in self._before and len(self._children) < MAX_NOTES:
                self._children.setdefault(child, self._test)
        self._test = ""
        os.environ.pop(VARIABLE, None)

    def left(self) -> list[str]:
        """Stop noting. Return one line for each leftover, with its test."""
        self._is_on = False
        found = (
            self._left_processes(),
            self._left_sockets(),
            self._left_paths(),
            self._left_made(),
            self._left_locks(),
        )
        return sorted(_shown(line) for lines in found for line in lines)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._is_on or not self._test:
            return
        if event in {"tempfile.mkdtemp", "tempfile.mkstemp"}:
            if len(self._made) < MAX_NOTES:
                self._made[os.path.abspath(os.fsdecode(args[0]))] = self._test
        elif event == "socket.bind":
            if isinstance(args[0], socket.socket):
                self._hear_bind(*args)
        elif event in {"fcntl.flock", "fcntl.lockf"}:
            self._hear_lock(args[0])

    def _hear_bind(self, bound: socket.socket, address: Any) -> None:
        if bound.family in {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6} and len(self._sockets) < MAX_NOTES:
            self._sockets.append((weakref.ref(bound), self._test))
            if bound.family == socket.AF_UNIX and (path := _path(address)) and not path.startswith("\0"):
                self._paths[os.path.abspath(path)] = self._test

    def _hear_lock(self, file: Any) -> None:
        with suppress(OSError, ValueError, TypeError):
            descriptor = file if isinstance(file, int) else file.fileno()
            found = os.fstat(descriptor)
            if len(self._locks) < MAX_NOTES:
                name = os.readlink(f"/proc/self/fd/{descriptor}")
                self._locks[found.st_dev, found.st_ino] = (name, self._test)

    def _left_processes(self) -> Iterator[str]:
        until = time.monotonic() + LEAVING_S
        while (found := self._processes()) and time.monotonic() < until:
            time.sleep(POLL_S)
        for process, test in found.items():
            yield f"{test} left process {process.pid} ({process.name})"

    def _processes(self) -> dict[Child, str]:
        """Return the running processes of tests, except Python's own."""
        there = set(children_of(os.getpid()))
        found = {child: test for child, test in self._children.items() if child in there}
        found |= heirs_of(f"{VARIABLE}={self._token} ")
        return {process: test for process, test in found.items() if not _is_pythons_own(process)}

    def _left_sockets(self) -> Iterator[str]:
        for reference, test in self._sockets:
            found = reference()
            with suppress(OSError):
                if found is not None and found.fileno() != -1:
                    does = "listens on" if _listens(found) else "is bound to"
                    yield f"{test} left a socket that {does} {_address_of(found)}"

    def _left_paths(self) -> Iterator[str]:
        """Yield the files of sockets, which stay when those are closed."""
        for path, test in self._paths.items():
            with suppress(OSError):
                if stat.S_ISSOCK(os.lstat(path).st_mode):
                    yield f"{test} left the socket's file {path}"

    def _left_made(self) -> Iterator[str]:
        # A file that is open may be one that its end removes.
        is_open = {_tried(os.readlink, f"/proc/self/fd/{name}", "") for name in _names("/proc/self/fd")}
        for path, test in self._made.items():
            if os.path.isdir(path) and not os.path.basename(path).startswith(PYTHONS_FOLDER):
                yield f"{test} left the temporary directory {path}"
            elif os.path.isfile(path) and os.path.realpath(path) not in is_open:
                yield f"{test} left the temporary file {path}"

    def _left_locks(self) -> Iterator[str]:
        held = set(held_locks(os.getpid()))
        for place, (name, test) in self._locks.items():
            if place in held:
                yield f"{test} left a lock on {name}"


def children_of(pid: int) -> list[Child]:
    """Return the running children of a process; none where `/proc` does not tell."""
    words = [
        word for task in _names(f"/proc/{pid}/task") for word in _text(f"/proc/{pid}/task/{task}/children").split()
    ]
    return [child for word in words if (child := _running(word)) is not None]


def heirs_of(variable: str) -> dict[Child, str]:
    """Return the running processes with a variable that begins so, each with the rest of its value."""
    found = {}
    for word in _names("/proc"):
        if word.isdigit() and variable in (environ := _text(f"/proc/{word}/environ")):
            value = next((each for each in environ.split("\0") if each.startswith(variable)), None)
            if value is not None and word != str(os.getpid()) and (process := _running(word)) is not None:
                found[process] = value.removeprefix(variable)
    return found


def _running(pid: str) -> Child | None:
    """Return the process of this id; None for one that has ended, waited for or not."""
    name, _, rest = _text(f"/proc/{pid}/stat").partition("(")[2].rpartition(")")
    fields = rest.split()
    return Child(int(pid), fields[STARTED], name) if len(fields) > STARTED and fields[0] != "Z" else None


def held_locks(pid: int) -> Iterator[tuple[int, int]]:
    """Yield the files that a process holds a lock on, by device and inode; none where `/proc` does not tell."""
    for line in _text("/proc/locks").splitlines():
        fields = line.split()
        if len(fields) > 5 and fields[1] in {"FLOCK", "POSIX"} and fields[4] == str(pid):
            major, minor, inode = fields[5].split(":")
            yield os.makedev(int(major, 16), int(minor, 16)), int(inode)


def _is_pythons_own(child: Child) -> bool:
    """Return whether it is a helper of `multiprocessing`, which ends with the interpreter."""
    until = time.monotonic() + STARTING_S
    # One that has just been executed has no command line yet.
    while not (command := _text(f"/proc/{child.pid}/cmdline")) and _running(str(child.pid)) == child:
        if time.monotonic() > until:
            break
        time.sleep(POLL_S)
    return any(helper in command for helper in PYTHONS_HELPERS)


def _address_of(found: socket.socket) -> str:
    """Return a path, `@` and the name of an abstract one, or host and port."""
    address = found.getsockname()
    if isinstance(address, tuple):
        return f"{address[0]}, port {address[1]}"
    text = os.fsdecode(address)
    return f"@{text[1:]}" if text.startswith("\0") else text


def _shown(line: str) -> str:
    """Escape all characters that are not printable, line ends too: a server chooses the names of its files."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)


def _path(address: Any) -> str:
    """Return the path of a socket's file, given as text or as any buffer."""
    try:
        return os.fsdecode(address if isinstance(address, str) else bytes(address))
    except TypeError:
        return ""  # no address: the socket says so itself


def _listens(found: socket.socket) -> bool:
    return bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _names(folder: str) -> list[str]:
    return _tried(os.listdir, folder, [])


def _text(path: str) -> str:
    return _tried(lambda path: Path(path).read_text(encoding="utf-8", errors="replace"), path, "")


def _tried(look: Callable[[str], T], path: str, otherwise: T) -> T:
    """Return what is at a path that may vanish."""
    try:
        return look(path)
    except OSError:
        return otherwise
