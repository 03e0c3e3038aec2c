"""The MCP clients that we know, and where each keeps its servers on each system.

A path of the table may start with `~` (the home directory; for `System.WINDOWS` the user's profile, seen from inside
WSL), with `$NAME` (a variable; the place is passed over where it is unset), and hold one `*` in a name.
"""

from enum import StrEnum
from typing import Final

import msgspec

from .row_shapes import COMMON, RowShape

_DESKTOP_FILE: Final = "claude_desktop_config.json"

PROJECTS: Final = "projects"
"""The key, by project folder, under which a client keeps servers of single projects in the user's file."""


class System(StrEnum):
    """Where a client runs.  Inside WSL there are two: `LINUX`, and `WINDOWS` around it."""

    LINUX = "linux"
    MACOS = "macos"
    WINDOWS = "windows"


class ClientFile(msgspec.Struct, frozen=True):
    """One file that a client may read; an `is_spare` one is read when servers are imported, never written to.

    `path` is a template, as the module describes; `marker` exists where the client is installed, by default the file's
    directory.
    """

    path: str
    systems: tuple[System, ...] = (System.LINUX, System.MACOS)
    marker: str = ""
    is_spare: bool = False


class Client(msgspec.Struct, frozen=True):
    """A program that starts MCP servers.

    Attributes:
        name: its name on our command line.
        title: its name for people.
        places: the user's files, the preferred one first.
        keys: lead to the object in its files that holds a row for each server.
        project_files: its files in a project's folder.
        has_comments: its files may hold comments and trailing commas.
        expands: it resolves `${…}`; else such a text means itself.
        has_list: rows are items of a list, each with its name.
        has_workspace: it starts servers in the folder that it has open.
        keeps_projects: the user's file also has servers of single projects, under `projects`.
    """

    name: str
    title: str
    places: tuple[ClientFile, ...]
    keys: tuple[str, ...] = ("mcpServers",)
    project_files: tuple[str, ...] = ()
    has_comments: bool = False
    expands: bool = True
    shape: RowShape = COMMON
    has_list: bool = False
    has_workspace: bool = True
    keeps_projects: bool = False


_LINUX: Final = (System.LINUX,)
_MACOS: Final = (System.MACOS,)
_WINDOWS: Final = (System.WINDOWS,)


def _in_home(path: str) -> tuple[ClientFile, ...]:
    """Return a path in every home directory; with WSL the editor, and so its file, is on Windows."""
    return ClientFile(f"~/{path}", _WINDOWS), ClientFile(f"~/{path}")


def _of_application(path: str, *, is_spare: bool = False) -> tuple[ClientFile, ...]:
    """Return the settings folder of applications on each system."""
    return (
        ClientFile(f"~/Library/Application Support/{path}", _MACOS, is_spare=is_spare),
        ClientFile(f"$XDG_CONFIG_HOME/{path}", _LINUX, is_spare=is_spare),
        ClientFile(f"~/.config/{path}", _LINUX, is_spare=is_spare),
        ClientFile(f"~/AppData/Roaming/{path}", _WINDOWS, is_spare=is_spare),
    )


def _of_command(path: str) -> tuple[ClientFile, ...]:
    """Return a path in every home directory, for a program that also runs inside WSL."""
    return ClientFile(f"~/{path}"), ClientFile(f"~/{path}", _WINDOWS)


def _of_extension(path: str) -> tuple[ClientFile, ...]:
    """Return where VS Code keeps an extension's files, first the server's, which runs inside WSL."""
    stored = f"User/globalStorage/{path}"
    return ClientFile(f"~/.vscode-server/data/{stored}", _LINUX), *_of_application(f"Code/{stored}")


_TYPED: Final = RowShape(marks={"type": "stdio"}, url_marks={"type": "http"})

