"""Looks at the machine: processes, exact memory, files; what is hostile in them is bounded."""

import os
from typing import Final

import psutil
import pytest
from support.processes.running import pid_of_nobody, python_child

from quarterdeck_sandbox.policy.limits import DiskUse, Process
from quarterdeck_sandbox.run import processes
from quarterdeck_sandbox.run.processes import exact_memory, scan, tmpfs_use, waited_s


def test_a_scan_finds_us_as_we_are() -> None:
    """Limits would be judged by somebody else's numbers."""
    found, told = scan()[os.getpid()], psutil.Process()
    assert (found.pid, found.parent) == (os.getpid(), os.getppid())
    assert found.threads == told.num_threads()
    assert found.rss_bytes == pytest.approx(told.memory_info().rss, rel=0.2)
    assert 0 < found.cpu_s <= sum(psutil.Process().cpu_times()[:2]) + 0.01
    assert scan()[os.getpid()].started == found.started


@pytest.mark.process
def test_a_scan_goes_on_when_processes_vanish_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process that ends at the wrong moment would stop the monitor of all."""
    listed = [str(pid_of_nobody()), "self", "net", str(os.getpid())]
    monkeypatch.setattr(os, "listdir", lambda _: listed)
    assert list(scan()) == [os.getpid()]


@pytest.mark.parametrize("name", [b"(sh)", b"(a) R 1 (b)", b"()) 7 )", b"(\xff\n)"])
def test_a_process_cannot_lie_by_its_name(name: bytes) -> None:
    """A server named `x) S 1` would leave its tree, and its limits with it."""
    rest = b" S 42 1 1 0 -1 0 0 0 0 0 150 50 25 75 20 0 3 0 1000 0 10 " + b"0 " * 20
    found = processes._parse(7, b"7 " + name + rest)
    assert found == Process(
        7, 42, 1000 / processes._TICKS, 10 * processes._PAGE, 3, 200 / processes._TICKS, 100 / processes._TICKS
    )


@pytest.mark.parametrize(("line", "state"), [(b"7 (bwrap) S) R 6 6 6 0 -1\n", b"R"), (b"", b"")])
def test_the_state_of_a_process_is_read_behind_its_name(
    line: bytes, state: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "read_proc", lambda *_: line)
    assert processes.state_of(7) == state


def test_a_process_that_is_gone_has_no_state() -> None:
    assert processes.state_of(2**30) == b""


@pytest.mark.process
def test_pages_that_processes_share_count_once() -> None:
    """Forks of one interpreter would each be charged with all of it."""
    script = (
        "import os, sys; held = bytearray(b'x' * (64 << 20))\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0: os.read(0, 1); os._exit(0)\n"
        "print('ready', flush=True); os.read(0, 1)"
    )
    with python_child(script) as child:
        assert child.read_line() == b"ready"
        pids = [child.process.pid, *(each.pid for each in psutil.Process(child.process.pid).children())]
        if not os.access(f"/proc/{pids[0]}/smaps_rollup", os.R_OK):
            pytest.skip("the kernel tells no proportional sizes")
        exact, resident = exact_memory(pids), sum(psutil.Process(pid).memory_info().rss for pid in pids)
        assert 64 << 20 <= exact.own_bytes < 160 << 20
        assert resident > 2 * exact.own_bytes


def test_a_process_that_may_not_be_looked_into_counts_with_what_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would weigh nothing, and nothing would hold it."""

    def refused(path: str, *args: object) -> object:
        if path.endswith("smaps_rollup"):
            raise PermissionError
        return original(path, *args)  # type: ignore[call-overload]

    original = open
    monkeypatch.setattr("builtins.open", refused)
    assert exact_memory([os.getpid()]).own_bytes > 1 << 20
    assert exact_memory([2**22 + 1]).own_bytes == 0


def test_what_a_tmpfs_holds_is_seen_below_a_process_root() -> None:
    """Files in memory would count for nothing."""
    if not any(part.mountpoint == "/dev/shm" for part in psutil.disk_partitions(all=True)):
        pytest.skip("/dev/shm is no mount here")
    here = os.getpid()
    before = tmpfs_use(here, ["/dev/shm", "/dev/shm", "/gone"])
    told = os.statvfs("/dev/shm")
    assert before.size_bytes == pytest.approx((told.f_blocks - told.f_bfree) * told.f_frsize, abs=64 << 20)
    assert tmpfs_use(2**22 + 1, ["/dev/shm"]) == DiskUse()


def test_the_time_without_a_processor_is_told_of_those_that_are_there() -> None:
    """A busy machine would look like a dead worker, or a dead worker would end the loop that asks."""
    assert waited_s(os.getpid()) > 0.0 or not os.path.exists("/proc/self/schedstat")
    assert waited_s(2**22 + 1) == 0.0


# Memory that hides from every figure of the process that holds it

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


@pytest.mark.process
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


@pytest.mark.process
def test_page_tables_count_as_memory() -> None:
    """A server could fill the machine with tables of pages that it does not have."""
    with python_child(LOOKS_AT_NOTHING) as child:
        child.read_line()
        seen, exact = scan()[child.pid], exact_memory([child.pid])
    assert seen.rss_bytes > 32 << 20
    assert exact.own_bytes > 32 << 20
