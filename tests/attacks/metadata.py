"""Changing the mode, owner, times and attributes of files outside, which takes no right to read or to write them."""

import ctypes
import fcntl
import os
import struct
import tempfile
import threading
import time
from collections.abc import Callable

from arena import TARGETS, Held, attack, first_of, libc, syscall

SHOWN = __file__  # a file of the same owner as the one outside, which we may read and not write
MODE = 0o640
AT_FDCWD, AT_EMPTY_PATH = -100, 0x1000
NO_DUMP = 0x40
FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_SETVERSION = 0x40086602, 0x401C5820, 0x40087602
RACE_S = 0.5


def change(*ways: Callable[[str], object], paths: tuple[str, ...] = ()) -> str:
    """Try each way on each path; one raises OSError where it is refused."""

    def attempt(way: Callable[[str], object], path: str) -> str:
        way(path)
        return f"changed {path}"

    tried = paths or (TARGETS.owned_file, SHOWN)
    return first_of(*(lambda way=way, path=path: attempt(way, path) for way in ways for path in tried))


def by_link(path: str) -> str:
    """A symbolic link of our own to it."""
    link = tempfile.mkdtemp() + "/link"
    os.symlink(path, link)
    return link


@attack
def chmod_outside() -> str:
    """The mode of a file whose owner has our number: by its path, a link, and from its folder."""

    def from_folder(path: str) -> None:
        folder = os.open(os.path.dirname(path), os.O_PATH)
        os.chmod(os.path.basename(path), MODE, dir_fd=folder)
        os.close(folder)

    return change(lambda path: os.chmod(path, MODE), lambda path: os.chmod(by_link(path), MODE), from_folder)


@attack
def fchmod_outside() -> str:
    """The same by a descriptor that is open for reading."""
    return change(lambda path: os.fchmod(os.open(path, os.O_RDONLY), MODE))


@attack
def fchmodat2_outside() -> str:
    """The same by the newest call, also on a descriptor that opens nothing."""
    return change(
        lambda path: syscall("fchmodat2", AT_FDCWD, path.encode(), MODE, 0),
        lambda path: syscall("fchmodat2", os.open(path, os.O_PATH), b"", MODE, AT_EMPTY_PATH),
    )


@attack
def chmod_through_proc() -> str:
    """The same by the name that such a descriptor has in /proc."""
    names = ("/proc/self/fd", "/proc/thread-self/fd", f"/proc/{os.getpid()}/fd", "/dev/fd")
    return change(*(lambda path, name=name: os.chmod(f"{name}/{os.open(path, os.O_PATH)}", MODE) for name in names))


@attack
def utime_outside() -> str:
    """Its times; those of a file that everybody may write need not even be its owner's to change."""
    return change(
        lambda path: os.utime(path, (1, 1)),
        os.utime,
        lambda path: os.utime(os.open(path, os.O_RDONLY), (1, 1)),
        lambda path: os.utime(path, (1, 1), follow_symlinks=False),
        paths=(TARGETS.owned_file, TARGETS.writable_file, SHOWN),
    )


@attack
def xattr_outside() -> str:
    """Its extended attributes."""
    return change(
        lambda path: os.setxattr(path, "user.attack", b"x"),
        lambda path: os.setxattr(os.open(path, os.O_RDONLY), "user.attack", b"x"),
        lambda path: os.removexattr(path, "user.attack"),
        lambda path: syscall("setxattrat", AT_FDCWD, path.encode(), 0, b"user.a", struct.pack("QII", 0, 0, 0), 16),
        paths=(TARGETS.owned_file, TARGETS.writable_file, SHOWN),
    )


@attack
def chown_outside() -> str:
    """Its group, to one of ours."""
    group = os.getgid()
    return change(
        lambda path: os.chown(path, -1, group),
        lambda path: os.chown(path, -1, group, follow_symlinks=False),
        lambda path: os.chown(os.open(path, os.O_RDONLY), -1, group),
    )


@attack
def inode_flags_outside() -> str:
    """Its flags and its version: those that make a file unchangeable are set the same way."""
    return change(
        lambda path: syscall("file_setattr", AT_FDCWD, path.encode(), struct.pack("QIIIII", NO_DUMP, *5 * [0]), 28, 0),
        lambda path: fcntl.ioctl(os.open(path, os.O_RDONLY), FS_IOC_SETFLAGS, struct.pack("l", NO_DUMP)),
        lambda path: fcntl.ioctl(os.open(path, os.O_RDONLY), FS_IOC_FSSETXATTR, struct.pack("I24x", NO_DUMP)),
        lambda path: fcntl.ioctl(os.open(path, os.O_RDONLY), FS_IOC_SETVERSION, struct.pack("l", 7)),
    )


@attack
def swap_while_it_is_judged() -> str:
    """Whoever judges a path is shown one of our own, and whoever changes it the one outside."""
    target = TARGETS.owned_file
    before = os.stat(target).st_mode
    folder = tempfile.mkdtemp()
    own, link, text = f"{folder}/own", f"{folder}/link", ctypes.create_string_buffer(4096)
    open(own, "w").close()
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            for path in (own, target):
                os.symlink(path, f"{folder}/next")
                os.rename(f"{folder}/next", link)
                ctypes.memmove(text, path.encode() + b"\0", len(path) + 1)

    swapping = threading.Thread(target=swap)
    swapping.start()
    end = time.monotonic() + RACE_S
    while time.monotonic() < end:
        for path in (link.encode(), text):
            libc.chmod(path, MODE | 1)
    over.set()
    swapping.join()
    if os.stat(target).st_mode == before:
        raise Held("it was never changed")
    return f"changed {target}"
