"""Report facts from inside the sandbox just before the program starts; the owner judges them.

Every probe tries something that the program could try.  Nothing is changed: what is opened is never written.
"""

import _socket
import os

TYPE_CHECKING = False  # the typing module costs more than an interpreter's start
if TYPE_CHECKING:
    from typing import Any

STATUS_FIELDS = ("NoNewPrivs", "Seccomp", "CapPrm", "CapEff", "Uid", "Gid")
NAMESPACES = ("mnt", "pid", "net", "ipc", "uts", "user", "cgroup")

AF_PACKET = 17
AF_VSOCK = 40


def observe(task: "dict[str, Any]") -> list[tuple[str, object]]:
    """What can be seen and done from inside, as (key, value) pairs.

    Args:
        task: `owner` a process id outside, `secrets` paths that must not open, `fixed` directories that must not take
            a new file.
    """
    facts: list[tuple[str, object]] = [("pid", os.getpid())]
    facts += _status()
    facts += [(f"ns.{name}", _link(f"/proc/self/ns/{name}")) for name in NAMESPACES]
    facts += [("opened", path) for path in task["secrets"] if _opens(path)]
    facts += [("writable", path) for path in task["fixed"] if os.access(path, os.W_OK)]
    facts.append(("signals_owner", int(_may_signal(task["owner"]))))
    facts.append(("holds_first", int(_may_write(f"/proc/{os.getppid()}/mem"))))
    facts.append(("sees_owner", int(os.path.exists(f"/proc/{task['owner']}"))))
    facts += [(f"socket.{name}", int(_has_socket(family))) for name, family in _FAMILIES]
    facts += _limits(task["rlimits"])
    return facts


_FAMILIES = (
    ("inet", _socket.AF_INET),
    ("unix", _socket.AF_UNIX),
    ("packet", AF_PACKET),
    ("vsock", AF_VSOCK),
)


def _status() -> list[tuple[str, object]]:
    try:
        with open("/proc/self/status") as status:
            lines = status.read().split("\n")
    except OSError:
        return []
    pairs = (line.partition(":\t") for line in lines)
    return [(f"status.{key}", value.split("\t")[0]) for key, _, value in pairs if key in STATUS_FIELDS]


def _limits(numbers: list[int]) -> list[tuple[str, object]]:
    import resource

    return [(f"rlimit.{number}", resource.getrlimit(number)[0]) for number in numbers]


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _opens(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def _may_write(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError:
        return False
    return True


def _may_signal(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _has_socket(family: int) -> bool:
    try:
        _socket.socket(family, _socket.SOCK_DGRAM).close()
    except OSError:
        return False
    return True
