"""The self-test's hostile program: confined, it tries what a server must not get, and reports the outcomes.

Standard library only, and handed over as text: `python -I -S -c TEXT TASK`, with `self_test`'s task as JSON.  Each
outcome is a line `name held|escaped|unknown detail`; the last line is `done`.  A daemon stays behind and keeps stdout
open: the reader sees end of file when the daemon is dead.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

PTRACE_SEIZE = 0x4206
CLONE_NEWUSER = 0x10000000
FCHMODAT2, FILE_SETATTR = 452, 469
AT_FDCWD, AT_EMPTY_PATH = -100, 0x1000
FILE_ATTRIBUTES_BYTES = 24
DAEMON_S = 60  # lifetime of a daemon that survives


class EscapeError(Exception):
    """An attack succeeded; the text says at what."""


def read_a_secret(task: dict[str, Any]) -> None:
    """Read a world-readable file outside."""
    with open(task["secret"]) as file:
        if file.read() == task["token"]:
            raise EscapeError("read a file outside")


def write_outside(task: dict[str, Any]) -> None:
    """Write to a world-writable directory outside."""
    path = os.path.join(task["folder"], "written")
    with open(path, "w") as file:
        file.write("x")
    raise EscapeError("wrote a file outside")


def change_metadata(task: dict[str, Any]) -> None:
    """Change the mode, times, group and attributes of a file outside, which may belong to the attacker's user."""
    path, name, number = task["secret"], os.fsencode(task["secret"]), 0
    ways: tuple[Callable[[], object], ...] = (
        lambda: os.chmod(path, 0o644),
        lambda: os.chmod(f"/proc/self/fd/{os.open(path, os.O_PATH)}", 0o644),
        lambda: _libc_call("syscall", FCHMODAT2, AT_FDCWD, name, 0o644, 0),
        lambda: _libc_call("syscall", FCHMODAT2, os.open(path, os.O_PATH), b"", 0o644, AT_EMPTY_PATH),
        lambda: os.utime(path),
        lambda: os.chown(path, -1, os.getgid()),
        lambda: os.setxattr(path, "user.quarterdeck", b"x"),
        lambda: _libc_call(
            "syscall", FILE_SETATTR, AT_FDCWD, name, bytes(FILE_ATTRIBUTES_BYTES), FILE_ATTRIBUTES_BYTES, 0
        ),
    )
    for way in ways:
        try:
            way()
        except OSError as error:
            number = error.errno or number
        else:
            raise EscapeError("changed metadata of a file outside")
    raise OSError(number, os.strerror(number))


def see_processes(task: dict[str, Any]) -> None:
    """See the process that started the sandbox, recognised by its start time."""
    with open(f"/proc/{task['owner']}/stat") as file:
        if file.read().rpartition(")")[2].split()[19] == task["owner_started"]:
            raise EscapeError("saw the process that started it")


def signal_the_owner(task: dict[str, Any]) -> None:
    """Signal that process."""
    os.kill(task["owner"], 0)
    # Inside, another process can have its number.
    see_processes(task)


def trace_the_owner(task: dict[str, Any]) -> None:
    """Attach to that process as a debugger."""
    # PTRACE_ATTACH would stop it, and our end would leave it stopped: it is who tells what the attacks got.
    _libc_call_apart("ptrace", PTRACE_SEIZE, task["owner"], 0, 0)
    raise EscapeError("attached to the process that started it")


def connect_to_the_host(task: dict[str, Any]) -> None:
    """Reach a server on the host's loopback."""
    import socket

    _reach(socket.AF_INET, ("127.0.0.1", task["port"]), task, "reached a server on the host's loopback")


def connect_to_an_abstract_socket(task: dict[str, Any]) -> None:
    """Reach an abstract Unix socket of the host."""
    import socket

    _reach(socket.AF_UNIX, "\0" + task["abstract"], task, "reached an abstract socket of the host")


def mount(task: dict[str, Any]) -> None:
    """Mount an empty filesystem over its own home."""
    _libc_call("mount", b"none", os.fsencode(task["home"]), b"tmpfs", 0, None)
    raise EscapeError("mounted a filesystem")


def make_a_user_namespace(_task: dict[str, Any]) -> None:
    """Become root in a user namespace, and reach the kernel code that only root reaches."""
    _libc_call_apart("unshare", CLONE_NEWUSER)
    raise EscapeError("made a user namespace")


ATTACKS = (
    read_a_secret,
    write_outside,
    change_metadata,
    see_processes,
    signal_the_owner,
    trace_the_owner,
    connect_to_the_host,
    connect_to_an_abstract_socket,
    mount,
    make_a_user_namespace,
)


def _reach(family: int, address: tuple[str, int] | str, task: dict[str, Any], escaped: str) -> None:
    import socket

    with socket.socket(family) as connection:
        connection.settimeout(2.0)
        connection.connect(address)
        if connection.recv(64).decode() == task["token"]:
            raise EscapeError(escaped)


def _libc_call(name: str, *arguments: int | bytes | None) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    whole = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    if getattr(libc, name)(*whole) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _libc_call_apart(name: str, *arguments: int | bytes | None) -> None:
    """Call in a child, whose end gives back what the call got."""
    child = os.fork()
    if child == 0:
        try:
            _libc_call(name, *arguments)
        except OSError as error:
            os._exit(error.errno or 255)
        os._exit(0)
    if number := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise OSError(number, os.strerror(number))


def leave_a_daemon() -> None:
    """Leave a process without session and parent that ignores TERM and holds our stdout."""
    import signal
    import time

    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            time.sleep(DAEMON_S)
        os._exit(0)
    os.wait()


def main(text: str) -> None:
    """Try all attacks."""
    import json

    task = json.loads(text)
    leave_a_daemon()
    for attack in ATTACKS:
        try:
            attack(task)
            outcome = "held what it found was not ours"
        except OSError as error:
            outcome = f"held {error.strerror or error}"
        except EscapeError as error:
            outcome = f"escaped {error}"
        except Exception as error:
            outcome = f"unknown {type(error).__name__}: {error}"
        sys.stdout.write(f"{attack.__name__} {outcome}\n")
    sys.stdout.write("done\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
