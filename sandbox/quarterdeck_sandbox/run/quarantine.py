"""Quarantine files that a confined process must not create, away from the programs that would run them; restore them.

A mount cannot close the paths in `View.absent` to a process: a mount over a missing path would make a file in the
user's folder.  So `HookGuard.look` runs before each answer of the process goes out, and at intervals.  It costs one
system call for each folder in which such a path could appear.  Programs cannot set a folder's change time, so this time
shows whether a file was made there.

    quarantine/<time>-<id>/entry.json   its path and owner
    quarantine/<time>-<id>/content      the file, folder or link itself

The process still runs, and may swap a file during the check.  So every step starts from a folder's descriptor, follows
no link, and moves a whole file or folder by its name.  If the quarantine is on another filesystem, or full, the file is
first renamed in its folder, to a name that programs do not read.
"""

import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from quarterdeck_sandbox.policy.mounts import AbsentHook, View
from quarterdeck_sandbox.view.git_repository import new_submodules

ENTRY: Final = "entry.json"
CONTENT: Final = "content"

ASIDE: Final = ".quarterdeck-quarantined-"
"""The prefix of a file's new name in its folder if it cannot be moved."""

SETTLED_NS: Final = 50_000_000
"""Nanoseconds; a younger change time may cover a second change: kernels count it in steps of some ms."""

MAX_COPIED_BYTES: Final = 64 << 20
MAX_COPIED_FILES: Final = 10_000
MAX_COPIED_DEPTH: Final = 64
"""Limits of a copy to another filesystem; a larger one stays there, under a name that programs do not read."""

MAX_ENTRIES: Final = 1_000
"""The most entries in the quarantine; further files are renamed in their folders."""

MAX_ENTRY_BYTES: Final = 64 << 10
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class QuarantineEntry(msgspec.Struct, frozen=True):
    """A quarantined file, folder or link."""

    folder: str  # the folder that its maker may write; `name` is its path from there
    name: str
    owner: str  # the server, or `a command`
    at_s: float  # the time of the move, in seconds since 1970
    aside: str = ""  # its new path next to the old one, if it could not be moved here; else empty
    restored: tuple[int, ...] = ()  # device and inode of the restored file, which is then left alone; empty before

    @property
    def path(self) -> str:
        """The path at which it appeared."""
        return f"{self.folder}/{self.name}"


class Caught(msgspec.Struct, frozen=True):
    """A file that appeared: its path, its present path (empty: unmoved), and why it is not in the quarantine."""

    path: str
    kept: str
    why: str = ""

    @property
    def told(self) -> str:
        """A sentence for the log and for clients, with the event and the remedy."""
        what = f"{self.path} was created, which other programs run or obey"
        if not self.kept:
            return f"{what}, and could not be moved away ({self.why}): remove it before you use git or an editor there"
        if self.why:
            return f"{what}: it was renamed to {self.kept}, as it could not be moved into quarantine ({self.why})"
        return f"{what}: it was moved into quarantine; quarterdeck quarantine list shows it"


class HookGuard:
    """Watches `absent` and `repositories` of a process's view; makes the folder `quarantine` when needed."""

    def __init__(self, view: View, quarantine: str, owner: str) -> None:
        self._absent = view.absent
        self._repositories = view.repositories
        self._quarantine = quarantine
        self._owner = owner
        self._changed_at: dict[str, int] = {}

    @property
    def is_quiet(self) -> bool:
        """Whether no file can have appeared since `look`; takes some microseconds."""
        if not self._absent and not self._repositories:
            return True
        return bool(self._changed_at) and all(_changed_at(folder) == at for folder, at in self._changed_at.items())

    def look(self) -> tuple[Caught, ...]:
        """Take away the files that have appeared since the last call. A copy to another filesystem can be slow."""
        if self.is_quiet:
            return ()
        added = [hook for repository in self._repositories for hook in new_submodules(repository)]
        hooks = [*self._absent, *added]
        caught = tuple(filter(None, map(self._take, hooks)))
        now = time.time_ns()
        seen = {folder: _changed_at(folder) for folder in self._watched(hooks)}
        # A folder that changed a moment ago may change again at the same time: check it again.
        self._changed_at = {folder: at if now - at > SETTLED_NS else -1 for folder, at in seen.items() if at}
        return caught

    def _watched(self, hooks: Iterable[AbsentHook]) -> set[str]:
        """Return the folders in which a file could appear, existing or not, and the files of each index."""
        # The shared part of a split index is named by its content, and a new one comes with a new index.
        found = {path for each in self._repositories for path in (each.git_dir, f"{each.git_dir}/index")}
        for hook in hooks:
            *inner, _ = hook.name.split("/")
            found |= {"/".join((hook.folder, *inner[:count])) for count in range(len(inner) + 1)}
        return found

    def _take(self, hook: AbsentHook) -> Caught | None:
        if not os.path.lexists(f"{hook.folder}/{hook.name}"):
            return None
        try:
            opened = _open_parent(hook.folder, hook.name)
        except OSError as error:
            return None if error.errno == errno.ENOENT else Caught(f"{hook.folder}/{hook.name}", "", _words(error))
        folder, name = opened
        try:
            status = os.stat(os.path.basename(name), dir_fd=folder, follow_symlinks=False)
            entry = QuarantineEntry(hook.folder, name, self._owner, time.time())
            if _was_given_back(self._quarantine, entry.path, status):
                return None
            return _take_away(folder, entry, self._quarantine)
        except FileNotFoundError:
            return None  # it has vanished again
        except OSError as error:
            return Caught(f"{hook.folder}/{name}", "", _words(error))
        finally:
            os.close(folder)


