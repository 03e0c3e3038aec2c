"""Reading, writing and finding out about files outside."""

import ctypes
import os
import stat
import sys
import tempfile
import time
from pathlib import Path

from arena import TARGETS, Held, attack, call, first_of, require


def read(path: str | Path) -> str:
    """The secret, from `path`.

    Raises:
        Held: something else is there.
    """
    text = Path(path).read_text(errors="replace")
    require(TARGETS.secret in text, f"{path} holds something else")
    return f"the secret, from {path}"


@attack
def read_secret() -> str:
    """A file that everybody outside may read."""
    return read(TARGETS.secret_file)


@attack
def read_credentials() -> str:
    """The keys in the home of whoever started us."""
    return first_of(*(lambda path=path: read(path) for path in TARGETS.credentials))


@attack
def read_state_of_other_servers() -> str:
    """The private homes of other servers, and the supervisor's own state."""
    return first_of(*(lambda path=path: read(path) for path in TARGETS.state_files))


@attack
def list_outside() -> str:
    """The names in a folder that everybody outside may list."""
    return f"{len(os.listdir(TARGETS.folder))} names in {TARGETS.folder}"


@attack
def read_by_symlink() -> str:
    """A link of our own that points at the secret."""
    link = Path(tempfile.mkdtemp()) / "link"
    link.symlink_to(TARGETS.secret_file)
    return read(link)


@attack
def read_by_hardlink() -> str:
    """A second name for the secret, in a folder of our own; also across the folders outside."""

    def link_into(folder: str) -> str:
        name = Path(folder) / f"link{os.getpid()}"
        os.link(TARGETS.owned_file, name)
        return read(name)

    return first_of(lambda: link_into(tempfile.mkdtemp()), lambda: link_into(TARGETS.folder))


@attack
def read_through_proc() -> str:
    """The root and working directories of processes that see more than we do."""
    pids = {1, os.getppid(), TARGETS.victim.pid, *_ancestors()}
    doors = [f"/proc/{pid}/{door}" for pid in pids for door in ("root", "cwd")]
    return first_of(*(lambda door=door: read(f"{door}{TARGETS.secret_file}") for door in doors))


@attack
def read_by_climbing() -> str:
    """More `..` than the root has."""
    return first_of(
        lambda: read("../" * 40 + TARGETS.secret_file.lstrip("/")),
        lambda: read("/proc/self/root" + "/.." * 10 + TARGETS.secret_file),
    )


