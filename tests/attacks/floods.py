"""Wanting too much, continued: files, descriptors, what the kernel keeps in buffers, output."""

import fcntl
import os
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from arena import Held, bomb, require
from bombs import HELD_FOR_S, MIB, hold

FILES_HELD_FOR_S = 30.0
"""Directories on disk are walked every five seconds, and more seldom where the walk takes long."""

FILES = 64 * MIB  # ceiling of bytes in files; the runner allows 16 MiB
INODES = 4000  # ceiling; the runner allows 1000
DESCRIPTORS = 5000  # ceiling; the runner allows 64
BUFFERS = 256 * MIB  # ceiling of bytes in pipes or sockets; the runner allows 128 MiB of memory


def _write_file(path: Path, ceiling: int) -> int:
    """Bytes written before it was refused."""
    block = os.urandom(MIB)
    written = 0
    with path.open("wb", buffering=0) as file:
        while written < ceiling:
            try:
                written += file.write(block)
            except OSError:
                break
    return written


@bomb
def big_file() -> str:
    """One file, as large as it gets."""
    written = _write_file(Path(tempfile.gettempdir()) / "big", FILES)
    require(written >= FILES, f"{written // MIB} MiB")
    return hold(f"{written // MIB} MiB")


def _writable_folders() -> list[str]:
    """Every mount, and the usual places, that a file can be made in."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    usual = [tempfile.gettempdir(), os.environ.get("HOME", "/"), "/tmp", "/var/tmp", "/dev/shm", "/run", "/dev", "/"]
    found = []
    for folder in dict.fromkeys([*usual, *mounts]):
        try:
            probe = Path(folder) / f"probe{os.getpid()}"
            probe.touch()
            probe.unlink()
            found.append(folder)
        except OSError:
            continue
    return found


@bomb
def fill_every_mount() -> str:
    """Many files wherever one can be made; what is held in memory is memory."""
    total, folders = 0, _writable_folders()
    for folder in folders:
        share = 0
        for number in range(32):
            share += _write_file(Path(folder) / f"fill{number}", 8 * MIB)
            if share >= FILES:
                break
        total += share
    require(total >= FILES, f"{total // MIB} MiB in {folders}")
    return hold(f"{total // MIB} MiB in {folders}", FILES_HELD_FOR_S)


def _many(folder: str, count: int, make: Callable[[str], object]) -> int:
    place = Path(tempfile.mkdtemp(dir=folder))
    for number in range(count):
        try:
            make(f"{place}/{number}")
        except OSError:
            return number
    return count


@bomb
def inode_bomb() -> str:
    """Empty files have no bytes to count."""
    made = {folder: _many(folder, INODES, os.mknod) for folder in _writable_folders()}
    require(max(made.values(), default=0) >= INODES, f"{made}")
    return hold(f"{made}", FILES_HELD_FOR_S)


@bomb
def descriptor_bomb() -> str:
    """Open files, up to what the kernel allows one program."""
    kept: list[int] = []
    try:
        while len(kept) < DESCRIPTORS:
            kept.append(os.dup(0))
    except OSError as error:
        raise Held(f"{len(kept)} descriptors: {error}") from error
    return hold(f"{len(kept)} descriptors")


@bomb
def pipe_bomb() -> str:
    """Pipes hold kernel memory that no process is charged for."""
    filled = 0
    try:
        for _ in range(1200):
            _, end = os.pipe()
            os.set_blocking(end, False)
            try:
                fcntl.fcntl(end, 1031, MIB)  # F_SETPIPE_SZ
            except OSError:
                pass
            try:
                while True:
                    filled += os.write(end, bytes(64 * 1024))
            except BlockingIOError:
                continue
    except OSError as error:
        raise Held(f"{filled // MIB} MiB: {error}") from error
    return hold(f"{filled // MIB} MiB in pipes")


@bomb
def socket_bomb() -> str:
    """So do sockets."""
    filled, kept = 0, []
    try:
        while filled < BUFFERS:
            pair = socket.socketpair()
            kept.append(pair)
            pair[0].settimeout(0)
            pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * MIB)
            try:
                while True:
                    filled += pair[0].send(bytes(64 * 1024))
            except BlockingIOError:
                continue
    except OSError as error:
        raise Held(f"{filled // MIB} MiB: {error}") from error
    return hold(f"{filled // MIB} MiB in sockets")


def _pour(fd: int, block: bytes) -> str:
    """Far more than the runner allows."""
    poured = 0
    while poured < FILES:
        poured += os.write(fd, block)
    return hold(f"{poured // MIB} MiB of output")


@bomb
def endless_stdout() -> str:
    """Lines without end."""
    return _pour(1, (b"x" * 99 + b"\n") * 600)


@bomb
def endless_stderr() -> str:
    """The same where nobody looks."""
    return _pour(2, (b"x" * 99 + b"\n") * 600)


@bomb
def endless_line() -> str:
    """No line at all: whoever waits for its end keeps all of it."""
    return _pour(1, b"x" * 60_000)


@bomb
def huge_message() -> str:
    """One well-formed line, larger than anybody can want."""
    os.write(1, b'{"jsonrpc":"2.0","id":1,"result":"')
    return _pour(1, b"A" * 60_000)


@bomb
def slow_line() -> str:
    """A line that never ends, a byte at a time."""
    for _ in range(int(HELD_FOR_S / 0.05)):
        os.write(1, b"x")
        time.sleep(0.05)
    return "still talking"
