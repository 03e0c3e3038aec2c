"""Look at the processes of the machine, all at once or a few exactly.

Everything here looks at what hostile programs made: it is bounded, follows no symbolic link, and what vanishes or
cannot be read meanwhile is left out.  What is no coroutine blocks, for milliseconds: call it in a thread.

Two kinds of memory are in no process's own figures: page tables, which fill when a program looks at much empty memory,
and shared memory that it maps, writes to and lets go of.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

import anyio
from msgspec.structs import replace

from quarterdeck_sandbox.policy.limits import DiskUse, Pages, Process

from .disk_use import disk_use as disk_use  # noqa: PLC0414 - this module is the monitor's `MachineReader`

VAST_BYTES: Final = 8 << 30
"""Address space from which on the page tables of a process are asked for at each look: of less they are 16 MiB."""

_STAT_BYTES: Final = 1024  # longer than any line of `/proc/PID/stat`
SUMMARY_BYTES: Final = 64 * 1024  # longer than /proc/meminfo and the status of a process
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_SHMEM: Final = re.compile(rb"^Shmem:\s*(\d+) kB", re.MULTILINE)
_TABLES: Final = re.compile(rb"^VmPTE:\s*(\d+) kB", re.MULTILINE)
_SPACE: Final = re.compile(rb"^VmSize:\s*(\d+) kB", re.MULTILINE)

_OWNER: Final = re.compile(rb"^Uid:\s*(\d+)\s.*?^Threads:\s*(\d+)", re.MULTILINE | re.DOTALL)
"""Of the status of a process, the real user and the number of threads."""

_SHARED: Final = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) ...s [0-9a-f]+ (\S+ \d+)\s+/(?:dev/zero|memfd:[^\n]*|SYSV[0-9a-f]+) \(deleted\)$",
    re.MULTILINE,
)
"""A line of `/proc/PID/maps`: shared memory without a file, with the numbers that tell it from others."""


def scan() -> dict[int, Process]:
    """Return every visible process, by pid; none without /proc."""
    if not os.path.isdir("/proc"):
        return {}
    # By hand: psutil makes an object and reads up to three files for each process, this reads one.
    found, shared_bytes = {}, machine_shared_bytes()
    for pid in _pids():
        with suppress(OSError):  # it has just ended
            found[pid] = _parse(pid, read_proc(pid, "stat", _STAT_BYTES), shared_bytes)
    return found


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def read_proc(pid: int, name: str, most_bytes: int = SUMMARY_BYTES) -> bytes:
    """Return a file of a process in /proc.  Raise OSError if the process has ended."""
    fd = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, most_bytes)
    finally:
        os.close(fd)


def state_of(pid: int) -> bytes:
    """Return the letter of a process's state, as in proc(5); empty if it is gone."""
    try:
        return read_proc(pid, "stat", _STAT_BYTES).rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return b""


async def wait_for_end(pid: int) -> None:
    """Wait until a child has ended, reaped or not.  Raise ProcessLookupError if it is gone."""
    fd = os.pidfd_open(pid)
    try:
        await anyio.wait_readable(fd)
    finally:
        os.close(fd)


def exact_memory(pids: Iterable[int]) -> Pages:
    """Return the memory of these processes; one that may not be looked into counts with all that is its own alone."""
    pids = tuple(pids)
    pages = sum(map(_pages, pids), Pages())
    return replace(pages, shared_bytes=max(pages.shared_bytes, _mapped_bytes(pids)))


