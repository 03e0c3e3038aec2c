"""The kernel's rarer doors: namespaces, mounts, tracing machinery, other system call tables, more rights."""

import ctypes
import fcntl
import mmap
import os
import platform
import pty
import signal
import struct
import subprocess
import tempfile

from arena import TARGETS, Held, attack, call, first_of, libc, require, syscall

NAMESPACES = {
    "user": 0x10000000,
    "mount": 0x00020000,
    "pid": 0x20000000,
    "net": 0x40000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "cgroup": 0x02000000,
}
TIOCSTI, TIOCSETD, TIOCLINUX = 0x5412, 0x5423, 0x541C


@attack
def unshare_user() -> str:
    """A user namespace: root's rights over much of the kernel's rarely tried code."""
    return f"a user namespace {call('unshare', NAMESPACES['user'])}"


@attack
def unshare_others() -> str:
    """Each of the other namespaces."""
    return first_of(*(lambda flag=flag: f"unshared {call('unshare', flag)}" for flag in NAMESPACES.values()))


@attack
def clone_into_user() -> str:
    """The same by the newest system call, whose flags no filter can read."""
    arguments = struct.pack("=11Q", NAMESPACES["user"], 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0)
    pid = syscall("clone3", arguments, len(arguments))
    if pid == 0:
        os._exit(0)
    return f"a child in a user namespace {pid}"


