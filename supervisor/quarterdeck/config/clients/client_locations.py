"""Find the files of MCP clients on this machine: where servers may be written to, and where they may be read from."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from .known_clients import PROJECTS, Client, ClientFile, System

_WINDOWS_DRIVES: Final = Path("/mnt")
"""Where WSL mounts the drives of Windows, unless its configuration says otherwise."""

_MAX_WINDOWS_USERS: Final = 64


class UserDirectories(msgspec.Struct, frozen=True):
    """The directories and variables that paths depend on.

    In WSL, `windows_homes` has the profiles of Windows users, the likeliest first, and `distribution` the name of this
    Linux.
    """

    home: Path
    cwd: Path
    environ: Mapping[str, str]
    system: System
    windows_homes: tuple[Path, ...] = ()
    distribution: str = ""

    @classmethod
    def here(
        cls, environ: Mapping[str, str] | None = None, drives: Path = _WINDOWS_DRIVES, cwd: Path | None = None
    ) -> "UserDirectories":
        """Return those of this process, or of another working directory."""
        environ = os.environ if environ is None else environ
        home = Path(environ.get("HOME") or os.path.expanduser("~"))
        distribution = environ.get("WSL_DISTRO_NAME", "")
        return cls(
            home,
            cwd or Path.cwd(),
            environ,
            System.MACOS if sys.platform == "darwin" else System.LINUX,
            tuple(_windows_homes(environ, home, drives)) if distribution else (),
            distribution,
        )


class ClientLocation(msgspec.Struct, frozen=True):
    """A file of a client, and the keys that lead to its rows.

    `folder` is the project of the rows, None for the user's own; `is_across`: a Windows program reads it, and we are in
    WSL; `is_present`: the client is installed, as far as this file tells.
    """

    client: Client
    path: Path
    keys: tuple[str, ...]
    folder: Path | None = None
    is_across: bool = False
    is_present: bool = True


def user_locations(client: Client, dirs: UserDirectories) -> list[ClientLocation]:
    """Return where the user's servers may be written, present files first, each in the order of the table."""
    found = [location for place in client.places if not place.is_spare for location in _locations(client, place, dirs)]
    return sorted(_without_doubles(found), key=lambda location: not location.is_present)


def sources(client: Client, dirs: UserDirectories) -> list[ClientLocation]:
    """Return where servers may be read, as the client ranks them: an earlier one wins, a project's over the user's."""
    user = [location for place in client.places for location in _locations(client, place, dirs)]
    found: list[ClientLocation] = []
    if client.keeps_projects:
        # Its key is the folder that the client was started in, often the project's root.
        folders = (dirs.cwd, *dirs.cwd.parents)
        found += [
            ClientLocation(client, location.path, (PROJECTS, str(at), *client.keys), at)
            for location in user
            for at in folders
        ]
    users = {location.path for location in user}  # which are the project's as well in the home directory
    files = [dirs.cwd / name for name in client.project_files]
    found += [ClientLocation(client, path, client.keys, dirs.cwd) for path in files if path not in users]
    return _without_doubles([*found, *user])


def _locations(client: Client, place: ClientFile, dirs: UserDirectories) -> Iterator[ClientLocation]:
    for system in place.systems:
        ours = (dirs.home,) if system is dirs.system else ()
        for base in dirs.windows_homes if system is System.WINDOWS else ours:
            for path in _expand(place.path, base, dirs.environ):
                markers = _expand(place.marker, base, dirs.environ) if place.marker else [path.parent]
                present = path.exists() or any(marker.exists() for marker in markers)
                yield ClientLocation(client, path, client.keys, None, system is System.WINDOWS, present)


def _expand(template: str, home: Path, environ: Mapping[str, str]) -> list[Path]:
    """Return the paths that a template of the table means; with a `*`, those whose directory exists."""
    head, _, rest = template.partition("/")
    if head.startswith("$"):
        value = environ.get(head[1:], "")
        if not os.path.isabs(value):
            return []
        base = Path(value)
    else:
        base = home
    if "*" not in rest:
        return [base / rest]
    parent, _, name = rest.rpartition("/")
    try:
        return sorted(folder / name for folder in base.glob(parent) if folder.is_dir())
    except OSError:
        return []


def _windows_homes(environ: Mapping[str, str], home: Path, drives: Path) -> Iterator[Path]:
    """Yield profiles of Windows users; only that of `USERPROFILE`, where it is passed on as a Linux path."""
    named = environ.get("USERPROFILE", "")
    if os.path.isabs(named):
        yield Path(named)
        return
    found: list[Path] = []
    with suppress(OSError):
        for drive in sorted(drives.iterdir())[:_MAX_WINDOWS_USERS]:
            with suppress(OSError):
                users = sorted((drive / "Users").iterdir())[:_MAX_WINDOWS_USERS]
                found += [user for user in users if (user / "AppData" / "Roaming").is_dir() and not user.is_symlink()]
    yield from sorted(found, key=lambda user: user.name.lower() != home.name.lower())


def _without_doubles(locations: list[ClientLocation]) -> list[ClientLocation]:
    return list({(location.path, location.keys): location for location in reversed(locations)}.values())[::-1]
