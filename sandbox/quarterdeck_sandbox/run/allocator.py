"""Have large blocks of memory given back to the system as soon as they are free (glibc; elsewhere nothing).

By itself glibc moves the size from which a block is mapped alone up to that of the largest block that was freed, at
most 32 MiB.  From then on a large result lies in the heap, and one small object behind it keeps all of it: after some
dozens of large results that were aborted a `serve` stayed at their peak.  Here the size is fixed.

Only for processes that are all ours: an embedding program's memory is its own.
"""

import ctypes
import sys
from typing import Final

ALONE_BYTES: Final = 128 * 1024
"""Blocks from this size on are mapped alone: glibc's own first choice."""

_M_MMAP_THRESHOLD: Final = -3


def give_back_large_blocks() -> bool:
    """Whether it is so from here on, in this process and its forks."""
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none, and needs none
    return mallopt is not None and mallopt(_M_MMAP_THRESHOLD, ALONE_BYTES) == 1
