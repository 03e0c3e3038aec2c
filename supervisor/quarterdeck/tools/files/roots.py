"""A session's accessible files: its workspace and the allowed directories, judged by open descriptors.

A path is followed first (`path_walk`) and judged afterwards, by the place of the descriptor that it led to; swapping a
directory for a link meanwhile changes where the path leads, not what is allowed. A hard link is no detectable way out:
its maker had the file already.
"""

import errno
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from quarterdeck.common.path_walk import FoundPath, Make, fault, join, walk
from quarterdeck.common.words import clipped, utf8
from quarterdeck.tools.context import OutsideRootsError
from quarterdeck_sandbox import follow, is_hook, is_within, path_of_fd

MAX_SHOWN_CHARS: Final = 300  # of a path in a message
KERNEL_DIRECTORIES: Final = ("/proc", "/sys")
"""Virtual files, among them this process's environment and memory: in no root unless they are one themselves."""


class Access(IntEnum):
    """The permission for a directory and below."""

    NONE = 0
    READ = 1
    WRITE = 2


@dataclass(frozen=True, slots=True)
class Root:
    """A directory with all below it, or one file: its path without links, and its name in messages."""

    place: str
    access: Access
    shown: str

    def holds(self, place: str) -> bool:
        """Return whether `place` is this directory or in it."""
        return place == self.place or place.startswith(self.place.rstrip("/") + "/")


