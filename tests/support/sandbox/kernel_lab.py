"""Scenes for the tests of filters and Landlock, each played by a program that the gate has confined.

`play(SCENE, …)` runs one and returns what it found.  A scene's program is the text of this module, given to an
interpreter that every user can run: nothing of ours is imported in there.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def play(scene: str, *, rules: Any, user: int | None = None, **task: object) -> Any:
    """What `scene` finds under these rules of the gate, as `user` if one is named; it is root who may name one."""
    from support.processes.identities import plain_python
    from support.sandbox.gates import order, seen_through

    argv = (plain_python(), "-I", "-c", Path(__file__).read_text(), scene, json.dumps(task))
    identity = None if user is None else (user, user)
    return json.loads(seen_through(order(*argv, rules=rules, identity=identity, env={"PATH": "/usr/bin:/bin"})))


def _errno(attempt: Callable[[], object]) -> int:
    try:
        attempt()
    except OSError as error:
        return error.errno or -1
    return 0


def _call(number: int, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments)) < 0:
        raise OSError(ctypes.get_errno(), "")


def attempts(task: dict[str, Any]) -> dict[str, int]:
    """The errno of each thing that a filter is about."""
    x86 = os.uname().machine == "x86_64"
    child = os.fork()
    if child == 0:
        signal.pause()
    sleeper = lambda *call: lambda: _call(*call)  # noqa: E731
    found = {
        "inet": _errno(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()),
        "inet6": _errno(lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()),
        "unix": _errno(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).close()),
        "netlink": _errno(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close()),
        "audit netlink": _errno(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9).close()),
        "raw": _errno(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()),
        "mptcp": _errno(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).close()),
        "vsock": _errno(lambda: socket.socket(40, socket.SOCK_STREAM).close()),
        "packet": _errno(lambda: socket.socket(17, socket.SOCK_RAW).close()),
        "stream pair": _errno(lambda: [end.close() for end in socket.socketpair()]),
        "datagram pair": _errno(lambda: [end.close() for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)]),
        "memfd": _errno(lambda: os.close(os.memfd_create("x"))),
        "shmget": _errno(sleeper(29 if x86 else 194, 0, 4096, 0o600 | 0o1000)),
        "own limit": _errno(lambda: resource.prlimit(0, resource.RLIMIT_CORE)),
        "another's limit": _errno(lambda: resource.prlimit(child, resource.RLIMIT_CORE)),
        "renice another": _errno(
            lambda: os.setpriority(os.PRIO_PROCESS, child, os.getpriority(os.PRIO_PROCESS, child))
        ),
        "pin another": _errno(lambda: os.sched_setaffinity(child, os.sched_getaffinity(child))),
        "signal everybody": _errno(lambda: os.kill(-1, 0)),
        "signal a child": _errno(lambda: os.kill(child, 0)),
        "ptrace": _errno(sleeper(101 if x86 else 117, 16, child, 0, 0)),
        "unshare": _errno(sleeper(272 if x86 else 97, 0x1000_0000)),
        "clone3": _errno(sleeper(435, 0, 0)),
        "clone": _errno(sleeper(56 if x86 else 220, 0x1000_0011, 0, 0, 0, 0)),
        "mount": _errno(sleeper(165 if x86 else 40, 0, 0, 0, 0, 0)),
        "bpf": _errno(sleeper(321 if x86 else 280, 0, 0, 0)),
        "io_uring": _errno(sleeper(425, 1, 0)),
        "type into a terminal": _errno(sleeper(16 if x86 else 29, 0, 0x5412, 0)),
        "keyctl": _errno(sleeper(250 if x86 else 219, 0, 0, 0, 0)),
    }
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return found


def work(task: dict[str, Any]) -> dict[str, Any]:
    import asyncio
    import multiprocessing
    import sqlite3
    import tempfile
    import threading

    with multiprocessing.get_context("fork").Pool(2) as pool:
        squares = pool.map(_square, range(4))
    said = subprocess.run(["/bin/sh", "-c", "echo hello | cat"], capture_output=True, text=True, check=True).stdout
    answers: list[int] = []
    thread = threading.Thread(target=answers.append, args=(42,))
    thread.start()
    thread.join()
    with tempfile.NamedTemporaryFile() as file, sqlite3.connect(file.name) as database:
        database.execute("create table t (x)")
        database.execute("insert into t values (1)")
        rows = database.execute("select x from t").fetchall()

    async def spawn() -> int:
        return await (await asyncio.create_subprocess_exec("/bin/true")).wait()

    return {"pool": squares, "shell": said, "thread": answers[0], "sqlite": rows, "asyncio": asyncio.run(spawn())}


def landlocked(task: dict[str, Any]) -> dict[str, int]:
    """The errno of each thing that Landlock is about, in a `folder` with `open/`, `closed/` and `fixed/`."""
    folder = task["folder"]
    parent = os.getppid()
    client = socket.socket()

    def write(path: str) -> None:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))

    return {
        "list outside": _errno(lambda: os.listdir(f"{folder}/closed")),
        "read outside": _errno(lambda: os.close(os.open(f"{folder}/closed/file", os.O_RDONLY))),
        "write outside": _errno(lambda: write(f"{folder}/closed/new")),
        "truncate outside": _errno(lambda: os.truncate(f"{folder}/closed/file", 0)),
        "link outside": _errno(lambda: os.link(f"{folder}/closed/file", f"{folder}/open/linked")),
        "read the fixed": _errno(lambda: os.close(os.open(f"{folder}/fixed/file", os.O_RDONLY))),
        "write the fixed": _errno(lambda: write(f"{folder}/fixed/file")),
        "write": _errno(lambda: write(f"{folder}/open/new")),
        "make a folder": _errno(lambda: os.mkdir(f"{folder}/open/folder")),
        "move into it": _errno(lambda: os.rename(f"{folder}/open/new", f"{folder}/open/folder/new")),
        "make a device": _errno(lambda: os.mknod(f"{folder}/open/device", 0o020600, os.makedev(1, 3))),
        "make a pipe": _errno(lambda: os.mkfifo(f"{folder}/open/pipe")),
        "use a device": _errno(lambda: os.close(os.open("/dev/null", os.O_RDWR))),
        "execute": _errno(lambda: subprocess.run([task["true"]], check=True)),
        "connect": _errno(lambda: client.connect(("127.0.0.1", task["port"]))),
        "signal the parent": _errno(lambda: os.kill(parent, 0)),
        "signal itself": _errno(lambda: os.kill(os.getpid(), signal.SIGCONT)),
    }


def _square(number: int) -> int:
    return number * number


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](json.loads(sys.argv[2]))))
