"""Memory of large results that were dropped goes back to the system."""

import platform
import sys
from types import SimpleNamespace

import pytest
from support.processes.running import python_output

from quarterdeck_sandbox.run import process_settings

GROW_AND_SHRINK = """
import sys
from quarterdeck_sandbox.run.process_settings import give_back_large_blocks
if sys.argv[1] == "fixed":
    assert give_back_large_blocks()
def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20
first = b"x" * (24 << 20)  # a large block that is freed once: from here on others of its size lie in the heap
del first
before = resident_mib()
large, small = [], []
for _ in range(20):
    large.append(b"x" * (8 << 20))
    small.append(b"x" * 5000)  # behind each of them something stays
del large
print(resident_mib() - before)
"""
"""What is left of 160 MiB."""


def left_mib(how: str) -> int:
    """What the program says."""
    return int(python_output(GROW_AND_SHRINK, how))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator is what is set")
def test_what_large_results_took_is_given_back_although_small_objects_follow_them() -> None:
    """A serve would stay as large as it was at its busiest moment."""
    assert left_mib("fixed") < 16
    assert left_mib("as it is") > 100  # else there is nothing to mend any more


def test_elsewhere_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A serve would not start on macOS, or on musl."""
    monkeypatch.setattr(process_settings.ctypes, "CDLL", lambda _: SimpleNamespace())
    assert not process_settings.give_back_large_blocks()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not process_settings.give_back_large_blocks()
