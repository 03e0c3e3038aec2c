"""What a confined process sees of the filesystem, as values: its mounts in order; and relations between paths."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Final, Self

import msgspec
from msgspec.structs import replace

ALWAYS_SHOWN: Final = ("/proc", "/dev")  # every sandbox has its own
_PARTLY_SHOWN: Final = frozenset({"/", "/etc"})  # always there, with some of their content


class MountKind(StrEnum):
    """What a mount shows at its target."""

    READ = "read"  # the source, unchanged by anyone inside
    WRITE = "write"  # the source, writable
    SCRATCH = "scratch"  # an empty temporary filesystem
    DATA = "data"  # a file with the text in `source`
    COPY = "copy"  # a copy of the file at the source, made at the start
    LINK = "link"  # a symbolic link to the text in `source`
    HIDE = "hide"  # nothing: an empty file where `source` is `file`, else an empty directory, over what is there


class Mount(msgspec.Struct, frozen=True):
    """One mount.  `target`, absolute and normalised, is where the process sees it; `source` depends on the kind."""

    kind: MountKind
    target: str
    source: str = ""


class Places(msgspec.Struct, frozen=True):
    """Directories that a process gets of its own, and those that no process may ever see."""

    home: Path  # home, tmp: its private home and directory for temporary files
    tmp: Path
    user_home: Path  # the home of the user, which it does not see
    private: tuple[str, ...] = ()  # our state and runtime directories; `home` and `tmp` lie within the first
    # Files and folders that it may never write, such as configuration; our own code need not be named
    protected: tuple[str, ...] = ()


class AbsentHook(msgspec.Struct, frozen=True):
    """A missing path, `name` relative to the writable real `folder`, that other programs would run or obey."""

    folder: str
    name: str


class Repository(msgspec.Struct, frozen=True):
    """A git repository in a folder that a process may write."""

    folder: str
    name: str  # its work tree, relative to the folder; empty for the folder itself
    git_dir: str  # the folder with its index; empty if that is out of the process's reach
    known: tuple[str, ...] = ()  # its submodules with a `.git` older than the process, relative to the work tree


class View(msgspec.Struct, frozen=True, dict=True):
    """What a process sees.  A view without mounts changes nothing: everything is seen as it is."""

    mounts: tuple[Mount, ...] = ()  # parents before children, each target once
    env: Mapping[str, str] = msgspec.field(default_factory=dict)  # variables that the view needs set
    shown: tuple[str, ...] = ()  # the receipt's lines
    # What is read-only although a mount shows it writable; parents first, none within another
    closed: tuple[str, ...] = ()
    absent: tuple[AbsentHook, ...] = ()  # paths that could appear there; they are then moved into quarantine
    # Repositories to which submodules could be added; a new `.git` is moved into quarantine, too
    repositories: tuple[Repository, ...] = ()

    def shows(self, path: str) -> bool:
        """Return whether a normalised path outside is visible inside.  Ask for the targets of links, too."""
        return not self.mounts or shows(self._by_target, path)

    def covering(self, path: str) -> Mount | None:
        """Return the mount that decides what is at `path`."""
        return covering(self._by_target, path)

    def with_mounts(self, mounts: Iterable[Mount]) -> Self:
        """Return the view with `mounts` in it, each replacing the mount with its target."""
        by_target = {mount.target: mount for mount in (*self.mounts, *mounts)}
        return replace(self, mounts=in_order(by_target.values()))

    @cached_property
    def _by_target(self) -> dict[str, Mount]:
        return {mount.target: mount for mount in self.mounts}


def shows(by_target: Mapping[str, Mount], path: str) -> bool:
    """Return whether `path` is visible where these are all mounts, by their targets."""
    if path in _PARTLY_SHOWN or any(is_within(path, place) for place in ALWAYS_SHOWN):
        return True
    mount = covering(by_target, path)
    if mount is None or mount.kind is MountKind.HIDE:
        return False
    return mount.kind is not MountKind.SCRATCH or path == mount.target


def covering(by_target: Mapping[str, Mount], path: str) -> Mount | None:
    """Return the mount, of these by their targets, that decides what is at `path`."""
    return next((by_target[folder] for folder in ancestors(path) if folder in by_target), None)


def in_order(mounts: Iterable[Mount]) -> tuple[Mount, ...]:
    """Sort mounts, parents before children."""
    return tuple(sorted(mounts, key=lambda mount: mount.target.split("/")))


def is_within(path: str, folder: str) -> bool:
    """Return whether `path` is `folder` or lies below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def is_within_any(path: str, folders: Iterable[str]) -> bool:
    """Return whether `path` is one of `folders` or lies below one."""
    return any(is_within(path, folder) for folder in folders)


def overlap(one: str, other: str) -> bool:
    """Return whether one of two paths contains the other."""
    return is_within(one, other) or is_within(other, one)


def ancestors(path: str) -> Iterable[str]:
    """Yield `path`, its folder, … up to the root."""
    while True:
        yield path
        if path in {"/", ""}:
            return
        path = path.rpartition("/")[0] or "/"