@attack
def nest_a_sandbox() -> str:
    """The same by programs that make namespaces for a living."""

    def run(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        require(done.returncode == 0, done.stderr.strip()[-80:])
        return f"{command[0]} works"

    return first_of(
        lambda: run("unshare", "--user", "--map-root-user", "true"),
        lambda: run("bwrap", "--unshare-user", "--ro-bind", "/", "/", "true"),
    )


@attack
def mount() -> str:
    """Something over something, the old way."""
    folder = tempfile.mkdtemp().encode()
    return first_of(
        lambda: f"mounted {call('mount', b'none', folder, b'tmpfs', 0, None)}",
        lambda: f"bound {call('mount', b'/', folder, None, 4096, None)}",
        lambda: f"remounted {call('mount', None, b'/', None, 32 | 4096, None)}",
        lambda: f"unmounted {call('umount2', b'/tmp', 2)}",
    )


@attack
def mount_anew() -> str:
    """The same the new way, which old filters do not know."""
    return first_of(
        lambda: f"a filesystem {syscall('fsopen', b'tmpfs', 0)}",
        lambda: f"a tree {syscall('open_tree', -100, b'/', 1)}",
    )


@attack
def mount_in_namespace() -> str:
    """The same with the rights of a namespace of our own."""
    call("unshare", NAMESPACES["user"] | NAMESPACES["mount"])
    return f"mounted {call('mount', b'none', tempfile.mkdtemp().encode(), b'tmpfs', 0, None)}"


@attack
def leave_root() -> str:
    """Out of a changed root by changing it again, and out of a mount namespace by pivoting."""
    folder = tempfile.mkdtemp()

    def chroot() -> str:
        os.chroot(folder)
        return "changed the root"

    return first_of(chroot, lambda: f"pivoted {call('pivot_root', folder.encode(), folder.encode())}")


@attack
def io_uring() -> str:
    """System calls that no filter sees."""
    return f"a ring {syscall('io_uring_setup', 4, bytes(120))}"


@attack
def performance_counters() -> str:
    """What else runs on the processor; the source of many kernel bugs."""
    event = struct.pack("=IIQQQQQ", 1, 112, 1, 0, 0, 0, 1 << 5 | 1 << 6) + bytes(64)
    return f"a counter {syscall('perf_event_open', event, 0, -1, -1, 0)}"


@attack
def user_faults() -> str:
    """Stop the kernel in the middle of a copy."""
    return first_of(lambda: f"{syscall('userfaultfd', 0)}", lambda: f"{syscall('userfaultfd', 1)}")


@attack
def load_bpf() -> str:
    """A program into the kernel."""
    return first_of(
        lambda: f"a map {syscall('bpf', 0, struct.pack('=IIIII', 1, 4, 4, 1, 0) + bytes(100), 120)}",
        lambda: f"a program {syscall('bpf', 5, bytes(120), 120)}",
    )


@attack
def load_module() -> str:
    """Code into the kernel."""
    return first_of(
        lambda: f"{syscall('init_module', bytes(16), 16, b'')}", lambda: f"{syscall('kexec_load', 0, 0, None, 0)}"
    )


@attack
def secret_memory() -> str:
    """Memory that not even the kernel can see, let alone count."""
    return f"secret memory {syscall('memfd_secret', 0)}"


@attack
def read_kernel_log() -> str:
    """Addresses, and what other programs did wrong."""
    buffer = ctypes.create_string_buffer(4096)
    return f"{call('klogctl', 3, buffer, 4096)} bytes of the log"


@attack
def manage_machine() -> str:
    """What only an administrator does: clock, name, swap, accounting, quotas, reboot."""
    now = struct.pack("=qq", *map(int, divmod(int(TARGETS.now_ns), 10**9)))
    return first_of(
        lambda: f"name {call('sethostname', b'attacked', 8)}",
        lambda: f"clock {call('clock_settime', 0, now)}",
        lambda: f"swap {call('swapon', b'/nowhere', 0)}",
        lambda: f"accounts {call('acct', None)}",
        lambda: f"watch all {call('fanotify_init', 0, 0)}",
        # Wrong magic numbers: the right to reboot is tried, and nothing else.
        lambda: _only_refused_for(22, "reboot", 1),
    )


def _only_refused_for(number: int, function: str, *arguments: int) -> str:
    try:
        call(function, *arguments)
    except OSError as error:
        if error.errno != number:
            raise
    return f"may {function}"


@attack
def touch_ports() -> str:
    """The hardware itself."""
    require(platform.machine() == "x86_64", "no such system call here")
    return first_of(lambda: f"{call('iopl', 3)}", lambda: f"{call('ioperm', 0x80, 1, 1)}")


@attack
def push_keys() -> str:
    """Type into the terminal of whoever started us."""
    leader, follower = pty.openpty()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        fcntl.ioctl(follower, 0x540E, 0)  # TIOCSCTTY
        for request, argument in ((TIOCSTI, b"x"), (TIOCSTI | 1 << 32, b"x"), (TIOCLINUX, b"\x02")):
            pushed = libc.ioctl(follower, ctypes.c_ulong(request), argument) == 0
            if pushed:
                os._exit(17)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    os.close(leader)
    require(os.waitstatus_to_exitcode(status) == 17, "the terminal takes no keys")
    return "typed a key"


@attack
def terminal_disciplines() -> str:
    """Line disciplines: old code, loaded on demand."""
    _, follower = pty.openpty()
    for number in (2, 3, 5, 7, 13, 15, 16, 21, 25):
        if libc.ioctl(follower, TIOCSETD, ctypes.byref(ctypes.c_int(number))) == 0:
            return f"line discipline {number}"
    raise Held("no line discipline but the plain one")


@attack
def own_terminal() -> str:
    """The terminal of whoever started us."""
    os.close(os.open("/dev/tty", os.O_RDWR))
    return "opened the controlling terminal"


def _run_machine_code(code: bytes) -> int:
    """What it returns; in a child, because it may be fatal.

    Raises:
        Held: it was.
    """
    require(platform.machine() == "x86_64", "no such system call table here")
    pid = os.fork()
    if pid == 0:
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        function = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        os._exit(1 if function() > 0 else 0)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        raise Held(f"killed by {signal.Signals(os.WTERMSIG(status)).name}")
    return os.WEXITSTATUS(status)


@attack
def compatible_calls() -> str:
    """The 32-bit table, in which every system call has another number: getpid is 20."""
    code = b"\x53\xb8\x14\x00\x00\x00\xcd\x80\x48\x98\x5b\xc3"  # push rbx; mov eax,20; int 0x80; cdqe; pop rbx; ret
    require(_run_machine_code(code), "refused")
    return "a system call of the 32-bit table"


@attack
def x32_calls() -> str:
    """The third table: getpid is 39, with a high bit."""
    require(_run_machine_code(b"\xb8\x27\x00\x00\x40\x0f\x05\xc3"), "refused")  # mov eax,0x40000027; syscall; ret
    return "a system call of the x32 table"
