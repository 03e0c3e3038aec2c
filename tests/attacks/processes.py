"""Looking into other processes, stopping them, and changing how they run."""

import ctypes
import fcntl
import os
import resource
import signal
import socket
import time
from pathlib import Path

from arena import TARGETS, Held, attack, call, first_of, libc, require, syscall

VICTIM = TARGETS.victim.pid if hasattr(TARGETS, "victim") else 0
PTRACE_ATTACH, PTRACE_SEIZE, PTRACE_DETACH = 16, 0x4206, 17


def keepers() -> list[int]:
    """Those who started us, up to the first that we cannot see; the process that runs the attacks is not among them."""
    found, pid = [], os.getppid()
    while True:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return found
        if pid < 1 or len(found) > 20:
            return found
        found.append(pid)


@attack
def kill_victim() -> str:
    """Another program of the same user, as any program of hers may."""
    return first_of(
        lambda: f"sent {os.kill(VICTIM, signal.SIGUSR1)}",
        lambda: f"sent {call('sigqueue', VICTIM, signal.SIGUSR1, ctypes.c_void_p(1))}",
        lambda: f"sent {call('tgkill', VICTIM, VICTIM, signal.SIGUSR1)}",
    )


@attack
def kill_by_descriptor() -> str:
    """The same by a descriptor of the process."""
    signal.pidfd_send_signal(os.pidfd_open(VICTIM), signal.SIGUSR1)
    return "signalled by descriptor"


@attack
def kill_by_socket() -> str:
    """Have the kernel send it: data on a socket that another process is said to own."""
    mine, peer = socket.socketpair()
    fcntl.fcntl(mine, fcntl.F_SETOWN, VICTIM)
    fcntl.fcntl(mine, 10, signal.SIGUSR1)  # F_SETSIG
    fcntl.fcntl(mine, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    peer.send(b"x")
    # Only the victim knows whether it came; the one outside asks it too.
    for _ in range(30):
        if os.path.exists(TARGETS.victim.signalled_file):
            return "the victim was signalled"
        time.sleep(0.01)
    raise Held("no signal came")


@attack
def kill_keepers() -> str:
    """Whoever watches over us."""

    def stop(pid: int) -> str:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.05)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        os.kill(pid, signal.SIGCONT)
        require(state in "Tt", f"{pid} runs on")
        return f"stopped {pid}"

    return first_of(*(lambda pid=pid: stop(pid) for pid in keepers()))


@attack
def trace_victim() -> str:
    """A debugger's rights over a program of the same user."""

    def trace(request: int) -> str:
        call("ptrace", request, VICTIM, None, None)
        libc.ptrace(PTRACE_DETACH, VICTIM, None, None)
        return "traced the victim"

    return first_of(lambda: trace(PTRACE_SEIZE), lambda: trace(PTRACE_ATTACH))


@attack
def trace_keepers() -> str:
    """The same over whoever watches over us."""

    def trace(pid: int) -> str:
        call("ptrace", PTRACE_SEIZE, pid, None, None)
        return f"traced {pid}"

    return first_of(*(lambda pid=pid: trace(pid) for pid in [*keepers(), 1]))


@attack
def trace_own_child() -> str:
    """Tracing at all: much of the kernel that no server needs."""
    pid = os.fork()
    if pid == 0:
        time.sleep(5)
        os._exit(0)
    try:
        call("ptrace", PTRACE_SEIZE, pid, None, None)
        return "may trace"
    finally:
        os.kill(pid, signal.SIGKILL)


