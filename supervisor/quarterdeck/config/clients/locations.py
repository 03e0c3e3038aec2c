"""Where a client keeps its servers on this machine: its places in the table, turned into paths and looked at."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .table import Client, Place, System

PROJECTS: Final = "projects"
"""Where a client that keeps servers of single projects in the user's file has them, by the project's folder."""

_WINDOWS_DRIVES: Final = Path("/mnt")
"""Where WSL mounts the drives of Windows, unless its configuration says otherwise."""

_MAX_WINDOWS_USERS: Final = 64


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What paths depend on.

    Attributes:
        windows_homes: users' profiles on the Windows around us, the likeliest first; none outside WSL.
        distribution: our name for that Windows.
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
    ) -> "Surroundings":
        """Those of this process, or of another directory."""
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


@dataclass(frozen=True, slots=True)
class Spot:
    """A file of a client's, and the keys that lead to its rows.

    Attributes:
        folder: the project that they are for; None when they are the user's.
        is_across: its reader is a Windows program, and we are inside WSL.
        is_present: the client is installed, as far as this file goes.
    """

    client: Client
    path: Path
    keys: tuple[str, ...]
    folder: Path | None = None
    is_across: bool = False
    is_present: bool = True


def user_spots(client: Client, around: Surroundings) -> list[Spot]:
    """Where the user's servers may be written to, present ones first, each in the order of the table."""
    found = [spot for place in client.places if not place.is_spare for spot in _spots(client, place, around)]
    return sorted(_without_doubles(found), key=lambda spot: not spot.is_present)


def sources(client: Client, around: Surroundings) -> list[Spot]:
    """Where servers may be read from, as the client ranks them: an earlier one wins, the project's over the user's."""
    user = [spot for place in client.places for spot in _spots(client, place, around)]
    found: list[Spot] = []
    if client.keeps_projects:
        # Its key is the folder that the client was started in, often the project's root.
        folders = (around.cwd, *around.cwd.parents)
        found += [Spot(client, spot.path, (PROJECTS, str(at), client.key), at) for spot in user for at in folders]
    found += [Spot(client, around.cwd / name, (client.key,), around.cwd) for name in client.project_files]
    return _without_doubles([*found, *user])


def _spots(client: Client, place: Place, around: Surroundings) -> Iterator[Spot]:
    keys = (client.key,)
    for system in place.systems:
        ours = (around.home,) if system is around.system else ()
        for base in around.windows_homes if system is System.WINDOWS else ours:
            for path in _expand(place.path, base, around.environ):
                markers = _expand(place.marker, base, around.environ) if place.marker else [path.parent]
                present = path.exists() or any(marker.exists() for marker in markers)
                yield Spot(client, path, keys, None, system is System.WINDOWS, present)


def _expand(template: str, home: Path, environ: Mapping[str, str]) -> list[Path]:
    """The paths that a template of the table means; with a `*`, those whose directory exists."""
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
    """Profiles of Windows users; `USERPROFILE`, where it is passed on as a path of ours, names the one."""
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


def _without_doubles(spots: list[Spot]) -> list[Spot]:
    return list({(spot.path, spot.keys): spot for spot in reversed(spots)}.values())[::-1]
