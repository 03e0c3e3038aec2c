"""Close parts of what a sandbox may write: read-only mounts in a mount namespace of its own, before the sandbox exists.

Executed as `main(ORDER_FD)`; afterwards it becomes what builds the sandbox, which takes these mounts along, and cannot
undo them: who is in a namespace of less privilege may not unmount what came with it, and no confined process may mount.

- A file that is a mount point cannot be replaced, but a folder above it could be renamed, and another put in its place.
  So every folder between is a mount point too: itself, mounted upon itself, as writable as before.
- No link is followed (openat2), and what is mounted, and upon what, is the one thing that was opened: whoever swaps a
  folder meanwhile makes this fail, which starts nothing.
- Older bubblewrap (before 0.12, CVE-2026-87766) follows links where it makes mount points below writable ones.  Here
  nothing is made, and it has to make none.

The order is one of `order.encode_closing`.
Source: mount_setattr(2), open_tree(2), move_mount(2), openat2(2), user_namespaces(7).
"""

import os
import struct

import gate
import kernel
import order as orders

OPEN_TREE = 428
MOVE_MOUNT = 429
OPENAT2 = 437
MOUNT_SETATTR = 442
"""Numbered alike on every architecture."""

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUSER = 0x1000_0000

AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
OPEN_TREE_CLONE = 1
MOVE_MOUNT_FROM_HERE = 0x04
MOVE_MOUNT_ONTO_HERE = 0x40
"""MOVE_MOUNT_F_EMPTY_PATH and MOVE_MOUNT_T_EMPTY_PATH: the descriptors themselves."""

MOUNT_ATTR_RDONLY = 1
MS_PRIVATE = 1 << 18
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
ST_RDONLY = 1

ATTEMPTS = 5
"""At a path that is replaced while it is being closed, as editors and git do with their files."""

EXIT_FAILED = 1


def main(order_fd: str) -> None:
    """Never returns.  `order_fd` holds the order."""
    order = orders.decode_closing(os.pread(int(order_fd), orders.MAX_BYTES, 0))
    os.close(int(order_fd))
    gate.raise_oom_score(order["oom_score"])
    try:
        close(order["steps"], order["open"])
    except OSError as error:
        os.write(2, f"{error.filename or 'a mount namespace'}: {error.strerror}\n".encode("utf-8", "replace"))
        os._exit(EXIT_FAILED)
    os.execv(order["argv"][0], order["argv"])  # noqa: S606 - the whole point


def close(steps: "list[tuple[str, bool]]", opened: "list[str] | None" = None) -> None:
    """Go into a mount namespace of our own, and make each path a mount point there, read-only if it is closed.

    Args:
        steps: (absolute path without links, whether it is closed), parents first.
        opened: absolute paths without links, none within another: first of all, everything else is made read-only.

    Raises:
        OSError: there can be no such namespace, or a path is not there, or leads through a link.
    """
    _leave()
    if opened is not None:
        _close_all_but(opened)
    for path, closed in steps:
        _mount_upon_itself(path, closed=closed)
    for path, closed in steps:
        if closed and not _is_read_only(path):
            raise OSError(0, "it was replaced while it was being closed: try again", path)


def _leave() -> None:
    """A mount namespace of our own; an ordinary user needs a user namespace for it, and stays who they are in it."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        kernel.check(kernel.library().unshare(CLONE_NEWNS), path="/")
    else:
        kernel.check(kernel.library().unshare(CLONE_NEWUSER | CLONE_NEWNS), path="/proc/self/ns/user")
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _set(AT_FDCWD, b"/", AT_RECURSIVE, propagation=MS_PRIVATE)


def _close_all_but(opened: "list[str]") -> None:
    """Make every mount read-only, and mount what is to stay as it is upon itself."""
    kept: list[tuple[int, int]] = []
    try:
        for path in opened:
            place = _open(path)
            kept.append((place, -1))
            kept[-1] = (place, _clone(place))
        _set(AT_FDCWD, b"/", AT_RECURSIVE, attributes=MOUNT_ATTR_RDONLY)
        for place, tree in kept:
            kernel.call(MOVE_MOUNT, tree, b"", place, b"", MOVE_MOUNT_FROM_HERE | MOVE_MOUNT_ONTO_HERE)
    finally:
        for pair in kept:
            for fd in pair:
                if fd >= 0:
                    os.close(fd)


def _clone(place: int) -> int:
    """The mounts at a place, as a tree of their own."""
    tree: int = kernel.call(OPEN_TREE, place, b"", OPEN_TREE_CLONE | AT_RECURSIVE | AT_EMPTY_PATH | os.O_CLOEXEC)
    return tree


def _mount_upon_itself(path: str, *, closed: bool) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            place = _open(path)
            try:
                tree = _clone(place)
                try:
                    if closed:
                        _set(tree, b"", AT_RECURSIVE | AT_EMPTY_PATH, attributes=MOUNT_ATTR_RDONLY)
                    kernel.call(MOVE_MOUNT, tree, b"", place, b"", MOVE_MOUNT_FROM_HERE | MOVE_MOUNT_ONTO_HERE)
                finally:
                    os.close(tree)
            finally:
                os.close(place)
        except FileNotFoundError as error:
            if attempt == ATTEMPTS:
                raise OSError(error.errno, "it vanished while it was being closed: try again", path) from None
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None
        else:
            return


def _is_read_only(path: str) -> bool:
    place = _open(path)
    try:
        return bool(os.fstatvfs(place).f_flag & ST_RDONLY)
    finally:
        os.close(place)


def _open(path: str) -> int:
    how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)
    place: int = kernel.call(OPENAT2, AT_FDCWD, os.fsencode(path), how, len(how))
    return place


def _set(place: int, path: bytes, flags: int, *, attributes: int = 0, propagation: int = 0) -> None:
    wanted = struct.pack("=QQQQ", attributes, 0, propagation, 0)
    kernel.call(MOUNT_SETATTR, place, path, flags, wanted, len(wanted))
