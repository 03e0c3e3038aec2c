"""Take the sockets that a service manager passes, as systemd does: descriptors 3 and up, described by `LISTEN_PID`,
`LISTEN_FDS` and `LISTEN_FDNAMES` (`sd_listen_fds(3)`).
"""

import os
import socket
import stat
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

FIRST_FD: Final = 3
MAX_SOCKETS: Final = 16
VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")

DOOR: Final = "door"
"""The name of the socket to which doors come."""

OWN_GROUP: Final = "supervisor"
"""The control group, below the service's, for the daemon itself: one that holds processes can limit no others."""


class ActivationError(ValueError):
    """The passed sockets are not those that `quarterdeck service install` sets up; the text says why."""


def take_sockets(environ: MutableMapping[str, str] = os.environ) -> dict[str, socket.socket]:
    """Return the listening sockets passed to this process, by name, and remove the variables; child processes inherit
    neither.

    Raise ActivationError if the variables are inconsistent, or a descriptor is not a listening socket.
    """
    pid, count, names = (environ.pop(name, "") for name in VARIABLES)
    if pid != str(os.getpid()):
        return {}  # handed to another process, which passed its environment on
    if not (count.isascii() and count.isdigit() and int(count) <= MAX_SOCKETS):
        raise ActivationError(f"LISTEN_FDS is {count[:20]!r}, not a number up to {MAX_SOCKETS}")
    named = names.split(":") if names else []
    if len(named) != int(count) or len(set(named)) != len(named):
        raise ActivationError(f"LISTEN_FDNAMES is {names[:200]!r}: {count} different names are needed")
    taken: dict[str, socket.socket] = {}
    try:
        for fd, name in enumerate(named, FIRST_FD):
            taken[name] = _listener(fd, name)
    except BaseException:
        for each in taken.values():
            each.close()
        raise
    return taken


def _listener(fd: int, name: str) -> socket.socket:
    try:
        os.set_inheritable(fd, False)  # noqa: FBT003 - takes no keyword
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            raise ActivationError(f"descriptor {fd} ({name}) is no socket")
    except OSError as error:
        raise ActivationError(f"descriptor {fd} ({name}) cannot be used: {error.strerror}") from None
    taken = socket.socket(fileno=fd)
    if taken.type == socket.SOCK_STREAM and taken.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return taken
    taken.detach()
    raise ActivationError(f"descriptor {fd} ({name}) is no stream socket that listens")


def leave_service_group(root: Path = Path("/sys/fs/cgroup"), process: Path = Path("/proc/self/cgroup")) -> None:
    """Move this process into a control group below its service's, which can then limit servers.

    As `DelegateSubgroup=` does, which systemd has only since 254. Do nothing without control groups of version 2, or if
    the service's group is not ours to change.
    """
    try:
        hierarchy, _, path = process.read_text().strip().rpartition("::")
        if hierarchy != "0" or not path.endswith(".service"):
            return
        group = root / path.lstrip("/") / OWN_GROUP
        group.mkdir(exist_ok=True)
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        return  # the sandbox tells what it can do without
