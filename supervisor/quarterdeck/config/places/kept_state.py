"""The content of the state directory, and of the seals beside it: owners, current use, and removal.

    servers/<file>/<server>/             a server's private home, temporary files, log; and its owner
    workspaces/<workspace>/              the home of native commands, and sessions
    ledger, token, tokens.json           records: removed only when they are named
    secrets, logins                      likewise
    sandbox-notice                       the gaps of the sandbox that the user was warned of

Servers have written there: nothing in it is trusted, no link is followed, and nothing outside is touched.  A directory
is renamed before it is removed, so that a server that starts at that moment gets a new one.  Blocking.
"""

import hashlib
import logging
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck.common.locks import acquire, is_held
from quarterdeck_sandbox import DiskUse, measure_disk_use, remove_tree

from .paths import STATE_DIR_VARIABLE, SessionPaths, make_private_dir, server_paths, state_dir, writing_below

RECORDS: Final = re.compile(r"ledger.*|token|tokens\.json|secrets|logins")
"""Names in the state directory of what cannot be made again."""

_TAKEN_AWAY: Final = re.compile(r"\.purged-[0-9a-f]{16}")
"""The rest of an interrupted removal."""

OWNER_NAME: Final = "owner"

_MAX_OWNER_BYTES: Final = 16 * 1024
"""A scope is a path."""

CLAIM_S: Final = 5.0
"""Seconds for another start to claim its directory, which takes a few system calls unless it is suspended."""

NOTICE: Final = "Sandbox is partial here (%s): see `quarterdeck doctor`"
MARKER: Final = "sandbox-notice"
_log = logging.getLogger("quarterdeck.sandbox")


class LeftoverKind(StrEnum):
    """The kind of a leftover."""

    SERVER = "server"
    WORKSPACE = "workspace"
    RECORD = "record"
    REST = "rest"
    SEALS = "seals"


class Leftover(msgspec.Struct, frozen=True):
    """One thing that can be removed as a whole.

    `name` is a server's id, else the name on disk; `digest` is a server's `Settings.home_digest`; `used_by` tells why
    it must stay now.
    """

    kind: LeftoverKind
    path: Path
    name: str
    digest: str = ""
    used_by: str = ""

    def measured(self) -> DiskUse:
        """Return the disk space that it takes."""
        return measure_disk_use(self.path)


class RemovalError(Exception):
    """A leftover is still there; the text says why, and what to do."""


def find_leftovers(state: Path, live: frozenset[str], seals: Path | None = None) -> list[Leftover]:
    """Return all there is below the state directory, without links and unknown files, and the folder of seals, if it is
    given; `live` is of `live_digests`.
    """
    state = Path(os.path.realpath(state))
    found: list[Leftover] = []
    for folder in _folders(state / "servers"):
        if _TAKEN_AWAY.fullmatch(folder.name):
            found.append(Leftover(LeftoverKind.REST, folder, folder.name))
        else:
            used = "it is running" if folder.name in live else ""
            found += [_folder_left(LeftoverKind.SERVER, each, folder.name, used) for each in _folders(folder)]
    for folder in _folders(state / "workspaces"):
        is_open = any(is_held(SessionPaths(each).lock) for each in _folders(folder / "sessions"))
        found.append(_folder_left(LeftoverKind.WORKSPACE, folder, "", "a session is open" if is_open else ""))
    used = "something is running" if live else ""
    if seals is not None and seals.is_dir():
        found.append(Leftover(LeftoverKind.SEALS, Path(os.path.realpath(seals)), seals.name, "", used))
    with suppress(OSError):
        records = [state / name for name in sorted(os.listdir(state)) if RECORDS.fullmatch(name)]
        found += [Leftover(LeftoverKind.RECORD, path, path.name, "", used) for path in records]
    return found


def _folder_left(kind: LeftoverKind, path: Path, digest: str, used_by: str) -> Leftover:
    if _TAKEN_AWAY.fullmatch(path.name):
        return Leftover(LeftoverKind.REST, path, path.name, digest)
    return Leftover(kind, path, path.name, digest, used_by)


