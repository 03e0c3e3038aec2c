"""What a process asks of the kernel for itself, where Python has no function for it; Linux, elsewhere nothing happens.

Every function acts on the calling thread, and raises OSError when the kernel refuses.  ctypes is loaded by the first
call, so that a start that needs none of this does not pay for it.
"""

import sys

TYPE_CHECKING = False  # the typing module costs more than an interpreter's start
if TYPE_CHECKING:
    from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47

SECCOMP_MODE_FILTER = 2
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECUREBITS = 0b1110_1111
"""NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE, each with its lock, and KEEP_CAPS locked off."""

CAPABILITY_VERSION_3 = 0x20080522
LAST_CAPABILITY = 63
"""As many as the kernel's sets have bits; it says EINVAL for the first that it does not know."""

SIGKILL = 9
INSTRUCTION_BYTES = 8

_libc: "Any" = None


def forbid_new_privileges() -> None:
    """No program executed from here on gains anything, whatever its file says; needed before filters and Landlock."""
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def load_seccomp(program: bytes) -> None:
    """Judge every later system call of this thread and its children by `program`, an array of `sock_filter`."""
    if sys.platform != "linux":
        return
    import ctypes

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    array = Program(len(program) // INSTRUCTION_BYTES, program)
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(array))


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Be killed when the thread that started us ends; the caller checks that it had not ended before."""
    tell_end_of_parent(SIGKILL)


def tell_end_of_parent(number: int) -> None:
    """Get the signal `number` when the thread that started us ends; SIGCONT wakes one that is stopped."""
    _prctl(PR_SET_PDEATHSIG, number)


def set_process_name(name: bytes) -> None:
    """Be called `name`, of which the kernel keeps 15 bytes."""
    import ctypes

    text = ctypes.create_string_buffer(name)
    _prctl(PR_SET_NAME, ctypes.addressof(text))


def clear_ambient() -> None:
    """Keep no capability across an exec; those that this process holds stay until it changes its user."""
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)


def lock_securebits() -> None:
    """Have root's user id mean nothing for capabilities, for good: no exec gives it any."""
    if sys.platform != "linux":
        return
    try:
        _prctl(PR_SET_SECUREBITS, SECUREBITS)
    except PermissionError:
        pass  # without CAP_SETPCAP: then it is the forbidding of new privileges that no exec gets past


def clear_capabilities() -> None:
    """Give up every capability, and the possibility to gain one, for good."""
    if sys.platform != "linux":
        return
    import ctypes
    import errno

    clear_ambient()
    for capability in range(LAST_CAPABILITY + 1):
        try:
            _prctl(PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EPERM):
                raise
            break  # past the last one; or we may not, and then have nothing to gain from: no new privileges
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    if _library().capset(header, nothing) != 0:
        raise _error("capset")


def _prctl(option: int, *arguments: int) -> None:
    if sys.platform != "linux":
        return
    import ctypes

    # Variadic in C: each argument must be a whole register, and those that are not used zero.
    whole = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    if _library().prctl(option, *whole) != 0:
        raise _error(f"prctl {option}")


def load_library() -> None:
    """Load what every other function needs, while it can be read."""
    if sys.platform == "linux":
        _library()


def _library() -> "Any":
    global _libc
    if _libc is None:
        import ctypes

        _libc = ctypes.CDLL(None, use_errno=True)
    return _libc


def _error(what: str) -> OSError:
    import ctypes
    import os

    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")
