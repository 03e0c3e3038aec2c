"""Memory that no process's own figures show: page tables, and shared memory that nobody has in view at the moment.

A program that maps shared memory, writes to it and lets go of the pages keeps all of it, and seems to hold nothing; one
that looks at much empty memory fills page tables, which are nobody's.  Linux only; elsewhere nothing is found.
"""

import re
from typing import Final

_SHMEM: Final = re.compile(rb"^Shmem:\s*(\d+) kB", re.MULTILINE)
_TABLES: Final = re.compile(rb"^VmPTE:\s*(\d+) kB", re.MULTILINE)
_SPACE: Final = re.compile(rb"^VmSize:\s*(\d+) kB", re.MULTILINE)

_SHARED: Final = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) ...s [0-9a-f]+ (\S+ \d+)\s+/(?:dev/zero|memfd:[^\n]*|SYSV[0-9a-f]+) \(deleted\)$",
    re.MULTILINE,
)
"""A line of `/proc/PID/maps`: shared memory without a file, with the numbers that tell it from others."""

_SUMMARY_BYTES: Final = 64 * 1024
"""Longer than /proc/meminfo and the status of a process."""


def machine_shared_bytes() -> int:
    """All the shared memory of the machine, temporary filesystems included: no process has more of it."""
    return _kib(_SHMEM, "/proc/meminfo")


def table_bytes(pid: int) -> int:
    """The page tables of a process; anybody may know."""
    return _kib(_TABLES, f"/proc/{pid}/status")


def space_bytes(pid: int) -> int:
    """The address space of a process; anybody may know."""
    return _kib(_SPACE, f"/proc/{pid}/status")


def shared_mappings(pid: int) -> dict[bytes, int]:
    """The shared memory without a file that a process has mapped, in view or not: bytes by what identifies it.

    Raises:
        PermissionError: it may not be looked into.
    """
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
            match = expression.search(file.read(_SUMMARY_BYTES))
    except OSError:
        return 0
    return int(match[1]) * 1024 if match else 0
