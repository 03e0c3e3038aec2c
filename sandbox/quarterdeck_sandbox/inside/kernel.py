"""What a process asks of the kernel for itself, where Python has no function for it: prctl(2), Landlock, bare calls.

Every function acts on the calling thread, and raises OSError when the kernel refuses; elsewhere than on Linux those of
prctl do nothing.  ctypes is loaded by the first call, so that a start that needs none of this does not pay for it.

Landlock: a process gives up all files, ports and signals but those that it names, for itself and its children.  What
the running kernel's version of it cannot rule stays allowed: changing the mode, times and attributes of one's own
files, looking at metadata, UDP, and before version 9 (Linux 7.1) connecting to Unix sockets that have a path.  Seccomp
closes what it can of that, and `native/broker.h` judges changes of metadata.  Source: https://docs.kernel.org/userspace-api/landlock.html
"""

import os
import stat
import struct
import sys

TYPE_CHECKING = False  # the typing module costs more than an interpreter's start
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47

SECCOMP_MODE_FILTER = 2
SECCOMP_SET_MODE_FILTER = 1
SECCOMP_NEW_LISTENER = 1 << 3
AT_FDCWD = -100
UTIME_OMIT = (1 << 30) - 2
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECUREBITS = 0b1110_1111
"""NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE, each with its lock, and KEEP_CAPS locked off."""

CAPABILITY_VERSION_3 = 0x20080522
LAST_CAPABILITY = 63
"""As many as the kernel's sets have bits; it says EINVAL for the first that it does not know."""

SIGKILL = 9
INSTRUCTION_BYTES = 8

CREATE_RULESET = 444
ADD_RULE = 445
RESTRICT_SELF = 446
CREATE_RULESET_VERSION = 1
RULE_PATH_BENEATH = 1

EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
MAKE_CHAR = 1 << 6
MAKE_BLOCK = 1 << 11
REFER = 1 << 13
TRUNCATE = 1 << 14
IOCTL_DEV = 1 << 15
RESOLVE_UNIX = 1 << 16

RIGHTS_BY_ABI = (0, 13, 14, 15, 15, 16, 16, 16, 16, 17)
"""How many rights on files each version knows, the lowest bits first; later ones are used as the last."""

READ = EXECUTE | READ_FILE | READ_DIR
WRITE = ((1 << 17) - 1) & ~(MAKE_CHAR | MAKE_BLOCK)
DEVICE = READ_FILE | WRITE_FILE | READ_DIR | TRUNCATE | IOCTL_DEV
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV | RESOLVE_UNIX
"""Those that a rule on something other than a directory may hold."""

TCP = 0b11
"""Binding and connecting; since version 4."""

SCOPES = 0b11
"""Abstract Unix sockets and signals reach only what is confined with us; since version 6."""

SCOPE_SIGNALS = 0b10

APART_SINCE = 2
"""Before, a ruleset forbade renaming from one directory to another, whatever it said."""

TCP_SINCE = 4
SCOPES_SINCE = 6

_libc: "Any" = None


def main(number: str, *argv: str) -> None:
    """Execute `argv` as a process that gets the signal `number` when the thread that started us ends."""
    tell_end_of_parent(int(number))
    os.execv(argv[0], argv)  # noqa: S606 - the whole point


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
    with open("/proc/self/comm", "wb", buffering=0) as file:
        file.write(name)


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
    check(library().capset(header, nothing), "capset: ")


def _prctl(option: int, *arguments: int) -> None:
    if sys.platform != "linux":
        return
    import ctypes

    # Variadic in C: each argument must be a whole register, and those that are not used zero.
    whole = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    check(library().prctl(option, *whole), f"prctl {option}: ")


def abi() -> int:
    """The kernel's version of Landlock; 0 where there is none, or it is switched off."""
    if sys.platform != "linux":
        return 0
    try:
        return _landlock(CREATE_RULESET, None, 0, CREATE_RULESET_VERSION)
    except OSError:
        return 0