def _ancestors() -> list[int]:
    found, pid = [], os.getppid()
    while pid > 1 and len(found) < 20:
        found.append(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return found


@attack
def write_outside() -> str:
    """A file that everybody outside may write."""
    with open(TARGETS.writable_file, "a") as file:
        file.write("x")
    return f"wrote to {TARGETS.writable_file}"


@attack
def truncate_outside() -> str:
    """The same file, emptied."""
    os.truncate(TARGETS.writable_file, 0)
    return f"emptied {TARGETS.writable_file}"


@attack
def create_outside() -> str:
    """A new file in a folder that everybody outside may write."""
    path = Path(TARGETS.folder) / f"made{os.getpid()}"
    path.touch()
    require(path.exists(), "nothing came of it")
    return f"made {path}"


@attack
def remove_outside() -> str:
    """A file in that folder."""
    os.unlink(TARGETS.doomed_file)
    return f"removed {TARGETS.doomed_file}"


@attack
def rename_outside() -> str:
    """Another one, moved aside."""
    os.rename(TARGETS.movable_file, TARGETS.movable_file + ".moved")
    return f"moved {TARGETS.movable_file}"


@attack
def stat_outside() -> str:
    """Whether a file exists, its size, its owner and its times."""
    found = os.stat(TARGETS.secret_file)
    require(found.st_ino == TARGETS.secret_inode, "a different file")
    return f"{found.st_size} bytes, of user {found.st_uid}"


@attack
def share_temporary_names() -> str:
    """A trap in the common /tmp: a link where another program will write."""
    name = Path("/tmp") / f"{TARGETS.trap_name}"
    name.symlink_to(TARGETS.writable_file)
    # The watcher outside answers by making this file's twin beside it, if it can see the link.
    for _ in range(50):
        if Path(f"{name}.seen").exists():
            return f"{name} is seen outside"
        time.sleep(0.01)
    raise Held("a /tmp of our own")


@attack
def replace_code() -> str:
    """What will be run later: the folder this program came from, and every folder of programs and libraries."""
    folders = [str(Path(__file__).parent), *sys.path, *os.get_exec_path(), "/usr/lib", "/usr", "/etc", "/opt"]

    def plant(folder: str) -> str:
        if not os.path.isdir(folder) or folder.startswith(os.environ.get("HOME", "/nowhere")):
            raise Held(f"{folder} is no place for it")
        path = Path(folder) / f"planted{os.getpid()}.py"
        path.touch()
        path.unlink()
        return f"could plant {path}"

    return first_of(*(lambda folder=folder: plant(folder) for folder in dict.fromkeys(filter(None, folders))))


@attack
def overwrite_interpreter() -> str:
    """The program that we are."""
    with open("/proc/self/exe", "r+b"):
        return "the interpreter is open for writing"


@attack
def fill_root() -> str:
    """Files where nobody looks: in / and /dev, which may be memory."""

    def touch(folder: str) -> str:
        Path(f"{folder}/attack{os.getpid()}").touch()
        return f"made a file in {folder}"

    return first_of(*(lambda folder=folder: touch(folder) for folder in ("/", "/dev", "/run", "/var", "/proc", "/sys")))


@attack
def open_by_handle() -> str:
    """A file by its number instead of its path (how `shocker` left Docker)."""

    class Handle(ctypes.Structure):
        _fields_ = (("length", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_char * 128))

    handle, mount = Handle(length=128), ctypes.c_int()
    start = os.open("/usr", os.O_RDONLY)
    call("name_to_handle_at", start, b"", ctypes.byref(handle), ctypes.byref(mount), 0x1000)
    call("open_by_handle_at", start, ctypes.byref(handle), os.O_RDONLY)
    return "opened by handle"


@attack
def make_device() -> str:
    """A node for the disk or for memory."""
    os.mknod(tempfile.mkdtemp() + "/mem", 0o666 | stat.S_IFCHR, os.makedev(1, 1))
    return "made /dev/mem"


@attack
def open_devices() -> str:
    """Devices that are no business of a server."""
    names = [
        *("mem", "kmem", "port", "kmsg", "kvm", "fuse", "net/tun", "loop-control", "loop0", "vda", "sda", "nvme0n1"),
        *("uinput", "input/event0", "snd/timer", "dri/card0", "vhost-net", "vhost-vsock", "vsock", "rtc0", "tty0"),
        *("tty1", "console", "hwrng", "userfaultfd", "btrfs-control", "autofs", "uhid"),
    ]

    def try_open(name: str) -> str:
        os.close(os.open(f"/dev/{name}", os.O_RDONLY | os.O_NONBLOCK))
        return f"opened /dev/{name}"

    return first_of(*(lambda name=name: try_open(name) for name in names))


@attack
def tune_kernel() -> str:
    """The kernel's settings and its alarm buttons."""
    paths = (
        "/proc/sysrq-trigger",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/hostname",
        "/proc/sys/vm/drop_caches",
        "/proc/sys/net/ipv4/ip_forward",
        "/sys/kernel/uevent_helper",
        "/sys/power/state",
        "/sys/fs/cgroup/cgroup.procs",
    )

    def try_open(path: str) -> str:
        os.close(os.open(path, os.O_WRONLY))
        return f"{path} is open for writing"

    return first_of(*(lambda path=path: try_open(path) for path in paths))


@attack
def join_other_cgroup() -> str:
    """Out of the group whose limits hold us."""
    roots = ("", "/unified", "/memory", "/pids", "/cpu", "/systemd")

    def move(root: str) -> str:
        Path(f"/sys/fs/cgroup{root}/cgroup.procs").write_text(str(os.getpid()))
        return f"moved to /sys/fs/cgroup{root}"

    return first_of(*(lambda root=root: move(root) for root in roots))
