"""What processes share behind their backs: memory segments, queues, keys, inherited descriptors, environments."""

import ctypes
import os
from pathlib import Path

from arena import TARGETS, attack, call, first_of, libc, require, syscall

KEYCTL_READ, KEYCTL_GET_KEYRING_ID, KEYCTL_SEARCH = 11, 0, 10
USER_KEYRING, SESSION_KEYRING = -4, -3


@attack
def system_v_memory() -> str:
    """A shared segment that everybody outside may attach."""
    found = call("shmget", TARGETS.shared_key, 0, 0)
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(found, None, 0)
    require(address not in (None, ctypes.c_void_p(-1).value), "found, but not attached")
    text = ctypes.string_at(address, len(TARGETS.secret)).decode(errors="replace")
    require(text == TARGETS.secret, "it holds something else")
    return "the secret, from a shared segment"


@attack
def system_v_list() -> str:
    """All segments of the machine, by their numbers."""
    require(str(TARGETS.shared_id) in Path("/proc/sysvipc/shm").read_text().split(), "not listed")
    return "the segment is listed"


@attack
def system_v_queue() -> str:
    """A message queue of another program."""
    return f"queue {call('msgget', TARGETS.shared_key, 0)}"


@attack
def posix_memory() -> str:
    """A shared memory object of another program."""
    require(TARGETS.secret in Path(f"/dev/shm/{TARGETS.shared_name}").read_text(), "it holds something else")
    return "the secret, from /dev/shm"


@attack
def posix_queue() -> str:
    """A POSIX message queue of another program."""
    return f"queue {syscall('mq_open', TARGETS.shared_name.encode(), os.O_RDWR, 0, 0)}"


@attack
def keyrings() -> str:
    """Keys are kept by user, not by sandbox."""
    return first_of(
        lambda: f"keyring {syscall('keyctl', KEYCTL_GET_KEYRING_ID, USER_KEYRING, 1)}",
        lambda: f"key {syscall('add_key', b'user', b'attack', b'x', 1, SESSION_KEYRING)}",
    )


@attack
def inherited_descriptors() -> str:
    """Whatever the one who started us forgot to close."""

    def look(fd: int) -> str:
        try:
            text = os.pread(fd, 4096, 0).decode(errors="replace")
        except OSError:
            # No file: a folder is a way out of any root, and so is a socket.
            os.listdir(fd)
            return f"descriptor {fd} is a folder, {os.readlink(f'/proc/self/fd/{fd}')}"
        require(TARGETS.secret in text, f"descriptor {fd} holds something else")
        return f"the secret, from descriptor {fd}"

    # The pipe of this attack's own verdict is among them.
    return first_of(*(lambda fd=fd: look(fd) for fd in range(3, 64)))


@attack
def environment_secret() -> str:
    """Variables of whoever started us that are not for us."""
    found = [name for name, value in os.environ.items() if TARGETS.environment_secret in value]
    require(found, f"only {sorted(os.environ)}")
    return f"the secret, from {found}"


@attack
def initial_environment() -> str:
    """The same as the kernel keeps it, of ourselves and of those above us."""
    doors = [Path(f"/proc/{pid}/environ") for pid in ("self", os.getppid(), 1)]

    def look(door: Path) -> str:
        require(TARGETS.environment_secret in door.read_text(errors="replace"), f"not in {door}")
        return f"the secret, from {door}"

    return first_of(*(lambda door=door: look(door) for door in doors))


@attack
def file_locks() -> str:
    """Hold a lock that other programs wait for."""
    import fcntl

    with open(TARGETS.secret_file) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return "locked a file of somebody else"


@attack
def watch_files() -> str:
    """Be told what other programs do with their files."""
    watcher = call("inotify_init1", os.O_NONBLOCK)
    call("inotify_add_watch", watcher, TARGETS.folder.encode(), 0xFFF)
    return f"watching {TARGETS.folder}"
