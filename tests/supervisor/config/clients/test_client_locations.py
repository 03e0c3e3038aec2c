"""Clients' files are found on this machine, on each system."""

from pathlib import Path

import pytest

from quarterdeck.config.clients.client_locations import ClientLocation, UserDirectories, sources, user_locations
from quarterdeck.config.clients.known_clients import Client, System, find_client


def client(name: str) -> Client:
    found = find_client(name)
    assert found is not None
    return found


def directories(tmp_path: Path, system: System = System.LINUX, **environ: str) -> UserDirectories:
    return UserDirectories(tmp_path / "home", tmp_path / "work", environ, system)


def shown(locations: list[ClientLocation], base: Path) -> list[str]:
    return [str(location.path.relative_to(base)) for location in locations]


CLINE = "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"


@pytest.mark.parametrize(
    ("name", "system", "expected"),
    [
        ("claude-desktop", System.LINUX, ".config/Claude/claude_desktop_config.json"),
        ("claude-desktop", System.MACOS, "Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude-code", System.LINUX, ".claude.json"),
        ("claude-code", System.MACOS, ".claude.json"),
        ("cursor", System.LINUX, ".cursor/mcp.json"),
        ("vscode", System.LINUX, ".config/Code/User/mcp.json"),
        ("vscode", System.MACOS, "Library/Application Support/Code/User/mcp.json"),
        ("windsurf", System.MACOS, ".codeium/windsurf/mcp_config.json"),
        ("codex", System.LINUX, ".codex/config.toml"),
        ("gemini-cli", System.MACOS, ".gemini/settings.json"),
        ("zed", System.MACOS, ".config/zed/settings.json"),
        ("zed", System.LINUX, ".config/zed/settings.json"),
        ("cline", System.MACOS, f"Library/Application Support/{CLINE}"),
        ("cline", System.LINUX, ".cline/data/settings/cline_mcp_settings.json"),
        ("roo", System.LINUX, ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"),
        ("continue", System.LINUX, ".continue/config.yaml"),
        ("goose", System.MACOS, ".config/goose/config.yaml"),
        ("copilot-cli", System.LINUX, ".copilot/mcp-config.json"),
        ("lmstudio", System.MACOS, ".lmstudio/mcp.json"),
        ("opencode", System.LINUX, ".config/opencode/opencode.json"),
        ("junie", System.LINUX, ".junie/mcp/mcp.json"),
        ("amp", System.MACOS, ".config/amp/settings.json"),
        ("warp", System.LINUX, ".warp/.mcp.json"),
    ],
)
def test_an_installed_client_is_found(tmp_path: Path, name: str, system: System, expected: str) -> None:
    """Linking would say that it is not installed, or write where nobody reads."""
    surroundings = directories(tmp_path, system)
    marker = ".claude" if name == "claude-code" else Path(expected).parent
    (surroundings.home / marker).mkdir(parents=True)
    [first, *others] = user_locations(client(name), surroundings)
    assert first.path == surroundings.home / expected
    assert first.is_present
    assert not any(location.is_present for location in others)
    assert first.keys == client(name).keys


def test_one_of_two_names_is_taken_that_is_there(tmp_path: Path) -> None:
    """A user would have two files of settings, and edit the wrong one."""
    surroundings = directories(tmp_path)
    path = surroundings.home / ".config" / "opencode" / "opencode.jsonc"
    path.parent.mkdir(parents=True)
    path.touch()
    assert user_locations(client("opencode"), surroundings)[0].path == path


def test_in_the_home_directory_a_users_file_is_no_projects(tmp_path: Path) -> None:
    """Its relative paths would start elsewhere, and nothing be offered to be taken out of it."""
    surroundings = UserDirectories(tmp_path, tmp_path, {}, System.LINUX)
    found = sources(client("codex"), surroundings)
    assert [(location.path, location.folder) for location in found] == [(tmp_path / ".codex" / "config.toml", None)]


def test_a_client_that_is_missing_is_told_from_one_without_a_file(tmp_path: Path) -> None:
    """A file would be made for a program that is not there."""
    assert not user_locations(client("claude-code"), directories(tmp_path))[0].is_present
    (tmp_path / "home").mkdir()
    assert not user_locations(client("claude-code"), directories(tmp_path))[0].is_present
    (tmp_path / "home" / ".claude.json").touch()
    assert user_locations(client("claude-code"), directories(tmp_path))[0].is_present


def test_variables_move_a_clients_files(tmp_path: Path) -> None:
    """The file of another profile would be changed."""
    (tmp_path / "other").mkdir()
    moved = directories(tmp_path, CLAUDE_CONFIG_DIR=str(tmp_path / "other"))
    assert user_locations(client("claude-code"), moved)[0].path == tmp_path / "other" / ".claude.json"
    relative = directories(tmp_path, CLAUDE_CONFIG_DIR="other")
    assert user_locations(client("claude-code"), relative)[0].path == tmp_path / "home" / ".claude.json"


def test_a_projects_files_go_before_the_users(tmp_path: Path) -> None:
    """Of two servers with one name another would be imported than the client uses."""
    surroundings = directories(tmp_path)
    found = sources(client("claude-code"), surroundings)
    home, work = tmp_path / "home" / ".claude.json", tmp_path / "work"
    assert [(location.path, location.keys, location.folder) for location in found[:2]] == [
        (home, ("projects", str(work), "mcpServers"), work),
        (home, ("projects", str(tmp_path), "mcpServers"), tmp_path),
    ]
    assert [(location.path, location.keys, location.folder) for location in found[-2:]] == [
        (work / ".mcp.json", ("mcpServers",), work),
        (home, ("mcpServers",), None),
    ]
    assert sources(client("vscode"), surroundings)[0].path == work / ".vscode" / "mcp.json"


def test_other_profiles_of_an_editor_are_read_and_not_written(tmp_path: Path) -> None:
    """Servers of a profile would be missed, or we be linked into one of many."""
    profile = tmp_path / "home" / ".config" / "Code" / "User" / "profiles" / "abc"
    profile.mkdir(parents=True)
    assert profile / "mcp.json" in [location.path for location in sources(client("vscode"), directories(tmp_path))]
    assert profile / "mcp.json" not in [
        location.path for location in user_locations(client("vscode"), directories(tmp_path))
    ]


def test_inside_wsl_the_windows_around_it_is_looked_at(tmp_path: Path) -> None:
    """Claude Desktop runs there and nowhere else, so that no user of WSL could link it."""
    drives = tmp_path / "mnt"
    for name in ("Public", "anna", "me"):
        (drives / "c" / "Users" / name).mkdir(parents=True)
    for name in ("anna", "me"):
        (drives / "c" / "Users" / name / "AppData" / "Roaming" / "Claude").mkdir(parents=True)
    environ = {"HOME": "/home/me", "WSL_DISTRO_NAME": "Ubuntu"}
    found = UserDirectories.here(environ, drives)
    assert found.windows_homes == (drives / "c" / "Users" / "me", drives / "c" / "Users" / "anna")
    assert found.distribution == "Ubuntu"
    linux = UserDirectories(found.home, found.cwd, environ, System.LINUX, found.windows_homes, "Ubuntu")
    [mine, annas, *rest] = user_locations(client("claude-desktop"), linux)
    assert shown([mine, annas], drives / "c" / "Users") == [
        "me/AppData/Roaming/Claude/claude_desktop_config.json",
        "anna/AppData/Roaming/Claude/claude_desktop_config.json",
    ]
    assert mine.is_across
    assert not rest[0].is_across
    store = found.windows_homes[0] / "AppData" / "Local" / "Packages" / "Claude_x"
    (store / "LocalCache" / "Roaming" / "Claude").mkdir(parents=True)
    assert user_locations(client("claude-desktop"), linux)[0].path.is_relative_to(store)


def test_outside_wsl_no_drive_is_looked_at(tmp_path: Path) -> None:
    """A mounted disk of somebody else's would be written to."""
    (tmp_path / "c" / "Users" / "me" / "AppData" / "Roaming").mkdir(parents=True)
    assert UserDirectories.here({"HOME": "/home/me"}, tmp_path).windows_homes == ()


def test_the_windows_user_can_be_named(tmp_path: Path) -> None:
    """Where two have the client, nobody could say which is meant."""
    environ = {"HOME": "/home/me", "WSL_DISTRO_NAME": "U", "USERPROFILE": "/mnt/c/Users/anna"}
    assert UserDirectories.here(environ, tmp_path).windows_homes == (Path("/mnt/c/Users/anna"),)
