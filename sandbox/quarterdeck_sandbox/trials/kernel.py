"""Try Landlock and a seccomp filter on a thread of ours, which ends confined: both bind one thread and its children."""

import errno
import os
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from quarterdeck_sandbox.backends.seccomp import ARCHITECTURES, Filter, compile_filter
from quarterdeck_sandbox.inside import landlock, prctl

_CLOSED: Final = Filter(inet=False, unix=False, shared_memory=False, reaches_out=False)
_POINTER_BITS: Final = 8 * struct.calcsize("P")


@dataclass(frozen=True, slots=True)
class Kernel:
    """What the thread found.

    Attributes:
        landlock_abi: the version that closed a directory to it; 0 if none did.
        seccomp: our filter was loaded, and refused a socket.
    """

    landlock_abi: int = 0
    seccomp: bool = False


def try_kernel(architecture: str) -> Kernel:
    """About a millisecond; every other thread stays as it is."""
    found = Kernel()

    def attempt() -> None:
        nonlocal found
        found = Kernel(_landlock(), _seccomp(architecture))

    thread = threading.Thread(target=attempt, name="quarterdeck-trial")
    thread.start()
    thread.join()
    return found


def _landlock() -> int:
    abi = landlock.abi()
    try:
        prctl.forbid_new_privileges()
        landlock.restrict([], [], [], deny_tcp=True)
    except OSError:
        return 0
    return abi if _errno(lambda: os.listdir("/")) == errno.EACCES else 0


def _seccomp(architecture: str) -> bool:
    # A 32-bit interpreter on a 64-bit kernel would be killed by the filter: its calls are another architecture's.
    if architecture not in ARCHITECTURES or _POINTER_BITS != 64:
        return False
    program = compile_filter(_CLOSED, architecture)
    try:
        prctl.forbid_new_privileges()
        prctl.load_seccomp(program)
    except OSError:
        return False
    return _errno(lambda: socket.socket(socket.AF_UNIX).close()) == errno.EPERM


def _errno(attempt: Callable[[], object]) -> int:
    try:
        attempt()
    except OSError as error:
        return error.errno or -1
    return 0
