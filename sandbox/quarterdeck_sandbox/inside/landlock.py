"""Landlock: a process gives up all files, ports and signals but those that it names, for itself and its children.

Three system calls, numbered alike on every architecture.  What the running kernel's version of it cannot rule stays
allowed: changing the mode, times and attributes of one's own files, looking at metadata, UDP, and before version 9
(Linux 7.1) connecting to Unix sockets that have a path.  Seccomp closes what it can of that.
Source: https://docs.kernel.org/userspace-api/landlock.html
"""

import os
import stat
import struct
import sys

TYPE_CHECKING = False  # the typing module costs more than an interpreter's start
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

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


def abi() -> int:
    """The kernel's version of Landlock; 0 where there is none, or it is switched off."""
    if sys.platform != "linux":
        return 0
    try:
        return _call(CREATE_RULESET, None, 0, CREATE_RULESET_VERSION)
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
    version = _call(CREATE_RULESET, None, 0, CREATE_RULESET_VERSION)
    handled = (1 << RIGHTS_BY_ABI[min(version, len(RIGHTS_BY_ABI) - 1)]) - 1
    attributes = struct.pack("=Q", handled)
    if version >= TCP_SINCE:
        attributes += struct.pack("=Q", TCP if deny_tcp else 0)
    if version >= SCOPES_SINCE:
        attributes += struct.pack("=Q", SCOPES)
    ruleset = _call(CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for paths, rights in ((read, READ), (write, WRITE), (devices, DEVICE)):
            for path in paths:
                _allow(ruleset, path, rights & handled)
        _call(RESTRICT_SELF, ruleset, 0)
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
    has_scopes = _call(CREATE_RULESET, None, 0, CREATE_RULESET_VERSION) >= SCOPES_SINCE
    # A ruleset must handle something, and one that handles files takes this right unless it is given back.
    handled = REFER if with_files or not has_scopes else 0
    attributes = struct.pack("=QQQ", handled, 0, SCOPE_SIGNALS) if has_scopes else struct.pack("=Q", handled)
    ruleset = _call(CREATE_RULESET, attributes, len(attributes), 0)
    try:
        if handled:
            _allow(ruleset, "/", REFER)
        _call(RESTRICT_SELF, ruleset, 0)
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
        _call(ADD_RULE, ruleset, RULE_PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)


def _call(number: int, *arguments: int | bytes | None) -> int:
    global _libc
    import ctypes

    if _libc is None:
        _libc = ctypes.CDLL(None, use_errno=True)
        _libc.syscall.restype = ctypes.c_long
    # Variadic in C: an int must be passed as a whole register.
    whole = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result: int = _libc.syscall(ctypes.c_long(number), *whole)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock: {os.strerror(error)}")
    return result
