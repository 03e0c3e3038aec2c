"""Try Landlock and system call filters on a thread of ours, which ends confined, to see what the gate can rely on.

The gate confines what is started (`native/confine.c`).  Calls here act on the calling thread alone, and raise OSError
where the kernel refuses.  Source: https://docs.kernel.org/userspace-api/landlock.html
"""

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from msgspec.structs import replace

from quarterdeck_sandbox.policy.seccomp import ARCHITECTURES, NUMBERS, SECCOMP, Filter, Metadata, compile_filter
from quarterdeck_sandbox.run.process_settings import LIBC, control_process

_SET_SECCOMP: Final = 22
_SET_NO_NEW_PRIVS: Final = 38
_MODE_FILTER: Final = 2
_SET_MODE_FILTER: Final = 1
_NEW_LISTENER: Final = 1 << 3
_INSTRUCTION_BYTES: Final = 8
_CREATE_RULESET: Final = 444
_RESTRICT_SELF: Final = 446
_RULESET_VERSION: Final = 1
_RIGHTS_OF_THE_FIRST: Final = (1 << 13) - 1  # the file rights of version 1 of Landlock
_CLOSED: Final = Filter(inet=False, unix=False, shared_memory=False, reaches_out=False)
_POINTER_BITS: Final = 8 * struct.calcsize("P")


def try_kernel(architecture: str) -> tuple[int, bool, bool]:
    """Return the version of Landlock that closed a directory (0: none), and whether our filter refuses, and can ask.

    Tried on a thread of ours, in about a millisecond; no other thread is confined.
    """
    with ThreadPoolExecutor(1, "quarterdeck-trial") as pool:
        # Each trial runs confined by the trials before; the last filter refuses calls that the second trial needs.
        landlock_abi, asks, filters = pool.submit(
            lambda: (_landlock(), _asks(architecture), _seccomp(architecture))
        ).result()
    return landlock_abi, filters, asks


def landlock_abi() -> int:
    """Return the kernel's version of Landlock; 0 if there is none, or it is switched off."""
    try:
        return _call(_CREATE_RULESET, None, 0, _RULESET_VERSION)
    except OSError:
        return 0


def load_seccomp(program: bytes) -> None:
    """Judge every later system call of this thread and its children by `program`, an array of `sock_filter`.

    What they execute gains no privileges from here on, which the kernel demands.
    """
    array = ctypes.create_string_buffer(program, len(program))
    head = ctypes.create_string_buffer(_head(array, program))
    control_process(_SET_NO_NEW_PRIVS, 1)
    control_process(_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(head))


def _landlock() -> int:
    abi = landlock_abi()
    try:
        control_process(_SET_NO_NEW_PRIVS, 1)
        attributes = struct.pack("=Q", _RIGHTS_OF_THE_FIRST)
        ruleset = _call(_CREATE_RULESET, attributes, len(attributes), 0)
        try:
            _call(_RESTRICT_SELF, ruleset, 0)
        finally:
            os.close(ruleset)
    except OSError:
        return 0
    return abi if _errno(lambda: os.listdir("/")) == errno.EACCES else 0


def _seccomp(architecture: str) -> bool:
    # A 32-bit interpreter on a 64-bit kernel would be killed by the filter: its calls are another architecture's.
    if architecture not in ARCHITECTURES or _POINTER_BITS != 64:
        return False
    program = compile_filter(_CLOSED, architecture)
    try:
        load_seccomp(program)
    except OSError:
        return False
    return _errno(lambda: socket.socket(socket.AF_UNIX).close()) == errno.EPERM


def _asks(architecture: str) -> bool:
    """Return whether a filter can ask, and a broker can read its caller; a container may forbid either."""
    if architecture not in ARCHITECTURES or _POINTER_BITS != 64:
        return False
    program = compile_filter(replace(_CLOSED, metadata=Metadata.ASKED), architecture)
    array = ctypes.create_string_buffer(program, len(program))
    place = struct.pack("@PL", ctypes.addressof(array), 1)
    try:
        _call(NUMBERS[architecture]["process_vm_readv"], os.getpid(), place, 1, place, 1, 0)
        os.close(_call(SECCOMP[architecture], _SET_MODE_FILTER, _NEW_LISTENER, _head(array, program)))
    except OSError:
        return False
    return True


def _head(array: "ctypes.Array[ctypes.c_char]", program: bytes) -> bytes:
    """Return the `sock_fprog` of a program in `array`."""
    return struct.pack("@HP", len(program) // _INSTRUCTION_BYTES, ctypes.addressof(array))


def _call(number: int, *arguments: int | bytes | None) -> int:
    # Variadic in C: an int must be passed as a whole register.
    whole = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = LIBC.syscall(ctypes.c_long(number), *whole)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


def _errno(attempt: Callable[[], object]) -> int:
    try:
        attempt()
    except OSError as error:
        return error.errno or -1
    return 0
