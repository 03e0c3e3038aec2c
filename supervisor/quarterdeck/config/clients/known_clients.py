"""The MCP clients that we know, and where each keeps its servers on this machine.

A path of the table may start with `~` (the home directory; for `System.WINDOWS` the user's profile, seen from inside
WSL), with `$NAME` (a variable; the place is passed over where it is unset), and hold one `*` in a name.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

_DESKTOP_FILE: Final = "claude_desktop_config.json"

PROJECTS: Final = "projects"
"""Where a client that keeps servers of single projects in the user's file has them, by the project's folder."""

_WINDOWS_DRIVES: Final = Path("/mnt")
"""Where WSL mounts the drives of Windows, unless its configuration says otherwise."""

_MAX_WINDOWS_USERS: Final = 64


class System(StrEnum):
    """Where a client runs.  Inside WSL there are two: `LINUX`, and `WINDOWS` around it."""

    LINUX = "linux"
    MACOS = "macos"
    WINDOWS = "windows"


@dataclass(frozen=True, slots=True)
class ClientFile:
    """One file that a client may read.

    Attributes:
        path: of the file, see the module.
        systems: where the client has it there.
        marker: what exists where the client is installed; by default the file's directory.
        is_spare: read when servers are imported, never written to.
    """

    path: str
    systems: tuple[System, ...] = (System.LINUX, System.MACOS)
    marker: str = ""
    is_spare: bool = False


@dataclass(frozen=True, slots=True)
class Client:
    """A program that starts MCP servers.

    Attributes:
        name: on our command line.
        title: for people.
        keys: lead to the object in its files that holds a row for each server.
        places: the user's files, the one to be preferred first.
        project_files: the same in a project's folder.
        has_comments: its files may hold comments and trailing commas.
        expands: it resolves `${…}`; else such a text means itself.
        names_type: its rows say `"type": "stdio"`.
        has_workspace: it starts servers in the folder that it has open.
        keeps_projects: the user's file also has servers of single projects, under `projects`.
    """

    name: str
    title: str
    keys: tuple[str, ...]
    places: tuple[ClientFile, ...]
    project_files: tuple[str, ...] = ()
    has_comments: bool = False
    expands: bool = True
    names_type: bool = False
    has_workspace: bool = True
    keeps_projects: bool = False


_LINUX: Final = (System.LINUX,)
_MACOS: Final = (System.MACOS,)
_WINDOWS: Final = (System.WINDOWS,)


def _in_home(path: str) -> tuple[ClientFile, ...]:
    """The same place in every home directory; with WSL the editor, and so its file, is on Windows."""
    return ClientFile(f"~/{path}", _WINDOWS), ClientFile(f"~/{path}")


def _of_application(path: str, *, is_spare: bool = False) -> tuple[ClientFile, ...]:
    """Where each system has applications keep what their user has set."""
    return (
        ClientFile(f"~/Library/Application Support/{path}", _MACOS, is_spare=is_spare),
        ClientFile(f"$XDG_CONFIG_HOME/{path}", _LINUX, is_spare=is_spare),
        ClientFile(f"~/.config/{path}", _LINUX, is_spare=is_spare),
        ClientFile(f"~/AppData/Roaming/{path}", _WINDOWS, is_spare=is_spare),
    )


CLIENTS: Final = (
    Client(
        "claude-desktop",
        "Claude Desktop",
        ("mcpServers",),
        (
            # modelcontextprotocol.io/docs/develop/connect-local-servers
            ClientFile(f"~/Library/Application Support/Claude/{_DESKTOP_FILE}", _MACOS),
            # Its Windows packages have directories of their own, and then ignore the roaming one: seen on machines.
            ClientFile(f"~/AppData/Local/Claude-Data/claude*/{_DESKTOP_FILE}", _WINDOWS),
            ClientFile(f"~/AppData/Local/Packages/Claude_*/LocalCache/Roaming/Claude/{_DESKTOP_FILE}", _WINDOWS),
            # modelcontextprotocol.io/docs/develop/connect-local-servers: %APPDATA%\Claude
            ClientFile(f"~/AppData/Roaming/Claude/{_DESKTOP_FILE}", _WINDOWS),
            # Electron's custom on Linux; github.com/aaddrick/claude-desktop-debian, docs/CONFIGURATION.md
            ClientFile(f"$XDG_CONFIG_HOME/Claude/{_DESKTOP_FILE}", _LINUX),
            ClientFile(f"~/.config/Claude/{_DESKTOP_FILE}", _LINUX),
        ),
        expands=False,
        has_workspace=False,
    ),
    Client(
        "claude-code",
        "Claude Code",
        ("mcpServers",),
        (
            # code.claude.com/docs/en/mcp: user and local scope; github.com/anthropics/claude-code/issues/4193
            ClientFile("$CLAUDE_CONFIG_DIR/.claude.json"),
            ClientFile("~/.claude.json", marker="~/.claude"),
            ClientFile("~/.claude.json", _WINDOWS, marker="~/.claude"),
        ),
        project_files=(".mcp.json",),  # the same page: project scope
        names_type=True,
        keeps_projects=True,
    ),
    Client(
        "cursor",
        "Cursor",
        ("mcpServers",),
        _in_home(".cursor/mcp.json"),  # cursor.com/docs/mcp: global configuration
        project_files=(".cursor/mcp.json",),
        has_comments=True,
        names_type=True,
    ),
    Client(
        "vscode",
        "VS Code",
        ("servers",),
        (
            # MCP: Open Remote User Configuration, which runs inside WSL; github.com/microsoft/vscode/issues/256546
            ClientFile("~/.vscode-server/data/User/mcp.json", _LINUX),
            # code.visualstudio.com/docs/agents/reference/mcp-configuration: mcp.json of the user profile, which is in
            # the directory of settings.json: code.visualstudio.com/docs/configure/settings
            *_of_application("Code/User/mcp.json"),
            *_of_application("Code - Insiders/User/mcp.json"),
            # code.visualstudio.com/docs/configure/profiles: one for each profile beside the default one
            *_of_application("Code/User/profiles/*/mcp.json", is_spare=True),
        ),
        project_files=(".vscode/mcp.json",),
        has_comments=True,
        names_type=True,
    ),
    Client(
        "windsurf",
        "Windsurf",
        ("mcpServers",),
        _in_home(".codeium/windsurf/mcp_config.json"),  # docs.windsurf.com/windsurf/cascade/mcp
    ),
)


@dataclass(frozen=True, slots=True)
class UserDirectories:
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
    ) -> "UserDirectories":
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
class ClientLocation:
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


def find_client(name: str) -> Client | None:
    """The client of that name."""
    return next((client for client in CLIENTS if client.name == name), None)


def user_locations(client: Client, dirs: UserDirectories) -> list[ClientLocation]:
    """Where the user's servers may be written to, present ones first, each in the order of the table."""
    found = [location for place in client.places if not place.is_spare for location in _locations(client, place, dirs)]
    return sorted(_without_doubles(found), key=lambda location: not location.is_present)


def sources(client: Client, dirs: UserDirectories) -> list[ClientLocation]:
    """Where servers may be read from, as the client ranks them: an earlier one wins, the project's over the user's."""
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
    found += [ClientLocation(client, dirs.cwd / name, client.keys, dirs.cwd) for name in client.project_files]
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


def _without_doubles(locations: list[ClientLocation]) -> list[ClientLocation]:
    return list({(location.path, location.keys): location for location in reversed(locations)}.values())[::-1]