CLIENTS: Final = (
    Client(
        "claude-desktop",
        "Claude Desktop",
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
        shape=RowShape(url=None),  # the same page: its file starts programs, addresses are for its settings
        has_workspace=False,
    ),
    Client(
        "claude-code",
        "Claude Code",
        (
            # code.claude.com/docs/en/mcp: user and local scope; github.com/anthropics/claude-code/issues/4193
            ClientFile("$CLAUDE_CONFIG_DIR/.claude.json"),
            ClientFile("~/.claude.json", marker="~/.claude"),
            ClientFile("~/.claude.json", _WINDOWS, marker="~/.claude"),
        ),
        project_files=(".mcp.json",),  # the same page: project scope
        shape=_TYPED,
        keeps_projects=True,
    ),
    Client(
        "cursor",
        "Cursor",
        _in_home(".cursor/mcp.json"),  # cursor.com/docs/mcp: global configuration
        project_files=(".cursor/mcp.json",),
        has_comments=True,
        shape=RowShape(marks={"type": "stdio"}),
    ),
    Client(
        "vscode",
        "VS Code",
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
        keys=("servers",),
        project_files=(".vscode/mcp.json",),
        has_comments=True,
        shape=_TYPED,
    ),
    Client(
        "windsurf",
        "Windsurf",
        _in_home(".codeium/windsurf/mcp_config.json"),  # docs.windsurf.com/windsurf/cascade/mcp
        shape=RowShape(url="serverUrl"),
    ),
    Client(
        "codex",
        "Codex",
        # developers.openai.com/codex/mcp; rows: github.com/openai/codex, codex-rs/config/src/mcp_types.rs
        (ClientFile("$CODEX_HOME/config.toml"), *_of_command(".codex/config.toml")),
        keys=("mcp_servers",),
        project_files=(".codex/config.toml",),
        expands=False,
        shape=RowShape(headers=("http_headers",)),
    ),
    Client(
        "gemini-cli",
        "Gemini CLI",
        _of_command(".gemini/settings.json"),  # github.com/google-gemini/gemini-cli, docs/tools/mcp-server.md
        project_files=(".gemini/settings.json",),
        has_comments=True,
        # The same page: $NAME and ${NAME}; `url` alone is for SSE.
        shape=RowShape(url="httpUrl", references=((r"\$([A-Za-z_]\w*)", r"${\1}"),)),
    ),
    Client(
        "zed",
        "Zed",
        (
            # zed.dev/docs/ai/mcp; the file: zed.dev/docs/configuring-zed
            ClientFile("~/AppData/Roaming/Zed/settings.json", _WINDOWS),
            ClientFile("$XDG_CONFIG_HOME/zed/settings.json", _LINUX),
            ClientFile("~/.config/zed/settings.json"),
        ),
        keys=("context_servers",),
        project_files=(".zed/settings.json",),
        has_comments=True,
        expands=False,
    ),
    Client(
        "cline",
        "Cline",
        (
            # docs.cline.bot/mcp/adding-and-configuring-servers: of the extension; its folder is VS Code's for it
            *_of_extension("saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
            # docs.cline.bot/mcp/mcp-overview: of the command
            *_of_command(".cline/data/settings/cline_mcp_settings.json"),
        ),
        shape=RowShape(url_marks={"type": "streamableHttp"}),
    ),
    Client(
        "roo",
        "Roo Code",
        # docs.roocode.com/features/mcp/using-mcp-in-roo; its folder is VS Code's for it
        _of_extension("rooveterinaryinc.roo-cline/settings/mcp_settings.json"),
        project_files=(".roo/mcp.json",),
        has_comments=True,
        shape=RowShape(url_marks={"type": "streamable-http"}),
    ),
    Client(
        "continue",
        "Continue",
        # docs.continue.dev/customize/deep-dives/mcp; rows: github.com/continuedev/continue, packages/config-yaml
        _in_home(".continue/config.yaml"),
        project_files=(".continue/mcpServers/mcp.json",),
        shape=RowShape(
            marks={"type": "stdio"},
            url_marks={"type": "streamable-http"},
            headers=("requestOptions", "headers"),
            is_named=True,
            references=((r"\$\{\{\s*(?:secrets|inputs)\.([A-Za-z_][\w-]*)\s*\}\}", r"${input:\1}"),),
        ),
        has_list=True,
    ),
    Client(
        "goose",
        "Goose",
        (
            # github.com/block/goose, documentation/docs/guides/config-files.md and crates/goose/src/agents/extension.rs
            ClientFile("$XDG_CONFIG_HOME/goose/config.yaml", _LINUX),
            ClientFile("~/.config/goose/config.yaml"),
            ClientFile("~/AppData/Roaming/Block/goose/config/config.yaml", _WINDOWS),
        ),
        keys=("extensions",),
        shape=RowShape(
            command="cmd",
            env="envs",
            marks={"type": "stdio", "enabled": True, "description": "", "timeout": 300},
            url="uri",
            url_marks={"type": "streamable_http", "enabled": True, "description": "", "timeout": 300},
            is_named=True,
        ),
    ),
    Client(
        "copilot-cli",
        "GitHub Copilot CLI",
        # docs.github.com/copilot/how-tos/copilot-cli/customize-copilot/add-mcp-servers
        (ClientFile("$COPILOT_HOME/mcp-config.json"), *_of_command(".copilot/mcp-config.json")),
        project_files=(".mcp.json", ".github/mcp.json"),
        shape=RowShape(marks={"type": "local", "tools": ["*"]}, url_marks={"type": "http", "tools": ["*"]}),
    ),
    Client(
        "lmstudio",
        "LM Studio",
        _in_home(".lmstudio/mcp.json"),  # lmstudio.ai/docs/app/mcp: Cursor's notation
    ),
    Client(
        "opencode",
        "opencode",
        (
            # opencode.ai/docs/config and opencode.ai/docs/mcp-servers; one that is there goes first
            ClientFile("~/.config/opencode/opencode.jsonc", marker="~/.config/opencode/opencode.jsonc"),
            *_of_command(".config/opencode/opencode.json"),
        ),
        keys=("mcp",),
        project_files=("opencode.json", "opencode.jsonc"),
        has_comments=True,
        expands=False,
        shape=RowShape(
            args=None,
            env="environment",
            marks={"type": "local", "enabled": True},
            url_marks={"type": "remote", "enabled": True},
            references=((r"\{env:([A-Za-z_]\w*)\}", r"${\1}"), (r"\{file:([^}]+)\}", r"${file:\1}")),
        ),
    ),
    Client(
        "junie",
        "Junie",
        # junie.jetbrains.com/docs/junie-cli-mcp-configuration.html
        (
            ClientFile("~/.junie/mcp/mcp.json", _WINDOWS, marker="~/.junie"),
            ClientFile("~/.junie/mcp/mcp.json", marker="~/.junie"),
        ),
        project_files=(".junie/mcp/mcp.json",),
        shape=RowShape(url=None),  # jetbrains.com/help/junie/model-context-protocol-mcp.html: stdio alone
    ),
    Client(
        "amp",
        "Amp",
        _of_command(".config/amp/settings.json"),  # ampcode.com/manual
        keys=("amp.mcpServers",),
        project_files=(".amp/settings.json",),
        has_comments=True,
    ),
    Client(
        "warp",
        "Warp",
        _in_home(".warp/.mcp.json"),  # docs.warp.dev/agents/capabilities/mcp
        project_files=(".warp/.mcp.json",),
    ),
)


def find_client(name: str) -> Client | None:
    """Return the client of that name."""
    return next((client for client in CLIENTS if client.name == name), None)
