"""Whom a process becomes when root confines it, and what that user can reach and read.

It runs as the owner of what it may write, or as a user of its own: with one user for all of them, `kill(-1)` in one
would end its neighbours, and a limit on processes would be shared.  A user of its own is taken from the range that
systemd sets aside for exactly this (systemd.exec, "DynamicUser").
"""

import fcntl
import hashlib
import os
import pwd
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck_sandbox import observed_files as observed
from quarterdeck_sandbox.policy.confinement import FIRST_UID, LAST_UID, ROOT, UnixUser
from quarterdeck_sandbox.program.launch import refusal

from .processes import real_users

GIVEN_S: Final = 60.0  # a chosen user is reserved for so long, until its home says so

IN_USE_S: Final = 1.0
"""For how long a list of the users that are in use is good: all servers of a fleet choose theirs at once."""

TURN_S: Final = 2.0  # for another process to choose a user, which takes milliseconds

GIT_SETTINGS: Final = "GIT_CONFIG_COUNT"
"""The variable that announces git's settings in variables (git-config, "ENVIRONMENT")."""

_MAX_REPOSITORIES: Final = 200  # each takes two variables, and a program's environment is bounded
_MAX_ENTRIES: Final = 1_000  # of a folder that is searched for repositories

SOMEBODY: Final = UnixUser(-1, -1, dedicated=True)
"""A user of its own that is not chosen yet: it owns nothing."""


def choose_user(home: Path, writable: Iterable[str]) -> UnixUser:
    """Return the one owner of what it may write, else a user of its own, the same at each start."""
    return owner_of(writable) or own_user(home)


def owner_of(writable: Iterable[str]) -> UnixUser | None:
    """Return the one owner of these paths, or None.  Raise LaunchError if there are two, or one cannot be looked at."""
    owners: dict[int, tuple[str, int]] = {}
    for path in writable:
        try:
            status = observed.stat(path)
        except OSError as error:
            why = "does not exist" if isinstance(error, FileNotFoundError) else "cannot be looked at"
            raise refusal(f'"write" names {path}, which {why}: take it out') from error
        owners.setdefault(status.st_uid, (path, status.st_gid))
    if len(owners) > 1:
        named = ", ".join(f"{path} to uid {uid}" for uid, (path, _) in owners.items())
        raise refusal(f"it may write paths of several users ({named}): grant those of one")
    if not owners:
        return None
    [(uid, (_, gid))] = owners.items()
    return ROOT if uid == 0 else UnixUser(uid, _group_of(uid, gid), dedicated=False)


def own_user(home: Path) -> UnixUser:
    """Return the user of its own for a process with this private home.  Raise LaunchError if none is left.

    A new home is that user's at once, so that another process that starts the same server at this moment sees it in use
    and chooses another one.
    """
    with _turn(home.parent):
        owner = os.stat(home).st_uid
        if FIRST_UID <= owner <= LAST_UID:
            return UnixUser(owner, owner, dedicated=True)
        uid = _unused_uid(home)
        with suppress(OSError):  # the start says so
            if not os.listdir(home):
                os.chown(home, uid, uid)
        return UnixUser(uid, uid, dedicated=True)


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Be our only process inside the block, for this folder; without a turn, go on after `TURN_S`."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + TURN_S
        while time.monotonic() < until:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(0.005)
        yield
    finally:
        os.close(fd)


def hand_over(identity: UnixUser, folders: Iterable[Path]) -> None:
    """Give private directories with all their content to `identity`.  Raise OSError if one cannot be changed."""
    for folder in folders:
        if os.stat(folder).st_uid == identity.uid:
            continue
        # By descriptors: a path could be led elsewhere by whoever owns it still.
        for _, directories, files, fd in os.fwalk(folder):
            for name in (*directories, *files):
                os.chown(name, identity.uid, identity.gid, dir_fd=fd, follow_symlinks=False)
        # Last, as it is what tells that all of it was done.
        os.chown(folder, identity.uid, identity.gid)


def why_unreachable(identity: UnixUser, paths: Iterable[str]) -> str:
    """Return why `identity` cannot walk to one of `paths`, which it must without mounts of its own; else empty."""
    for path in paths:
        for folder in reversed(Path(observed.realpath(path)).parents):
            if not _allows(identity, str(folder), stat.S_IXOTH):
                return f"{path} is out of reach for {identity.name}, because {folder} is closed to others"
    return ""


