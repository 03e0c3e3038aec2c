"""More rights than were given: root's, another user's, more than others' share."""

import os
import resource
import struct
import threading
from pathlib import Path

from arena import Held, attack, first_of, require, syscall


@attack
def become_root() -> str:
    """The plain way."""
    return first_of(
        lambda: f"{os.setuid(0)} root",
        lambda: f"{os.setgid(0)} root's group",
        lambda: f"{os.setgroups([0])} root's groups",
        lambda: f"{os.setresuid(-1, 61200, -1)} another sandbox's user",
    )


@attack
def hold_capabilities() -> str:
    """Any right of root's that was left to us."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    held = [name for name in ("CapInh", "CapPrm", "CapEff", "CapAmb") if int(status[name], 16)]
    require(held or os.getuid() == 0 or os.geteuid() == 0, "none, and not root")
    return f"user {os.getuid()} with {held}"


@attack
def supplementary_groups() -> str:
    """Groups of whoever started us: disk, docker, shadow."""
    extra = set(os.getgroups()) - {os.getgid(), 65534}
    require(extra or os.getgid() == 0, "none")
    return f"groups {sorted(extra)} and {os.getgid()}"


@attack
def gain_by_setuid() -> str:
    """Programs that give rights to whoever runs them."""
    require("NoNewPrivs:\t0" in Path("/proc/self/status").read_text(), "no new privileges")
    folders = ("/usr/bin", "/bin", "/usr/sbin", "/usr/lib/openssh")
    for folder in filter(os.path.isdir, folders):
        for entry in os.scandir(folder):
            if entry.is_file() and entry.stat().st_mode & 0o4000:
                return f"{entry.path} would make us root"
    raise Held("there are none")


@attack
def raise_limits() -> str:
    """Our own limits, up again."""

    def lift(name: str) -> str:
        number = getattr(resource, name)
        soft, hard = resource.getrlimit(number)
        if hard != resource.RLIM_INFINITY:
            try:
                resource.setrlimit(number, (soft, hard + 1))
            except ValueError as error:
                raise Held(f"{name}: {error}") from error
        return f"{name} is {resource.getrlimit(number)}"

    return first_of(*(lambda name=name: lift(name) for name in ("RLIMIT_NPROC", "RLIMIT_NOFILE", "RLIMIT_CORE")))


@attack
def realtime() -> str:
    """Ourselves before everybody else."""
    deadline = struct.pack("=IIQiIQQQ", 48, 6, 0, 0, 0, 10**7, 10**8, 10**8)
    return first_of(
        lambda: f"realtime {os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))}",
        lambda: f"nice {os.setpriority(os.PRIO_PROCESS, 0, -10)}",
        lambda: f"deadline {syscall('sched_setattr', 0, deadline, 0)}",
    )


@attack
def spare_from_oom() -> str:
    """Everybody else goes first when memory is short: as our owner may have it, for us and who keeps us."""
    processes = ("self", "thread-self", f"self/task/{threading.get_native_id()}", str(os.getppid()), "1")

    def lower(process: str) -> str:
        file = Path(f"/proc/{process}/oom_score_adj")
        file.write_text(str(int(file.read_text()) - 1))
        return f"lowered the score of {process}"

    return first_of(*(lambda process=process: lower(process) for process in processes))