def quarantine_entries(quarantine: str) -> dict[str, QuarantineEntry]:
    """Return all entries by their ids, the oldest first, including restored ones."""
    found = {}
    with suppress(OSError):  # it is missing or unreadable: then no file from it was restored
        for identity in sorted(os.listdir(quarantine)):
            with suppress(OSError, msgspec.MsgspecError), open(f"{quarantine}/{identity}/{ENTRY}", "rb") as file:
                found[identity] = _ENTRY.decode(file.read(MAX_ENTRY_BYTES))
    return found


def kept_at(quarantine: str, identity: str, entry: QuarantineEntry) -> str:
    """Return the entry's present path; empty if it was restored or is gone."""
    place = entry.aside or f"{quarantine}/{identity}/{CONTENT}"
    return place if os.path.lexists(place) else ""


def remove_entry(quarantine: str, identity: str, entry: QuarantineEntry) -> None:
    """Delete the entry permanently."""
    if entry.aside:
        folder, name = _open_parent(entry.folder, entry.name)
        try:
            if name == entry.name:
                _remove(os.path.basename(entry.aside), folder)
        finally:
            os.close(folder)
    _forget(f"{quarantine}/{identity}")


def give_back(quarantine: str, identity: str, entry: QuarantineEntry) -> None:
    """Restore the entry to its old path; from then on it is left alone there.

    Raise FileExistsError if a file exists there, OSError if it cannot be moved, or is no longer kept.
    """
    folder, name = _open_parent(entry.folder, entry.name)
    try:
        last = os.path.basename(name)
        if name != entry.name or _exists(last, folder):
            raise FileExistsError(errno.EEXIST, "there is something again", f"{entry.folder}/{name}")
        source = entry.aside or f"{quarantine}/{identity}/{CONTENT}"
        status = os.lstat(source)
        # Record it before the move: otherwise the folder's watch would take it away at once.
        restored = msgspec.structs.replace(entry, aside="", restored=(status.st_dev, status.st_ino))
        try:
            _write(f"{quarantine}/{identity}", restored)
            os.rename(source, last, dst_dir_fd=folder)
        except OSError as error:
            _write(f"{quarantine}/{identity}", entry)
            if error.errno != errno.EXDEV:
                raise
            aside = ASIDE + secrets.token_hex(8)
            place, from_ = os.path.split(source)
            _copied(place, from_, folder, aside)
            status = os.stat(aside, dir_fd=folder, follow_symlinks=False)
            restored = msgspec.structs.replace(restored, restored=(status.st_dev, status.st_ino))
            _write(f"{quarantine}/{identity}", restored)
            os.rename(aside, last, src_dir_fd=folder, dst_dir_fd=folder)
            _remove(source)
    finally:
        os.close(folder)


def _open_parent(folder: str, name: str) -> tuple[int, str]:
    """Open a path's folder step by step. Return it and the path, or the folder and path of a link on the way."""
    steps = name.split("/")
    current = os.open(folder, _FOLDER)
    try:
        for count, step in enumerate(steps[:-1]):
            try:
                inner = os.open(step, _FOLDER, dir_fd=current)
            except OSError as error:
                if error.errno in {errno.ELOOP, errno.ENOTDIR}:
                    return current, "/".join(steps[: count + 1])
                raise
            os.close(current)
            current = inner
    except BaseException:
        os.close(current)
        raise
    return current, name