class Roots:
    """The directories of one session. Raise `ValueError` for a directory without a name.

    Where one lies in another, the inner one decides. A root that is a link is resolved here, once; one that does not
    exist yet, or vanishes, holds nothing. Hooks of other programs in a project (`is_hook`) are read-only in a root that
    holds them, but not in a root within them: `.git/hooks` as a root is meant.

    Args:
        workspace: the session's directory, read and written.
        writable: further directories to read and write.
        readable: further ones to read only.
        closed: paths outside of all of these, although they may lie in one; a root within them is one all the same.
        protected: returns paths that are never changed at this moment, whatever their root; files and folders, which
            may be missing.
    """

    def __init__(
        self,
        workspace: str | os.PathLike[str],
        writable: Iterable[str | os.PathLike[str]] = (),
        readable: Iterable[str | os.PathLike[str]] = (),
        closed: Iterable[str | os.PathLike[str]] = (),
        protected: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        named = (
            _root(workspace, Access.WRITE, " (the workspace)"),
            *(_root(path, Access.WRITE) for path in writable),
            *(_root(path, Access.READ) for path in readable),
        )
        by_place: dict[str, Root] = {}
        for root in named:
            by_place.setdefault(root.place, root)
        self._named = tuple(by_place.values())
        hidden = map(os.path.realpath, map(absolute, closed))
        kernels = (Root(place, Access.NONE, place) for place in (*KERNEL_DIRECTORIES, *hidden))
        self._by_depth = sorted((*self._named, *kernels), key=lambda root: (len(root.place), root.access), reverse=True)

        self._find_protected = protected
        self._protected: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    def _closed(self, place: str, root: Root) -> str:
        """Return why nothing may be changed at `place` although `root` may be; empty when it may."""
        if any(is_within(place, protected) for protected in self._known_protected()):
            return "quarterdeck runs it, or reads it as its user's own settings"
        if is_hook(place[len(root.place) :].strip("/").split("/")):
            return "other programs of the user run it, or read their settings from it"
        return ""

    def _known_protected(self) -> tuple[str, ...]:
        """Return the protected places: links and their targets."""
        named = tuple(self._find_protected())
        if self._protected[0] != named:
            followed = [follow(path) for path in named]
            places = (*(each.real for each in followed), *(link for each in followed for link, _ in each.links))
            self._protected = (named, tuple(dict.fromkeys(places)))
        return self._protected[1]

    def is_root(self, path: str) -> bool:
        """Return whether one of the directories is at `path`, absolute, without a link on the way."""
        return any(_is_same_name(root.place, path) for root in self._named)

    @contextmanager
    def look(self, path: str, cwd: str) -> Iterator[FoundPath]:
        """Hold the target of `path`, from `cwd`, open within the block, to be read.

        The target may be missing; its directory may not. Raise `OutsideRootsError` if it may not be read, `OSError` if
        the path leads nowhere.
        """
        with self._walk(path, cwd, Access.READ) as spot:
            spot.place = _place(spot)
            self._require(spot.place, Access.READ, path)
            yield spot

    @contextmanager
    def look_to_change(
        self, path: str, cwd: str, *, follow_last: bool = True, make: Make | None = None
    ) -> Iterator[FoundPath]:
        """Hold the target open to be created, replaced or removed by its name in the directory that is held open.

        `follow_last` follows a link at the end, which else is changed itself; `make` creates missing directories on the
        way, where something may be created. Raise `OutsideRootsError` where the path, which `cwd` begins, leads to what
        may not be changed, `OSError` where it leads nowhere.
        """

        def make_inside(directory: int, name: str) -> None:
            place = _below(directory, name)
            if self._leads_to_root(place):
                raise fault(errno.ENOENT)
            self._require(place, Access.WRITE, path)
            self._require(path_of_fd(directory), Access.WRITE, path)
            if make is not None:
                make(directory, name)

        with self._walk(path, cwd, Access.WRITE, follow_last, make and make_inside) as spot:
            spot.place = _place(spot)
            self._require(spot.place, Access.WRITE, path)
            if spot.directory is not None and not spot.is_directory:
                # Both, as the name is what changes: in this directory, and in no root that is nested there.
                if not (spot.is_file and self.is_root(spot.place)):  # a file that was given is changed wherever it is
                    self._require(path_of_fd(spot.directory), Access.WRITE, path)
                self._require(_below(spot.directory, spot.name), Access.WRITE, path)
            yield spot

    def require_removable(self, spot: FoundPath, path: str) -> int:
        """Return a descriptor of the directory's parent. Raise `OSError` if it is a root, holds one or is protected."""
        place = _place(spot)
        if spot.directory is None or self._leads_to_root(place):
            raise fault(errno.EBUSY, "it is a directory that this session works in, or holds one")
        self._require(place, Access.WRITE, path)
        self._require(path_of_fd(spot.directory), Access.WRITE, path)
        if any(is_within(protected, place) for protected in self._known_protected()):
            raise fault(errno.EBUSY, "it holds what this session may not change")
        return spot.directory

    def _walk(
        self, path: str, cwd: str, wanted: Access, follow_last: bool = True, make: Make | None = None
    ) -> FoundPath:
        def stuck(directory: int, name: str) -> None:
            # What is missing or closed elsewhere is not told; that a root has vanished is.
            place = _below(directory, name)
            if not self._leads_to_root(place):
                self._require(place, wanted, path)

        return walk(join(path, cwd), follow_last=follow_last, make=make, stuck=stuck)

    def _leads_to_root(self, place: str) -> bool:
        above = Root(place, Access.NONE, "")
        return any(above.holds(root.place) for root in self._named)

    def _require(self, place: str, wanted: Access, path: str) -> None:
        root = next((root for root in self._by_depth if root.holds(place)), _NOWHERE)
        reason = self._closed(place, root) if wanted is root.access is Access.WRITE else ""
        if root.access >= wanted and not reason:
            return
        # Of the session's own folders a model knows by the notices that name them.
        some = ", ".join(root.shown for root in self._named if root.access is Access.WRITE)
        if reason:
            text = f"may be read, not changed: {reason}. Ask the user to change it."
        elif root.access is Access.READ:
            text = f"may be read, not changed: this session may change {some}. Use a path inside one of these."
        else:
            text = f"is outside of what this session may touch: {some}. Use a path inside one of these."
        raise OutsideRootsError(errno.EACCES, f"`{clipped(utf8(path), MAX_SHOWN_CHARS)}` {text}", path)


_NOWHERE: Final = Root("", Access.NONE, "")


def absolute(path: str | os.PathLike[str]) -> str:
    """Return `path` from `/`, its `..` resolved as the kernel would. Raise `ValueError` if it is empty or has a NUL."""
    text = os.fspath(path)
    if not text or "\0" in text:
        raise ValueError(f"{text!r} needs a directory")
    return os.path.realpath(text) if ".." in text.split("/") else os.path.abspath(text)


def _root(path: str | os.PathLike[str], access: Access, note: str = "") -> Root:
    spelled = absolute(path)
    try:
        with walk(spelled) as spot:
            place = _place(spot)
    except OSError:
        place = os.path.realpath(spelled)
    if place == "/":
        note += f" without {' and '.join(KERNEL_DIRECTORIES)}"
    return Root(place, access, spelled + note)


def _place(spot: FoundPath) -> str:
    """Return where the thing is, or would be."""
    if spot.thing is not None:
        return path_of_fd(spot.thing)
    return _below(spot.directory, spot.name)


def _below(directory: int | None, name: str) -> str:
    place = path_of_fd(directory) if directory is not None else "/"
    return place if name in {"", "."} else os.path.join(place, name)


def _is_same_name(place: str, path: str) -> bool:
    if sys.platform == "darwin":  # without regard to case, or to how accents are composed
        place, path = (unicodedata.normalize("NFC", each).casefold() for each in (place, path))
    return place == path
