"""Which package is installed, in the layouts that npx, uv and venv really make."""

import json
import os
from pathlib import Path

import pytest

from quarterdeck.trust.package import has_to_install, resolved_package


def write(path: Path, text: str = "", at: float = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if at:
        os.utime(path, (at, at))
    return path


def npx(home: Path, cache: str, name: str, version: str, spec: str, at: float) -> None:
    """As npm 11 lays it out."""
    root = home / ".npm" / "_npx" / cache
    write(root / "package.json", json.dumps({"dependencies": {name: "^1"}, "_npx": {"packages": [spec]}}))
    write(root / "node_modules" / name / "package.json", json.dumps({"name": name, "version": version}))
    os.utime(root / "node_modules", (at, at))


def uv(home: Path, entry: str, distribution: str, at: float, *, is_environment: bool = True) -> Path:
    """As uv 0.9 and later lay it out: environments and unpacked wheels in one archive."""
    root = home / ".cache" / "uv" / "archive-v0" / entry
    inner = root / "lib" / "python3.12" / "site-packages" if is_environment else root
    info = inner / f"{distribution}.dist-info"
    info.mkdir(parents=True)
    os.utime(root, (at, at))
    return info


def test_npx_tells_the_package_that_this_very_request_made(tmp_path: Path) -> None:
    """Not another version that a different command line left behind later."""
    npx(tmp_path, "aa", "@scope/server", "1.2.3", "@scope/server@1.2", at=100)
    npx(tmp_path, "bb", "@scope/server", "2.0.0", "@scope/server@2", at=200)
    assert resolved_package("npx", ["-y", "@scope/server@1.2"], tmp_path) == "@scope/server 1.2.3 (npm)"


def test_what_a_runner_has_not_fetched_yet_has_to_be_installed(tmp_path: Path) -> None:
    """A first start would be taken for a server that hangs, or each start of a hanging one for an installation."""
    for command, *args in (["npx", "-y", "server"], ["uvx", "server"], ["bunx", "server"], ["pipx", "run", "s"]):
        assert has_to_install(command, args, tmp_path)
        assert has_to_install(command, args, tmp_path / "no-home-yet")
    assert not has_to_install("node", ["server.js"], tmp_path)
    assert not has_to_install("docker", ["run", "server"], tmp_path)
    npx(tmp_path, "aa", "server", "1.0.0", "server", at=100)
    assert not has_to_install("npx", ["-y", "server"], tmp_path)
    assert has_to_install("npx", ["-y", "other"], tmp_path)
    uv(tmp_path, "one", "server-1.0", at=100)
    assert not has_to_install("uvx", ["server"], tmp_path)
    write(tmp_path / ".bun" / "install" / "cache" / "server@1.0.0" / "package.json")
    assert not has_to_install("bunx", ["server"], tmp_path)


def test_npx_tells_the_newest_of_several(tmp_path: Path) -> None:
    """It is the one that runs."""
    npx(tmp_path, "aa", "server", "1.0.0", "server@1", at=200)
    npx(tmp_path, "bb", "server", "0.9.0", "server@0", at=100)
    assert resolved_package("npx", ["server"], tmp_path) == "server 1.0.0 (npm)"


def test_uvx_tells_the_newest_environment(tmp_path: Path) -> None:
    """Whatever way the name is spelled."""
    uv(tmp_path, "old", "mcp_server_time-2.1.0", at=100)
    uv(tmp_path, "new", "mcp_server_time-2.2.0", at=200)
    uv(tmp_path, "wheel", "mcp_server_time-9.9.9", at=300, is_environment=False)
    assert resolved_package("uvx", ["mcp-server-time@latest"], tmp_path) == "mcp-server-time 2.2.0 (PyPI)"
    assert resolved_package("uv", ["tool", "run", "MCP.Server.Time"], tmp_path) == "mcp-server-time 2.2.0 (PyPI)"


def test_uvx_tells_an_unpacked_wheel_when_there_is_no_environment(tmp_path: Path) -> None:
    """Older versions of uv keep environments elsewhere."""
    uv(tmp_path, "wheel", "server-1.0", at=300, is_environment=False)
    assert resolved_package("uvx", ["server"], tmp_path) == "server 1.0 (PyPI)"


def test_pipx_tells_the_newest_environment_of_its_caches(tmp_path: Path) -> None:
    """A server would run under a version that nobody is told, and could not be pinned."""
    for cache, version, at in ((".cache/pipx", "1.0", 100), (".local/share/pipx", "2.0", 200)):
        root = tmp_path / cache / "abc"
        (root / "lib" / "python3.12" / "site-packages" / f"mcp_time-{version}.dist-info").mkdir(parents=True)
        os.utime(root, (at, at))
    assert resolved_package("pipx", ["run", "mcp-time"], tmp_path) == "mcp-time 2.0 (PyPI)"
    assert resolved_package("pipx", ["run", "other"], tmp_path) is None
    assert not has_to_install("pipx", ["run", "mcp-time==2.0"], tmp_path)


def test_what_came_from_a_url_is_not_said_to_come_from_pypi(tmp_path: Path) -> None:
    """A fork under the same name is the oldest trick."""
    write(uv(tmp_path, "new", "server-1.0", at=1) / "direct_url.json", "{}")
    line = ["--from", "git+https://example.org/x", "server"]
    assert resolved_package("uvx", line, tmp_path) == "server 1.0 (a URL or a directory)"


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    root = tmp_path / "venv"
    write(root / "pyvenv.cfg", "home = /usr/bin")
    write(root / "bin" / "python")
    packages = root / "lib" / "python3.11" / "site-packages"
    write(packages / "good_server-3.1.dist-info" / "entry_points.txt", "[console_scripts]\nserve-good = good:main\n")
    write(packages / "good_server-3.1.dist-info" / "top_level.txt", "good\n")
    (packages / "plain-0.1.dist-info").mkdir()
    return root


@pytest.mark.parametrize(
    ("program", "args", "told"),
    [
        ("python", ["-m", "good"], "good-server 3.1 (PyPI)"),
        ("python", ["-m", "plain"], "plain 0.1 (PyPI)"),
        ("serve-good", [], "good-server 3.1 (PyPI)"),
        ("plain", [], "plain 0.1 (PyPI)"),
        ("stranger", [], None),
        ("python", ["-m", "stranger"], None),
    ],
)
def test_a_virtual_environment_is_asked_beside_the_program(
    venv: Path, tmp_path: Path, program: str, args: list[str], told: str | None
) -> None:
    """By the distribution's name, by its modules, by its scripts."""
    assert resolved_package(str(venv / "bin" / program), args, tmp_path) == told


def test_a_program_of_the_system_tells_nothing(tmp_path: Path) -> None:
    """Without `pyvenv.cfg`, what lies beside it is everything and nothing."""
    write(tmp_path / "lib" / "python3.11" / "site-packages" / "tool-1.0.dist-info" / "METADATA")
    assert resolved_package(str(tmp_path / "bin" / "tool"), [], tmp_path) is None


def test_a_broken_installation_hides_no_whole_one(tmp_path: Path) -> None:
    """The home is the server's: it may write what it likes into it."""
    npx(tmp_path, "bb", "server", "1.0.0", "server@1", at=1)
    for cache, text in {"a": "{", "c": "[" * 100_000, "d": '{"version": 1}', "e": '{"version": "1\\u001b[2J"}'}.items():
        write(tmp_path / ".npm" / "_npx" / cache / "node_modules" / "server" / "package.json", text)
    assert resolved_package("npx", ["server"], tmp_path) == "server 1.0.0 (npm)"


def test_a_link_to_another_home_tells_nothing(tmp_path: Path) -> None:
    """A server must not make us read the user's files."""
    npx(tmp_path / "users", "aa", "server", "1.0.0", "server", at=1)
    home = tmp_path / "servers"
    home.mkdir()
    (home / ".npm").symlink_to(tmp_path / "users" / ".npm")
    assert resolved_package("npx", ["server"], home) is None


def test_a_home_that_is_not_there_tells_nothing(tmp_path: Path) -> None:
    """Before the first start there is none."""
    assert resolved_package("npx", ["server"], tmp_path / "none") is None
    assert resolved_package("uvx", ["server"], tmp_path / "none") is None