def restrict(read: "Iterable[str]", write: "Iterable[str]", devices: "Iterable[str]", *, deny_tcp: bool) -> None:
    """Confine the calling thread and all its children to come, for good; new privileges must be forbidden already.

    Args:
        read: files and directories, with all beneath, that may be read and executed; missing ones are skipped.
        write: likewise, that may be changed too.
        devices: likewise, that may be opened both ways and controlled, but not replaced.
        deny_tcp: neither bind nor connect TCP sockets, where the kernel can say so.

    Raises:
        OSError: there is no Landlock here, or it refused.
    """
    version = _landlock(CREATE_RULESET, None, 0, CREATE_RULESET_VERSION)
    handled = (1 << RIGHTS_BY_ABI[min(version, len(RIGHTS_BY_ABI) - 1)]) - 1
    attributes = struct.pack("=Q", handled)
    if version >= TCP_SINCE:
        attributes += struct.pack("=Q", TCP if deny_tcp else 0)
    if version >= SCOPES_SINCE:
        attributes += struct.pack("=Q", SCOPES)
    ruleset = _landlock(CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for paths, rights in ((read, READ), (write, WRITE), (devices, DEVICE)):
            for path in paths:
                _allow(ruleset, path, rights & handled)
        _landlock(RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def set_apart(*, with_files: bool = False) -> None:
    """Give up nothing but the memory and the signals of processes outside: who is in a domain may trace only that.

    A process of the same user that is not confined like this, as bubblewrap's first one, could else be written to by
    `/proc/PID/mem` where Yama is off.

    Args:
        with_files: `restrict` will follow, here or below: a domain that says nothing of files then forbids renaming
            from one directory to another, which no later one can give back.  It also forbids mounting.

    Raises:
        OSError: there is no Landlock here of version `APART_SINCE`, or it refused.
    """
    has_scopes = _landlock(CREATE_RULESET, None, 0, CREATE_RULESET_VERSION) >= SCOPES_SINCE
    # A ruleset must handle something, and one that handles files takes this right unless it is given back.
    handled = REFER if with_files or not has_scopes else 0
    attributes = struct.pack("=QQQ", handled, 0, SCOPE_SIGNALS) if has_scopes else struct.pack("=Q", handled)
    ruleset = _landlock(CREATE_RULESET, attributes, len(attributes), 0)
    try:
        if handled:
            _allow(ruleset, "/", REFER)
        _landlock(RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # not there, or out of our reach: then nothing is lost
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= OF_FILES
        _landlock(ADD_RULE, ruleset, RULE_PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)


def _landlock(number: int, *arguments: int | bytes | None) -> int:
    return call(number, *arguments, what="Landlock: ")


def call(number: int, *arguments: int | bytes | None, what: str = "") -> int:
    """Make the system call `number`; its result, or an OSError whose text begins with `what`."""
    import ctypes

    # Variadic in C: an int must be passed as a whole register.
    whole = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return check(library().syscall(ctypes.c_long(number), *whole), what)


def listen_seccomp(program: bytes, number: int) -> int:
    """Load a filter that asks before some calls, by the system call `number`. Return the filter's listener."""
    import ctypes

    array = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HP", len(program) // INSTRUCTION_BYTES, ctypes.addressof(array))
    return call(number, SECCOMP_SET_MODE_FILTER, SECCOMP_NEW_LISTENER, head, what="seccomp: ")


def read_own_memory(number: int) -> None:
    """Read a byte of this process by the system call `number`, process_vm_readv."""
    import ctypes

    byte = ctypes.create_string_buffer(1)
    place = struct.pack("@PL", ctypes.addressof(byte), 1)
    call(number, os.getpid(), place, 1, place, 1, 0, what="process_vm_readv: ")


def leave_times(path: str) -> None:
    """Set the times of a file to their present values."""
    unchanged = struct.pack("@4l", 0, UTIME_OMIT, 0, UTIME_OMIT)
    check(library().utimensat(AT_FDCWD, os.fsencode(path), unchanged, 0), "utimensat: ")


def check(result: int, what: str = "", path: str | None = None) -> int:
    """`result`, or the OSError that a negative one stands for."""
    if result < 0:
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, what + os.strerror(number), path)
    return result


def library() -> "Any":
    """The C library; load it while it can be read."""
    global _libc
    if _libc is None:
        import ctypes

        _libc = ctypes.CDLL(None, use_errno=True)
        _libc.syscall.restype = ctypes.c_long
    return _libc