def remove_leftover(leftover: Leftover, state: Path) -> None:
    """Remove it whole; its directory too, once that is empty.  Raises `RemovalError` if it is in use, is not below
    `state`, or cannot be removed.
    """
    state, path = Path(os.path.realpath(state)), leftover.path
    if leftover.used_by:
        raise RemovalError(f"{path} is left, since {leftover.used_by}: stop it first")
    if Path(os.path.realpath(path)) != path or state not in path.parents:
        raise RemovalError(f"{path} is left, since it is not really below {state}: remove the link to it")
    if mounted := _mounted_in(path):
        raise RemovalError(f"{path} is left, since {mounted} is mounted in it: unmount that first")
    taken = path if _TAKEN_AWAY.fullmatch(path.name) else path.with_name(f".purged-{secrets.token_hex(8)}")
    try:
        path.rename(taken)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RemovalError(f"{path} cannot be removed: {error.strerror or error}") from error
    remove_tree(str(taken))
    if os.path.lexists(taken):
        owner = "; part of it belongs to another user: run this as root" if os.geteuid() != 0 else ""
        raise RemovalError(f"{taken}, which was {path}, cannot be removed whole{owner}")
    with suppress(OSError):  # it holds others
        if path.parent != state:
            path.parent.rmdir()


def _folders(path: Path) -> Iterator[Path]:
    """Yield the directories in a directory, no links; none if it is itself a link, or missing."""
    if path.is_symlink():
        return
    with suppress(OSError):
        for name in sorted(os.listdir(path)):
            folder = path / name
            if folder.is_dir() and not folder.is_symlink():
                yield folder


def _mounted_in(path: Path) -> str | None:
    """Return a file system mounted at `path` or below: its files are not ours to remove."""
    import psutil  # which only a removal needs

    points = (Path(part.mountpoint) for part in psutil.disk_partitions(all=True))
    return next((str(point) for point in points if point == path or path in point.parents), None)


def reserve_server_home(digest: str, server: str, scope: str) -> None:
    """Reserve a server's directory for `scope`, the ledger's name of its configuration; another's is renamed. Blocking.
    Raises `UnsafePathError` if it is not ours alone, or cannot be renamed or made.
    """
    base = server_paths(digest, server).home.parent
    with writing_below(base, STATE_DIR_VARIABLE), _alone_in(make_private_dir(base.parent)):
        _claim(base, scope.encode("utf-8", "surrogateescape"))


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Let no other process claim a directory in this one meanwhile: two decks start a server in the same instant."""
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        acquire(lock, CLAIM_S)
        yield
    finally:
        os.close(lock)


def _claim(base: Path, wanted: bytes) -> None:
    owner = _owner(base)
    if base.exists() and owner != wanted:
        # What has no owner is given to no server.
        os.rename(base, _aside(base, owner))
    if not base.exists() and _aside(base, wanted).exists():
        os.rename(_aside(base, wanted), base)
    make_private_dir(base)
    if owner != wanted:
        (base / OWNER_NAME).write_bytes(wanted)


def _owner(base: Path) -> bytes:
    try:
        with open(base / OWNER_NAME, "rb") as file:
            return file.read(_MAX_OWNER_BYTES)
    except OSError:
        return b""


def _aside(base: Path, owner: bytes) -> Path:
    return base.with_name(f"{base.name}.{hashlib.sha256(owner).hexdigest()[:12]}")


def names_of_gaps(gaps: Sequence[str]) -> str:
    """Return the properties of the gaps: `network, memory`."""
    return ", ".join(sorted({gap.partition(":")[0] for gap in gaps}))


def warn_of_gaps(gaps: Sequence[str], directory: Path | None = None) -> bool:
    """Warn that sandboxes are partial here, once for each state directory and set of gaps (`network: …`); return
    whether now.

    `ps`, `inspect` and `doctor` show the details.  The warning is repeated where it cannot be noted down.
    """
    names = names_of_gaps(gaps)
    marker = (directory or state_dir()) / MARKER
    with suppress(OSError):  # never said, or not noted down
        if marker.read_text("utf-8", "replace") == names:
            return False
    _log.warning(NOTICE, names)
    with suppress(OSError):  # there is no such directory, or its disk is full, or it is not ours
        marker.write_text(names, "utf-8")
    return True
