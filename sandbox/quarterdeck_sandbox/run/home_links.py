"""Make `~` in a private home mean what the user means by it, by symbolic links to the user's own files and folders.

    granted paths                      a link at the same place below the private home
    Documents, Desktop, Downloads, …   a link if the user has such a folder; if it is not granted the link leads to a
                                       place that the process cannot open, which is an error that names the path

Mounts could be undone by a process that may change the folder around them (CVE-2026-87766), and Landlock has none.  The
private home belongs to a hostile process, which may run meanwhile: every step starts from a folder's descriptor, no
link is followed, and whatever the process has of its own stays, except for an empty folder.  A file beside the home
names the links, so that those of former grants are found.  Blocking.
"""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck_sandbox.hostile_files import open_regular, read_text
from quarterdeck_sandbox.policy.confinement import UnixUser
from quarterdeck_sandbox.policy.mounts import Places, is_within
from quarterdeck_sandbox.program.launch import words_of

RECORD: Final = ".links"  # after the home's name: the file that names its links
MAX_LINKS: Final = 1_000  # in one home; each costs a few system calls at every start
MAX_RECORD_BYTES: Final = 1 << 20
MAX_NOTES: Final = 5
HOME_NOTE: Final = "home: "
"""Begins each line about a link that could not be made."""

_USUAL: Final = ("Desktop", "Documents", "Downloads", "Music", "Pictures", "Public", "Templates", "Videos")
_USER_DIRS: Final = ".config/user-dirs.dirs"  # names them in the user's language
_NAMED: Final = re.compile(r'^XDG_[A-Z]{1,32}_DIR="\$HOME/([^"\n]{1,255})"', re.MULTILINE)
_MAX_USER_DIRS_BYTES: Final = 16 * 1024
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def link_home(places: Places, granted: Iterable[str], owner: UnixUser | None) -> tuple[str, ...]:
    """Make the private home's links, remove those that are no longer wanted; return, in words, what could not be done.

    New folders above a link are given to `owner`, unless it is None.
    """
    wanted = _wanted(str(places.user_home), granted)
    if not wanted and not os.path.lexists(_record(places.home)):
        return ()
    notes = [f"{HOME_NOTE}it has {MAX_LINKS:,} links, and can have no more"] if len(wanted) == MAX_LINKS else []
    try:
        home = os.open(places.home, _FOLDER)
    except OSError as error:
        return (f"{HOME_NOTE}it has no links ({words_of(error)})",)
    try:
        made = links_of(places.home)
        for name, target in made.items():
            if wanted.get(name) != target:
                _unlink(home, name, target)
        for name, target in wanted.items():
            if why := _link(home, name, target, wanted, owner):
                notes.append(f"{HOME_NOTE}~/{name} {why}; the user's is {target}")
        if wanted != made:
            _write(places.home, wanted)
    except OSError as error:
        notes.append(f"{HOME_NOTE}its links are not all there ({words_of(error)})")
    finally:
        os.close(home)
    more = len(notes) - MAX_NOTES
    return (*notes[:MAX_NOTES], *([f"{HOME_NOTE}{more:,} more paths have no link"] if more > 0 else ()))


def _wanted(user_home: str, granted: Iterable[str]) -> dict[str, str]:
    """Return the targets of links by their names, paths from the private home, folders before their content."""
    homes = dict.fromkeys((os.path.normpath(user_home), os.path.realpath(user_home)))
    if "/" in homes:
        return {}
    first, found = next(iter(homes)), dict[str, str]()
    usual = [name for name in (*_USUAL, *_names_of_user(first)) if os.path.isdir(f"{first}/{name}")]
    found |= {name: f"{first}/{name}" for name in usual}
    for path in granted:
        if len(found) == MAX_LINKS:
            break
        for home in homes:
            if path != home and is_within(path, home):
                # A home that is a link is there inside only for grants that go through it.
                found |= {name: f"{home}/{name}" for name in usual if is_within(path, f"{home}/{name}")}
                found.setdefault(path[len(home) + 1 :], path)
    return dict(sorted(found.items(), key=lambda link: link[0].split("/")))


def _names_of_user(user_home: str) -> list[str]:
    """Return what the user's settings call these folders; nothing that begins with a dot is one."""
    with suppress(OSError):
        named = map(os.path.normpath, _NAMED.findall(read_text(f"{user_home}/{_USER_DIRS}", _MAX_USER_DIRS_BYTES)))
        return [name for name in named if not name.startswith((".", "/"))]
    return []


def _link(home: int, name: str, target: str, wanted: Mapping[str, str], owner: UnixUser | None) -> str:
    """Make one link, unless a link above it leads there; return why it cannot be made."""
    *folders, last = name.split("/")
    above, current = "", os.dup(home)
    try:
        for folder in folders:
            above = f"{above}/{folder}".lstrip("/")
            if _leads_to(current, folder, wanted.get(above)):
                return ""
            inner = _enter(current, folder, owner)
            os.close(current)
            current = inner
        if _leads_to(current, last, target):
            return ""
        with suppress(OSError):
            os.rmdir(last, dir_fd=current)  # nothing of its own is lost: it is empty, or it stays
        os.symlink(target, last, dir_fd=current)
    except (FileExistsError, NotADirectoryError):
        return "is a file or folder of its own"
    except OSError as error:
        return f"cannot be made ({error.strerror})"
    finally:
        os.close(current)
    return ""


def _enter(folder: int, name: str, owner: UnixUser | None) -> int:
    """Open a folder below this one; make it, for `owner`, if there is none."""
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        os.mkdir(name, 0o700, dir_fd=folder)
    inner = os.open(name, _FOLDER, dir_fd=folder)
    if owner is not None:
        os.chown(inner, owner.uid, owner.gid)
    return inner


def _unlink(home: int, name: str, target: str) -> None:
    """Remove a link that we made and that is as we made it."""
    *folders, last = name.split("/")
    current = os.dup(home)
    try:
        for folder in folders:
            inner = os.open(folder, _FOLDER, dir_fd=current)
            os.close(current)
            current = inner
        if _leads_to(current, last, target):
            os.unlink(last, dir_fd=current)
    except OSError:
        pass  # it is gone, or the process has put something else in its place
    finally:
        os.close(current)


def _leads_to(folder: int, name: str, target: str | None) -> bool:
    try:
        return os.readlink(name, dir_fd=folder) == target
    except OSError:
        return False


def _record(home: Path) -> Path:
    return home.with_name(home.name + RECORD)


def links_of(home: Path) -> dict[str, str]:
    """Return the links that we made in a private home: their targets, by their paths below it.

    The file beside the home says so, which a trusted process could have changed.
    """
    try:
        with open_regular(_record(home), follow_link=False) as file:
            made = msgspec.json.decode(file.read(MAX_RECORD_BYTES), type=dict[str, str])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return {name: target for name, target in made.items() if not {"", ".", ".."} & {*name.split("/")}}


def _write(home: Path, links: Mapping[str, str]) -> None:
    """Replace the record.  Raise OSError if that fails."""
    new = _record(home).with_name(f".{home.name}{RECORD}-{os.getpid()}")
    with suppress(FileNotFoundError):
        new.unlink()
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(links))
    new.replace(_record(home))