class _Span(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@attack
def read_memory() -> str:
    """The victim's secret where it keeps it."""
    size = len(TARGETS.secret)
    buffer = ctypes.create_string_buffer(size)
    mine, theirs = _Span(ctypes.addressof(buffer), size), _Span(TARGETS.victim.address, size)
    call("process_vm_readv", VICTIM, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
    require(buffer.raw == TARGETS.secret.encode(), "something else is there")
    return "the secret, from memory"


@attack
def read_memory_file() -> str:
    """The same through /proc."""
    with open(f"/proc/{VICTIM}/mem", "rb", buffering=0) as memory:
        memory.seek(TARGETS.victim.address)
        require(memory.read(len(TARGETS.secret)) == TARGETS.secret.encode(), "something else is there")
    return "the secret, from /proc/PID/mem"


@attack
def read_keepers_memory() -> str:
    """The memory of whoever watches over us."""

    def look(pid: int) -> str:
        with open(f"/proc/{pid}/mem", "r+b", buffering=0):
            return f"the memory of {pid} is open for writing"

    return first_of(*(lambda pid=pid: look(pid) for pid in keepers()))


@attack
def read_environments() -> str:
    """The variables of every process there is."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = Path(f"/proc/{name}/environ").read_text(errors="replace")
        except OSError:
            continue
        if TARGETS.secret in text or TARGETS.environment_secret in text:
            return f"the secret, from /proc/{name}/environ"
    raise Held("in no environment that can be read")


@attack
def list_processes() -> str:
    """The command lines of every process there is."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if TARGETS.victim.marker in Path(f"/proc/{name}/cmdline").read_text(errors="replace"):
                return f"the victim's command line, from /proc/{name}"
        except OSError:
            continue
    raise Held("it is not listed")


@attack
def read_open_files() -> str:
    """A file that the victim holds open and that has no name any more."""
    for name in os.listdir(f"/proc/{VICTIM}/fd"):
        try:
            # Some are pipes: whoever may open one would wait for what nobody writes.
            with open(os.open(f"/proc/{VICTIM}/fd/{name}", os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
                found = file.read(len(TARGETS.secret)) or b""
            if TARGETS.secret in found.decode(errors="replace"):
                return "the secret, from a descriptor of the victim"
        except OSError:
            continue
    raise Held("in none that can be read")


@attack
def steal_descriptor() -> str:
    """The same by taking the descriptor over."""
    fd = syscall("pidfd_getfd", os.pidfd_open(VICTIM), TARGETS.victim.fd, 0)
    require(TARGETS.secret in os.pread(fd, 100, 0).decode(errors="replace"), "it holds something else")
    return "the secret, from a stolen descriptor"


@attack
def compare_objects() -> str:
    """Which kernel objects two processes share."""
    return f"compared: {syscall('kcmp', os.getpid(), os.getppid(), 0, 0, 1)}"


@attack
def limit_victim() -> str:
    """Strangle it by its own limits."""
    soft, hard = resource.prlimit(VICTIM, resource.RLIMIT_NOFILE)
    resource.prlimit(VICTIM, resource.RLIMIT_NOFILE, (soft, hard))
    return "may set the victim's limits"


@attack
def limit_keepers() -> str:
    """The same to whoever watches over us."""

    def strangle(pid: int) -> str:
        resource.prlimit(pid, resource.RLIMIT_NPROC, resource.prlimit(pid, resource.RLIMIT_NPROC))
        return f"may set the limits of {pid}"

    return first_of(*(lambda pid=pid: strangle(pid) for pid in keepers()))


@attack
def renice_victim() -> str:
    """Let it have what nobody else wants."""
    return first_of(
        lambda: f"reniced {os.setpriority(os.PRIO_PROCESS, VICTIM, 15)}",
        lambda: f"idled {syscall('ioprio_set', 1, VICTIM, 3 << 13)}",
    )


@attack
def renice_user() -> str:
    """The same to all processes of the user at once, and of the group."""

    def renice(kind: int, number: int) -> str:
        os.setpriority(kind, number, 15)
        # In a process namespace it succeeds for whoever is in there.
        require(os.getpriority(os.PRIO_PROCESS, VICTIM) == 15, "only our own")
        return "reniced the victim among others"

    return first_of(
        lambda: renice(os.PRIO_USER, TARGETS.victim.uid), lambda: renice(os.PRIO_PGRP, TARGETS.victim.group)
    )


@attack
def pin_victim() -> str:
    """Put it on one processor and keep that busy."""
    os.sched_setaffinity(VICTIM, {0})
    return "pinned the victim"


@attack
def reschedule_victim() -> str:
    """Have it run only when nothing else does."""
    os.sched_setscheduler(VICTIM, os.SCHED_IDLE, os.sched_param(0))
    return "idled the victim"


@attack
def offer_victim_to_oom() -> str:
    """When memory is short, it goes first."""
    Path(f"/proc/{VICTIM}/oom_score_adj").write_text("1000")
    return "the victim goes first"


@attack
def move_pages_of_victim() -> str:
    """Ask where its memory lies."""
    status, page = ctypes.c_int(), ctypes.c_void_p(TARGETS.victim.address & ~4095)
    syscall("move_pages", VICTIM, 1, ctypes.byref(page), None, ctypes.byref(status), 0)
    return f"its page is on node {status.value}"


@attack
def enter_namespaces() -> str:
    """Be where the victim is."""
    kinds = ("mnt", "net", "pid", "ipc", "uts", "user")
    doors = [f"/proc/{pid}/ns/{kind}" for pid in (VICTIM, *keepers()) for kind in kinds]

    def enter(door: str) -> str:
        here = f"/proc/self/ns/{door.rpartition('/')[2]}"
        require(os.readlink(door) != os.readlink(here), "the same as ours")
        call("setns", os.open(door, os.O_RDONLY), 0)
        return f"entered {door}"

    return first_of(*(lambda door=door: enter(door) for door in doors), lambda: _enter_by_descriptor(VICTIM))


def _enter_by_descriptor(pid: int) -> str:
    call("setns", os.pidfd_open(pid), 0x20000 | 0x40000000)
    return "entered all of the victim's namespaces"
