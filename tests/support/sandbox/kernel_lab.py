"""Scenes for the tests of filters and Landlock: each confines itself for good, so it has a process of its own.

`play(SCENE, …)` runs one and returns what it found; `inside/` is imported as the gate does, by plain names.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "sandbox" / "quarterdeck_sandbox" / "inside"))
try:
    import kernel
finally:
    del sys.path[0]

DEADLINE_S = 60.0


def play(scene: str, *, user: int | None = None, **task: object) -> Any:
    """What `scene` says of itself, run in a new process that becomes `user` if one is named.

    It is started as ourselves and has all modules then: another user may not be able to read this interpreter's.
    """
    if "filter" in task:
        from quarterdeck_sandbox.policy.seccomp import Filter, compile_filter

        task["filter"] = compile_filter(Filter(*task["filter"]), os.uname().machine).hex()  # type: ignore[misc]
    ended = subprocess.run(
        [sys.executable, "-I", __file__, scene, json.dumps(task), str(user or "")],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        cwd="/",
    )
    assert ended.returncode == 0, (ended.returncode, ended.stderr[-2000:])
    return json.loads(ended.stdout)


def _confine(task: dict[str, Any]) -> None:
    kernel.forbid_new_privileges()
    kernel.load_seccomp(bytes.fromhex(task["filter"]))


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
    _confine(task)
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
    """What servers do all day."""
    import asyncio
    import multiprocessing
    import sqlite3
    import tempfile
    import threading

    _confine(task)
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

    return {
        "pool": squares,
        "shell": said,
        "thread": answers[0],
        "sqlite": rows,
        "asyncio": asyncio.run(spawn()),
    }


def landlocked(task: dict[str, Any]) -> dict[str, int]:
    """The errno of each thing that Landlock is about, in a `folder` with `open/`, `closed/` and `fixed/`."""
    folder = task["folder"]
    parent = os.getppid()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    client = socket.socket()
    if task["capabilities"]:
        kernel.clear_capabilities()
    kernel.forbid_new_privileges()
    kernel.restrict(
        ["/usr", f"{folder}/fixed", f"{folder}/missing"],
        [f"{folder}/open"],
        ["/dev/null"],
        deny_tcp=task["deny_tcp"],
    )

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
        "connect": _errno(lambda: client.connect(("127.0.0.1", port))),
        "signal the parent": _errno(lambda: os.kill(parent, 0)),
        "signal itself": _errno(lambda: os.kill(os.getpid(), signal.SIGCONT)),
    }


def privileges(task: dict[str, Any]) -> dict[str, str]:
    """What the kernel notes of a process before and after it gave up everything."""

    def status() -> dict[str, str]:
        pairs = (line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return {key: value.strip() for key, value in pairs if key in ("CapPrm", "CapEff", "CapAmb", "NoNewPrivs")}

    kernel.clear_ambient()
    kernel.clear_capabilities()
    kernel.forbid_new_privileges()
    return status()


def orphans(task: dict[str, Any]) -> dict[str, bool]:
    """Who becomes the parent of a grandchild, and whether a child dies with its parent."""
    kernel.adopt_orphans()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            kernel.die_with_parent()
            os.write(write, str(os.getpid()).encode())
            signal.pause()
        signal.pause()
    grandchild = int(os.read(read, 32))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pid, status = os.waitpid(grandchild, 0)
    return {"adopted": pid == grandchild, "killed": os.WTERMSIG(status) == signal.SIGKILL}


def _square(number: int) -> int:
    return number * number


def main(scene: str, task: str, user: str) -> None:
    """Play one scene; what it found is a document on stdout."""
    if user:
        os.setgroups([])
        os.setresgid(int(user), int(user), int(user))
        os.setresuid(int(user), int(user), int(user))
    print(json.dumps(globals()[scene](json.loads(task))))


if __name__ == "__main__":
    main(*sys.argv[1:])
