"""Which MCP clients we know, and where each keeps its servers.  Data and its shape; pure.

A path may start with `~` (the home directory; for `System.WINDOWS` the user's profile, seen from inside WSL), with
`$NAME` (a variable; the place is passed over where it is unset), and hold one `*` in a name.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class System(StrEnum):
    """Where a client runs.  Inside WSL there are two: `LINUX`, and `WINDOWS` around it."""

    LINUX = "linux"
    MACOS = "macos"
    WINDOWS = "windows"


@dataclass(frozen=True, slots=True)
class Place:
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
        key: of the object in its files that holds a row for each server.
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
    key: str
    places: tuple[Place, ...]
    project_files: tuple[str, ...] = ()
    has_comments: bool = False
    expands: bool = True
    names_type: bool = False
    has_workspace: bool = True
    keeps_projects: bool = False


_LINUX: Final = (System.LINUX,)
_MACOS: Final = (System.MACOS,)
_WINDOWS: Final = (System.WINDOWS,)

_DESKTOP_FILE: Final = "claude_desktop_config.json"

CLIENTS: Final = (
    Client(
        "claude-desktop",
        "Claude Desktop",
        "mcpServers",
        (
            # modelcontextprotocol.io/docs/develop/connect-local-servers
            Place(f"~/Library/Application Support/Claude/{_DESKTOP_FILE}", _MACOS),
            # Its Windows packages have directories of their own, and then ignore the roaming one: seen on machines.
            Place(f"~/AppData/Local/Claude-Data/claude*/{_DESKTOP_FILE}", _WINDOWS),
            Place(f"~/AppData/Local/Packages/Claude_*/LocalCache/Roaming/Claude/{_DESKTOP_FILE}", _WINDOWS),
            # modelcontextprotocol.io/docs/develop/connect-local-servers: %APPDATA%\Claude
            Place(f"~/AppData/Roaming/Claude/{_DESKTOP_FILE}", _WINDOWS),
            # Electron's custom on Linux; github.com/aaddrick/claude-desktop-debian, docs/CONFIGURATION.md
            Place(f"$XDG_CONFIG_HOME/Claude/{_DESKTOP_FILE}", _LINUX),
            Place(f"~/.config/Claude/{_DESKTOP_FILE}", _LINUX),
        ),
        expands=False,
        has_workspace=False,
    ),
    Client(
        "claude-code",
        "Claude Code",
        "mcpServers",
        (
            # code.claude.com/docs/en/mcp: user and local scope; github.com/anthropics/claude-code/issues/4193
            Place("$CLAUDE_CONFIG_DIR/.claude.json"),
            Place("~/.claude.json", marker="~/.claude"),
            Place("~/.claude.json", _WINDOWS, marker="~/.claude"),
        ),
        project_files=(".mcp.json",),  # the same page: project scope
        names_type=True,
        keeps_projects=True,
    ),
    Client(
        "cursor",
        "Cursor",
        "mcpServers",
        (
            # cursor.com/docs/mcp: global configuration; with WSL the editor, and so its file, is on Windows
            Place("~/.cursor/mcp.json", _WINDOWS),
            Place("~/.cursor/mcp.json"),
        ),
        project_files=(".cursor/mcp.json",),
        has_comments=True,
        names_type=True,
    ),
    Client(
        "vscode",
        "VS Code",
        "servers",
        (
            # MCP: Open Remote User Configuration, which runs inside WSL; github.com/microsoft/vscode/issues/256546
            Place("~/.vscode-server/data/User/mcp.json", _LINUX),
            # code.visualstudio.com/docs/agents/reference/mcp-configuration: mcp.json of the user profile, which is in
            # the directory of settings.json: code.visualstudio.com/docs/configure/settings
            Place("~/Library/Application Support/Code/User/mcp.json", _MACOS),
            Place("$XDG_CONFIG_HOME/Code/User/mcp.json", _LINUX),
            Place("~/.config/Code/User/mcp.json", _LINUX),
            Place("~/AppData/Roaming/Code/User/mcp.json", _WINDOWS),
            Place("~/Library/Application Support/Code - Insiders/User/mcp.json", _MACOS),
            Place("~/.config/Code - Insiders/User/mcp.json", _LINUX),
            Place("~/AppData/Roaming/Code - Insiders/User/mcp.json", _WINDOWS),
            # code.visualstudio.com/docs/configure/profiles: one for each profile beside the default one
            Place("~/Library/Application Support/Code/User/profiles/*/mcp.json", _MACOS, is_spare=True),
            Place("~/.config/Code/User/profiles/*/mcp.json", _LINUX, is_spare=True),
            Place("~/AppData/Roaming/Code/User/profiles/*/mcp.json", _WINDOWS, is_spare=True),
        ),
        project_files=(".vscode/mcp.json",),
        has_comments=True,
        names_type=True,
    ),
    Client(
        "windsurf",
        "Windsurf",
        "mcpServers",
        (
            # docs.windsurf.com/windsurf/cascade/mcp
            Place("~/.codeium/windsurf/mcp_config.json", _WINDOWS),
            Place("~/.codeium/windsurf/mcp_config.json"),
        ),
    ),
)


def find_client(name: str) -> Client | None:
    """The client of that name."""
    return next((client for client in CLIENTS if client.name == name), None)