def _take_away(folder: int, entry: QuarantineEntry, quarantine: str) -> Caught:
    """Move the file with the entry's name out of `folder`. Raise FileNotFoundError if it is gone."""
    last, identity = os.path.basename(entry.name), secrets.token_hex(8)
    kept = f"{quarantine}/{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(entry.at_s))}-{identity}"
    try:
        os.makedirs(quarantine, 0o700, exist_ok=True)
        if len(os.listdir(quarantine)) >= MAX_ENTRIES:
            raise OSError(errno.EDQUOT, f"{MAX_ENTRIES} entries are in it: quarterdeck quarantine remove")
        os.mkdir(kept, 0o700)
        _write(kept, entry)
        os.rename(last, f"{kept}/{CONTENT}", src_dir_fd=folder)
        return Caught(entry.path, f"{kept}/{CONTENT}")
    except OSError as error:
        why = error
    aside = f"{ASIDE}{identity}"
    try:
        os.rename(last, aside, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        _forget(kept)
        raise
    beside = os.path.join(os.path.dirname(entry.path), aside)
    if why.errno == errno.EXDEV:
        try:
            target = os.open(kept, _FOLDER)
            try:
                _copied(folder, aside, target, CONTENT)
            finally:
                os.close(target)
            _remove(aside, folder)
            return Caught(entry.path, f"{kept}/{CONTENT}")
        except OSError as error:
            why = error
            _remove(f"{kept}/{CONTENT}")
    try:
        _write(kept, msgspec.structs.replace(entry, aside=beside))
    except OSError:
        _forget(kept)
    return Caught(entry.path, beside, _words(why))


def _was_given_back(quarantine: str, path: str, status: os.stat_result) -> bool:
    wanted = (status.st_dev, status.st_ino)
    return any(each.path == path and each.restored == wanted for each in quarantine_entries(quarantine).values())


_ENTRY: Final = msgspec.json.Decoder(QuarantineEntry)


def _write(kept: str, entry: QuarantineEntry) -> None:
    """Write the entry atomically: a partial entry would hide its file."""
    with open(f"{kept}/{ENTRY}.new", "wb") as file:
        file.write(msgspec.json.encode(entry))
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{kept}/{ENTRY}.new", f"{kept}/{ENTRY}")


def _forget(kept: str) -> None:
    shutil.rmtree(kept, ignore_errors=True)


class _Budget:
    def __init__(self) -> None:
        self.bytes, self.files = MAX_COPIED_BYTES, MAX_COPIED_FILES

    def take(self, count: int, *, files: int = 0) -> None:
        self.bytes, self.files = self.bytes - count, self.files - files
        if self.bytes < 0 or self.files < 0:
            raise OSError(errno.EFBIG, "it is too large to be copied to another filesystem")


def _copied(source: int | str, name: str, target: int, as_name: str) -> None:
    """Copy a file, link or folder; skip other kinds.  Raise OSError if impossible, or beyond the limits."""
    opened = os.open(source, _FOLDER) if isinstance(source, str) else os.dup(source)
    try:
        _copy(opened, name, target, as_name, _Budget(), MAX_COPIED_DEPTH)
    finally:
        os.close(opened)


def _copy(source: int, name: str, target: int, as_name: str, budget: _Budget, depth: int) -> None:
    status = os.stat(name, dir_fd=source, follow_symlinks=False)
    budget.take(0, files=1)
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(name, dir_fd=source), as_name, dir_fd=target)
    elif stat.S_ISREG(status.st_mode):
        fd = os.open(name, _FILE, dir_fd=source)
        with open(fd, "rb") as file:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(as_name, flags, status.st_mode & 0o777, dir_fd=target), "wb") as copy:
                while data := file.read(1 << 20):
                    budget.take(len(data))
                    copy.write(data)
    elif stat.S_ISDIR(status.st_mode):
        if not depth:
            raise OSError(errno.EFBIG, "it is too deep to be copied to another filesystem")
        os.mkdir(as_name, 0o700, dir_fd=target)
        inner, made = os.open(name, _FOLDER, dir_fd=source), -1
        try:
            made = os.open(as_name, _FOLDER, dir_fd=target)
            for each in os.listdir(inner):
                _copy(inner, each, made, each, budget, depth - 1)
        finally:
            os.close(inner)
            if made >= 0:
                os.close(made)


def _remove(path: str, dir_fd: int | None = None) -> None:
    """Remove a file, link or folder. A part that cannot be removed stays, under its harmless name."""
    with suppress(OSError):
        os.unlink(path, dir_fd=dir_fd)
        return
    shutil.rmtree(path, ignore_errors=True, dir_fd=dir_fd)


def _exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _changed_at(folder: str) -> int:
    try:
        return os.stat(folder).st_ctime_ns
    except OSError:
        return 0


def _words(error: OSError) -> str:
    return error.strerror or str(error)


def quarantine_notice(caught: Sequence[Caught]) -> str:
    """Return the text to add to an answer; empty if no file was caught."""
    return "\n".join(f"[quarterdeck] {each.told}" for each in caught)