def tmpfs_use(root_pid: int, mounts: Iterable[str]) -> DiskUse:
    """Return what these mount points below the root of `root_pid` hold, as far as they can be looked at."""
    total, seen = DiskUse(), set()
    for mount in mounts:
        try:
            fd = os.open(f"/proc/{root_pid}/root{mount}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            device, told = os.fstat(fd).st_dev, os.fstatvfs(fd)
        finally:
            os.close(fd)
        if device not in seen:
            seen.add(device)
            total += DiskUse((told.f_blocks - told.f_bfree) * told.f_frsize, told.f_files - told.f_ffree)
    return total


def threads_of(uid: int) -> int:
    """Return the number of threads of a user's processes: they count against its limit of processes."""
    return sum(threads for owner, threads in _owners() if owner == uid)


def real_users() -> set[int]:
    """Return the real users of all visible processes."""
    return {owner for owner, _ in _owners()}


def _owners() -> Iterator[tuple[int, int]]:
    for pid in _pids():
        with suppress(OSError):  # it has ended
            if (found := _OWNER.search(read_proc(pid, "status"))) is not None:
                yield int(found[1]), int(found[2])


def waited_s(pid: int) -> float:
    """Return for how long a process's first thread was ready and got no processor, all in all; 0 if unknown."""
    try:
        return int(read_proc(pid, "schedstat").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, by a signal or a debugger."""
    return state_of(pid) in {b"T", b"t"}


def _parse(pid: int, line: bytes, shared_bytes: int = 0) -> Process:
    # After the name, which may hold anything, parentheses too: proc(5), fields from 3 on.
    fields = line[line.rindex(b")") + 2 :].split(None, 22)
    space = int(fields[20])
    return Process(
        pid=pid,
        parent=int(fields[1]),
        started=int(fields[19]) / _TICKS,
        rss_bytes=int(fields[21]) * _PAGE + (table_bytes(pid) if space >= VAST_BYTES else 0),
        threads=int(fields[17]),
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS,
        reaped_cpu_s=(int(fields[13]) + int(fields[14])) / _TICKS,
        unseen_bytes=min(space, shared_bytes),
    )


def _mapped_bytes(pids: Iterable[int]) -> int:
    """Return the most shared memory that they can hold among them, in view or not."""
    most, mapped = machine_shared_bytes(), dict[bytes, int]()
    for pid in pids:
        try:
            for key, size in shared_mappings(pid).items():
                mapped[key] = max(size, mapped.get(key, 0))
        except PermissionError:
            mapped[b"%d" % pid] = space_bytes(pid)
    return min(most, sum(mapped.values()))


def _pages(pid: int) -> Pages:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            told = dict(line.split(b":", 1) for line in file.read(_STAT_BYTES * 8).splitlines()[1:])
    except PermissionError:
        return Pages(_anonymous_bytes(pid))
    except OSError:
        return Pages()  # it has just ended
    # Older kernels do not split the sum.
    anonymous = b"Pss_Anon" if b"Pss_Anon" in told else b"Pss"
    return Pages(
        _told_kib(told, anonymous) + _told_kib(told, b"SwapPss") + table_bytes(pid), _told_kib(told, b"Pss_Shmem")
    )


def _told_kib(told: dict[bytes, bytes], name: bytes) -> int:
    return int(told[name].split()[0]) * 1024 if name in told else 0


def _anonymous_bytes(pid: int) -> int:
    try:
        resident, shared = read_proc(pid, "statm").split()[1:3]
    except OSError:
        return 0
    return (int(resident) - int(shared)) * _PAGE + table_bytes(pid)


def machine_shared_bytes() -> int:
    """Return all shared memory of the machine, temporary filesystems included: no process has more of it."""
    return _kib(_SHMEM, "/proc/meminfo")


def table_bytes(pid: int) -> int:
    """Return the size of a process's page tables, which every user may know."""
    return _kib(_TABLES, f"/proc/{pid}/status")


def space_bytes(pid: int) -> int:
    """Return a process's address space, which every user may know."""
    return _kib(_SPACE, f"/proc/{pid}/status")


def shared_mappings(pid: int) -> dict[bytes, int]:
    """Return a process's mapped shared memory without a file: bytes by identity.  Raise PermissionError."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            text = file.read()
    except PermissionError:
        raise
    except OSError:
        return {}  # it has just ended
    found: dict[bytes, int] = {}
    for match in _SHARED.finditer(text):
        found[match[3]] = found.get(match[3], 0) + int(match[2], 16) - int(match[1], 16)
    return found


def _kib(expression: re.Pattern[bytes], path: str) -> int:
    try:
        with open(path, "rb") as file:
            match = expression.search(file.read(SUMMARY_BYTES))
    except OSError:
        return 0
    return int(match[1]) * 1024 if match else 0
