"""Kill, and see the end of, a process that is not our child: a worker is the zygote's."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress


class PidHandle:
    """A process that is not our child, by a descriptor that no later process of the same id can take over.

    Where a system has no such descriptors it is known by its id, and its end is not noticed.
    """

    def __init__(self, pid: int, on_end: Callable[[], None]) -> None:
        """`on_end` is called once, from the running loop, unless it is closed before; not for one that is gone."""
        self._pid = pid
        self._fd = -1
        self._is_gone = False
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        if hasattr(os, "pidfd_open"):
            try:
                self._fd = os.pidfd_open(pid)
            except ProcessLookupError:
                self._is_gone = True
                return
            self._loop.add_reader(self._fd, self._see_end)

    def kill(self) -> None:
        """Kill that very process."""
        with suppress(ProcessLookupError):
            if self._fd >= 0:
                signal.pidfd_send_signal(self._fd, signal.SIGKILL)
            elif not self._is_gone:
                os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """Give the descriptor back: the process is gone.  Repeatable; a `kill` does nothing from here on."""
        self._is_gone = True
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _see_end(self) -> None:
        # The descriptor stays: until the process is waited for, its id is its own, and a kill harms no other.
        self._loop.remove_reader(self._fd)
        self._on_end()
