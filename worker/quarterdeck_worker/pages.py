"""Keep shared what a worker shares with its zygote: pages that it wrote to, and left as they were, are given back.

Most of what an interpreter writes to the objects that it was forked with are counts of references, which go up and down
again.  A page that was written to is private from then on, though it holds what it held before.  So the zygote moves
its heap to a file in memory, of which it and its forks have private mappings; a page that holds what the file holds can
be dropped, and is the file's again.  The file can never be written to again.

Comparing and dropping is a compiled library's work (`worker/native/pages.c` says why).  Where it was not built, or the
kernel offers less than this needs, nothing is moved and nothing given back.
"""

import ctypes
import fcntl
import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

LIBRARY: Final = Path(__file__).with_name("quarterdeck-pages.so")
LAYOUT: Final = 1  # of the structures below; the library says which it was compiled with

LEAST_BYTES: Final = 1024 * 1024
"""Of a mapping that is the allocator's: smaller ones are stacks, threads' own, and what the kernel writes to."""

_MAPPING: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p ([0-9a-f]+) \S+ (\d+) *(.*)$")
"""A line of `/proc/self/maps` (proc_pid_maps(5)): private memory, whence in which file (inode 0: none), its name."""

MOST_BYTES: Final = 64 * 1024 * 1024
"""Of a heap that is moved: a zygote has half of it, and copies it in ten milliseconds."""

PAGE_MAP: Final = "/proc/self/pagemap"

_SEALS: Final = 0xF
"""No more seals, and none that shrinks, grows or writes: fcntl(2); not every system's `fcntl` has the names."""


class _Region(ctypes.Structure):
    """`struct region` of the library's source."""

    _fields_ = (("start", ctypes.c_uint64), ("size", ctypes.c_uint64), ("at", ctypes.c_uint64))


class _Heap(ctypes.Structure):
    """`struct heap` of the library's source."""

    _fields_ = (
        ("regions", ctypes.POINTER(_Region)),
        ("count", ctypes.c_uint64),
        ("page_size", ctypes.c_uint64),
        ("file", ctypes.c_int64),
        ("page_map", ctypes.c_int64),
    )


def move_heap(library: Path = LIBRARY) -> bool:
    """Move the heap of this process to a file in memory; return whether any was.  It has one thread, for good."""
    global _moved
    if sys.platform != "linux" or not hasattr(os, "memfd_create"):
        return False
    with ExitStack() as closing:
        try:
            functions = ctypes.PyDLL(str(library))  # keeps the interpreter's lock
            if ctypes.c_uint32.in_dll(functions, "layout").value != LAYOUT:
                return False
            page_map = os.open(PAGE_MAP, os.O_RDONLY | os.O_CLOEXEC)
            closing.callback(os.close, page_map)
            file = os.memfd_create("quarterdeck-zygote", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            left = closing.enter_context(ExitStack())
            left.callback(os.close, file)
            regions = _heap_regions()
            size = sum(region.size for region in regions)
            if size > MOST_BYTES:
                return False
            os.ftruncate(file, size)
        except (OSError, ValueError):  # no library, or none of ours; a kernel that has no such file
            return False
        if not functions.move_to_file(ctypes.byref(_heap_of(regions, file, page_map))):
            return False
        left.pop_all()
        functions.give_back.restype = ctypes.c_long
        _moved = functions, file
        with suppress(OSError):  # then only those that have its descriptor could write to it: we, and our forks
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    return True


def give_back() -> int:
    """Give back what is as it was; how many pages.  None where no heap was moved, or another thread runs."""
    if _moved is None:
        return 0
    functions, file = _moved
    with ExitStack() as closing:
        try:
            if len(os.listdir("/proc/self/task")) > 1:
                return 0
            page_map = os.open(PAGE_MAP, os.O_RDONLY | os.O_CLOEXEC)
            closing.callback(os.close, page_map)
            # Not what was moved once: the allocator may have unmapped some of it, and something else lie there.
            regions = _still_of(os.fstat(file).st_ino)
        except OSError:
            return 0
        return max(0, int(functions.give_back(ctypes.byref(_heap_of(regions, file, page_map)))))


_moved: tuple[ctypes.PyDLL, int] | None = None
"""The library, and the file to which the zygote moved its heap, which each of its forks has."""


def _heap_of(regions: list[_Region], file: int, page_map: int) -> _Heap:
    array = (_Region * len(regions))(*regions)
    return _Heap(array, len(regions), os.sysconf("SC_PAGESIZE"), file, page_map)


def _heap_regions() -> list[_Region]:
    found: list[_Region] = []
    at = 0
    for start, size, _, inode, name in _mappings():
        if inode == 0 and (name == "[heap]" or (not name and size >= LEAST_BYTES)):
            found.append(_Region(start, size, at))
            at += size
    return found


def _still_of(file: int) -> list[_Region]:
    return [_Region(start, size, at) for start, size, at, inode, _ in _mappings() if inode == file]


def _mappings() -> Iterator[tuple[int, int, int, int, str]]:
    """Of private memory: where, how long, from where in which file, and what it is called."""
    for line in Path("/proc/self/maps").read_text(encoding="ascii", errors="replace").splitlines():
        if (match := _MAPPING.match(line)) is not None:
            start, end, at = (int(each, 16) for each in match.group(1, 2, 3))
            yield start, end - start, at, int(match[4]), match[5]
