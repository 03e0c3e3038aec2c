"""Memory that hides from every figure of the process that holds it."""

from typing import Final

import pytest
from support.processes.running import python_child

from quarterdeck_sandbox.run import processes
from quarterdeck_sandbox.run.processes import exact_memory, scan

pytestmark = pytest.mark.process

HELD: Final = 64 << 20

LETS_GO: Final = f"""
import mmap, os
held = mmap.mmap(-1, {HELD})
for at in range(0, {HELD}, 4096): held[at] = 1
held.madvise(mmap.MADV_DONTNEED)
print("ready", flush=True); os.read(0, 1)
"""

LOOKS_AT_NOTHING: Final = """
import ctypes, mmap, os
libc = ctypes.CDLL(None)
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_size_t] * 6
libc.madvise.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
size = 16 << 30
place = libc.mmap(0, size, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, 2**64 - 1, 0)
libc.madvise(place, size, 15)
seen = ctypes.cast(place, ctypes.POINTER(ctypes.c_char))
for at in range(0, size, 2 << 20): seen[at]
print("ready", flush=True); os.read(0, 1)
"""
"""Huge pages are switched off: with them one page would do for 2 MiB."""


@pytest.mark.parametrize("may_look", [True, False])
def test_shared_memory_that_was_let_go_of_is_still_held(monkeypatch: pytest.MonkeyPatch, may_look: bool) -> None:
    """A server could take all of the machine's memory under any limit, and seem to have nothing."""

    def refuse(pid: int) -> dict[bytes, int]:
        raise PermissionError(pid)

    if not may_look:
        monkeypatch.setattr(processes, "shared_mappings", refuse)
    with python_child(LETS_GO) as child:
        child.read_line()
        seen, exact = scan()[child.pid], exact_memory([child.pid])
    assert seen.rss_bytes < HELD <= seen.unseen_bytes
    assert exact.own_bytes < HELD <= exact.shared_bytes


def test_page_tables_count_as_memory() -> None:
    """A server could fill the machine with tables of pages that it does not have."""
    with python_child(LOOKS_AT_NOTHING) as child:
        child.read_line()
        seen, exact = scan()[child.pid], exact_memory([child.pid])
    assert seen.rss_bytes > 32 << 20
    assert exact.own_bytes > 32 << 20