def why_unreadable(identity: UnixUser, paths: Iterable[str]) -> str:
    """Return why `identity` may not read one of `paths` itself, which no mount changes; else empty."""
    for path in paths:
        needed = stat.S_IROTH | (stat.S_IXOTH if observed.isdir(path) else 0)
        if not _allows(identity, path, needed):
            return f"{path} is closed to {identity.name}"
    return ""


def trust_repositories(identity: UnixUser, granted: Iterable[str]) -> dict[str, str]:
    """Return variables by which git works in granted folders that belong to another user than `identity`.

    Git obeys the configuration of a repository, and refuses that of others ("dubious ownership").  Here a row's user
    has decided: a granted folder is trusted, and so is what lies below it (by each name: before 2.46 git knows no `*`).
    """
    trusted: list[str] = []
    for path in dict.fromkeys(map(os.path.realpath, granted)):
        with suppress(OSError):
            if os.path.isdir(path) and os.stat(path).st_uid != identity.uid:
                trusted += [path, f"{path}/*", *_repositories_in(path)]
    trusted = trusted[:_MAX_REPOSITORIES]
    settings = {GIT_SETTINGS: str(len(trusted))} if trusted else {}
    for number, path in enumerate(trusted):
        settings |= {f"GIT_CONFIG_KEY_{number}": "safe.directory", f"GIT_CONFIG_VALUE_{number}": path}
    return settings


def _repositories_in(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in islice(entries, _MAX_ENTRIES):
            if entry.is_dir(follow_symlinks=False) and os.path.lexists(f"{entry.path}/.git"):
                yield entry.path


def open_to_all(folder: str) -> tuple[str, ...]:
    """Return the largest parts of `folder` that every user may read: what root may see without being root."""
    whole, parts = _open_parts(folder)
    return (folder,) if whole else tuple(parts)


def _open_parts(folder: str) -> tuple[bool, list[str]]:
    whole, parts = True, []
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return False, []
    for entry in entries:
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except OSError:
            continue  # gone meanwhile
        if stat.S_ISLNK(mode):
            continue  # what it leads to has rules of its own
        if stat.S_ISDIR(mode) and mode & 0o5 == 0o5:
            is_open, below = _open_parts(entry.path)
            parts += [entry.path] if is_open else below
            whole &= is_open
        elif not stat.S_ISDIR(mode) and mode & 0o4:
            parts.append(entry.path)
        else:
            whole = False
    return whole, parts


def _group_of(uid: int, found: int) -> int:
    """Return its own group: a path's can be one of the system's, which opens more than the path."""
    try:
        gid = pwd.getpwuid(uid).pw_gid
    except KeyError:
        gid = found
    return gid or uid


def _allows(identity: UnixUser, path: str, needed: int) -> bool:
    """Return whether `path` gives `identity` what it `needed`, bits as for others."""
    status = observed.stat(path)
    shift = 6 if status.st_uid == identity.uid else 3 if status.st_gid == identity.gid else 0
    return status.st_mode & needed << shift == needed << shift


class _InUse(msgspec.Struct):
    """The users that run something, or have a home next to this one; and those chosen here, by their homes."""

    uids: set[int] = msgspec.field(default_factory=set)
    given: dict[str, tuple[int, float]] = msgspec.field(default_factory=dict)
    folder: str = ""
    at: float = -IN_USE_S

    def beside(self, home: Path) -> set[int]:
        folder, now = str(home.parent.parent), time.monotonic()
        if folder != self.folder or now - self.at >= IN_USE_S:
            self.uids = real_users()
            # A server that does not run now keeps its user all the same: its home is that user's.
            for other in home.parent.parent.glob(f"*/{home.name}"):
                with suppress(FileNotFoundError):  # one that was temporary
                    self.uids.add(other.lstat().st_uid)
            self.folder, self.at = folder, now
        self.given = {place: (uid, at) for place, (uid, at) in self.given.items() if now - at < GIVEN_S}
        return self.uids | {uid for place, (uid, _) in self.given.items() if place != os.fsdecode(home)}


_in_use: Final = _InUse()


def _unused_uid(home: Path, known: _InUse = _in_use) -> int:
    in_use = known.beside(home)
    width = LAST_UID - FIRST_UID + 1
    start = int.from_bytes(hashlib.sha256(os.fsencode(home)).digest()[:4], "big")
    for step in range(width):
        uid = FIRST_UID + (start + step) % width
        if uid not in in_use:
            known.given[os.fsdecode(home)] = uid, time.monotonic()
            return uid
    raise refusal(f"every user from {FIRST_UID} to {LAST_UID} is running something: stop some")
