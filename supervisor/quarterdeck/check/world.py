"""Make a world of decoys in a throwaway home, and watch what a server does there.

Every file is ours, so the kernel's notifications (inotify) on each tell what is opened and changed, through whatever
mount or link it is reached.  They do not tell who it was: our own walks open folders too, see `forget_listings`.
"""

import asyncio
import ctypes
import os
import secrets
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Self

from quarterdeck_sandbox import HostRecorder, links_of

from .decoys import MARK_BYTES, SCENERY, Decoy, folders_of, make_decoys
from .episode import Did, Episode, Recording, Touches

WORK_FOLDER: Final = "work"
"""The working directory, if it lies in the home: its server may do in it what it likes."""

MAX_NEW_NAMES: Final = 20
"""Names that a server made or removed, between two calls of `take`; further ones are counted. Decoys always fit."""

READ_BYTES: Final = 64 * 1024

READS_A_WAKE: Final = 80
"""More than a full queue of the kernel, 16,384 events with the longest names."""

_MODIFY, _OPEN, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x20, 0x40, 0x80, 0x100, 0x200
_OVERFLOW, _IGNORED, _DONT_FOLLOW = 0x4000, 0x8000, 0x0200_0000
_NAMES: Final = _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_WATCHED: Final = _MODIFY | _OPEN | _NAMES | _DONT_FOLLOW

_EVENT: Final = struct.Struct("=iIII")
"""Watch, mask, cookie, length of the name that follows, padded with zero bytes (inotify(7))."""


class World:
    """The decoys of one home, watched within `watched`.

    Attributes:
        unwatched: why nothing is watched; empty if it is.
        has_runner: whether a package runner starts the server, which reads settings of its own.
        hosts: those that it asks for, where its sandbox can record them.
    """

    def __init__(self, home: Path, *, has_runner: bool = False) -> None:
        self.home: Final = home
        self.has_runner: Final = has_runner
        self.hosts: Final = HostRecorder()
        self.decoys: Final[tuple[Decoy, ...]] = make_decoys(partial(secrets.token_hex, MARK_BYTES))
        self.unwatched = "not begun"
        self._paths: Final = {decoy.path for decoy in self.decoys}
        self._folders: Final = folders_of(self._paths)
        self._watches: dict[int, str] = {}
        self._fd = -1
        self._seen: dict[tuple[Did, str], None] = {}
        self._new = self._more = 0
        self._is_lossy = False

    def make(self) -> Self:
        """Write the decoys into the empty home; raise OSError if that fails."""
        files = {decoy.path: decoy.content for decoy in self.decoys} | SCENERY
        for folder in folders_of(files):
            (self.home / folder).mkdir(mode=0o700)
        for path, content in files.items():
            (self.home / path).write_bytes(content)
            (self.home / path).chmod(0o600)
        return self

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch within the block, in which the server is started; what fails is said in `unwatched`."""
        self._watch()
        try:
            yield
        finally:
            self._close()

    def _watch(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            self._fd = _checked(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
            for path in ("", *self._folders, *self._paths):
                place = os.fsencode(self.home / path)
                self._watches[_checked(libc.inotify_add_watch(self._fd, place, _WATCHED))] = path
        except (OSError, AttributeError) as error:
            self._close()
            self.unwatched = f"this system gives no notifications of files ({error})"
            return
        self.unwatched = ""
        asyncio.get_running_loop().add_reader(self._fd, self._readable)

    def _close(self) -> None:
        self._readable()
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def take(self) -> Touches:
        """Return what happened since the last call; not that a start links names to the user's own files."""
        self._readable()
        links = links_of(self.home)
        ours = {(did, path) for did in (Did.MADE, Did.REMOVED) for path in (*links, *folders_of(links))}
        taken = Touches(
            tuple(key for key in self._seen if key not in ours or key[1] in self._paths),
            self._more + self.hosts.more,
            self._is_lossy,
        )
        self.hosts.more = 0
        self._seen, self._new, self._more, self._is_lossy = {}, 0, 0, False
        return taken

    def forget_listings(self) -> None:
        """Forget which folders were listed since the last `take`: we walked through them ourselves."""
        self._readable()
        self._seen = {key: None for key in self._seen if key[0] is not Did.LISTED}

    def recording(self, *episodes: Episode, untried: tuple[str, ...] = (), gaps: tuple[str, ...] = ()) -> Recording:
        """Return the recording of a server in this world."""
        return Recording(
            episodes,
            untried,
            gaps,
            decoys=self.decoys,
            unwatched=self.unwatched,
            has_runner=self.has_runner,
            hosts=self.hosts.since(0),
        )

    def _readable(self) -> None:
        if self._fd < 0:
            return
        for _ in range(READS_A_WAKE):
            try:
                data = os.read(self._fd, READ_BYTES)
            except OSError:
                return
            for watch, mask, name in _events(data):
                self._note(watch, mask, name)

    def _note(self, watch: int, mask: int, name: str) -> None:
        self._is_lossy |= bool(mask & _OVERFLOW)
        folder = self._watches.get(watch)
        if folder is None or mask & _IGNORED:
            return
        path = f"{folder}/{name}" if folder and name else folder or name
        is_decoy = path in self._paths
        if mask & _OPEN and (is_decoy or path in self._folders):
            self._seen[Did.OPENED if is_decoy else Did.LISTED, path] = None
        elif mask & _MODIFY and is_decoy:
            self._seen[Did.CHANGED, path] = None
        elif mask & _NAMES and path != WORK_FOLDER:
            did = Did.MADE if mask & (_CREATE | _MOVED_TO) else Did.REMOVED
            if is_decoy or self._new < MAX_NEW_NAMES:
                self._new += not is_decoy and (did, path) not in self._seen
                self._seen[did, path] = None
            else:
                self._more += 1


def _events(data: bytes) -> Iterator[tuple[int, int, str]]:
    at = 0
    while at < len(data):
        watch, mask, _, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size + length
        yield watch, mask, data[at - length : at].rstrip(b"\0").decode(errors="replace")


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
