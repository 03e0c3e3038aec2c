"""Real MCP servers and clients from the registries, and uv and pipx, installed once for a run, for all its processes.

The npm ones share a folder, each Python one has an environment of its own, and so have the tools.  Where a registry
cannot be reached, the reason is what comes back.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NPM_SERVERS: Final = {
    "everything": "@modelcontextprotocol/server-everything",
    "filesystem": "@modelcontextprotocol/server-filesystem",
    "memory": "@modelcontextprotocol/server-memory",
    "sequential-thinking": "@modelcontextprotocol/server-sequential-thinking",
}

INSPECTOR: Final = "@modelcontextprotocol/inspector-cli"
"""Installed with them: it needs little more than they do, the SDK among it."""

CONFORMANCE: Final = ("@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22")
"""The official suite, of one version, for what it finds is written down; it needs a newer Node than most have."""

PYTHON_CLIENTS: Final = {"mcp": "mcp<2", "fastmcp": "fastmcp"}
"""What is imported, and what is asked of the registry."""

PYTHON_SERVERS: Final = {"time": "mcp-server-time", "git": "mcp-server-git"}

INSTALL_S: Final = 240.0
"""One package with what it needs, from an empty cache on a slow line."""

REGISTRY_S: Final = 20.0
"""A registry answers a small question within this time, or is not there: npm and pip would try for minutes."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A server's command line, or why there is none."""

    argv: tuple[str, ...] = ()
    missing: str = ""


def install(name: str, basetemp: Path) -> Installed:
    """The command line of a real server, installed below the run's folder unless another process has done it.

    Args:
        name: one of `NPM_SERVERS` or `PYTHON_SERVERS`.
        basetemp: the test process's own temporary folder.
    """
    if name in NPM_SERVERS:
        place, missing = _once(basetemp, "npm", _install_npm)
        return Installed(missing=missing) if missing else _npm_command(name, place)
    tools = install_tools(basetemp)
    if tools.missing:
        return tools
    place, missing = _once(basetemp, name, lambda place: _install_python(place, tools.argv[0], PYTHON_SERVERS[name]))
    return Installed(missing=missing) if missing else Installed((str(place / "bin" / PYTHON_SERVERS[name]),))


def install_python_client(name: str, basetemp: Path) -> Installed:
    """The interpreter that can import a client, one of `PYTHON_CLIENTS`, likewise."""
    tools = install_tools(basetemp)
    if tools.missing:
        return tools
    wanted = PYTHON_CLIENTS[name]
    place, missing = _once(
        basetemp, f"client-{name}", lambda place: _install_python(place, tools.argv[0], wanted, name)
    )
    return Installed(missing=missing) if missing else Installed((str(place / "bin" / "python"),))


def install_npm_clients(basetemp: Path) -> Installed:
    """Node, the folder of the TypeScript SDK, and the program of the Inspector's command line, likewise."""
    place, missing = _once(basetemp, "npm", _install_npm)
    if missing:
        return Installed(missing=missing)
    modules = place / "node_modules"
    sdk, inspector = modules / "@modelcontextprotocol" / "sdk", modules / INSPECTOR / "build" / "index.js"
    return Installed((shutil.which("node") or "node", str(sdk), str(inspector)))


def install_conformance(basetemp: Path) -> Installed:
    """The conformance suite's command line, likewise."""
    place, missing = _once(basetemp, "conformance", _install_conformance)
    if missing:
        return Installed(missing=missing)
    node, suite = (place / "node_modules" / part for part in ("node/bin/node", "@modelcontextprotocol/conformance"))
    return Installed((str(node), str(suite / "dist" / "index.js")))


def install_tools(basetemp: Path) -> Installed:
    """The folder with the programs uv, uvx and pipx, as its only word, likewise."""
    place, missing = _once(basetemp, "tools", _install_tools)
    return Installed(missing=missing) if missing else Installed((str(place / "bin"),))


def shared_folder(basetemp: Path) -> Path:
    """Where they are installed: the parent of an xdist worker's own folder is the run's."""
    return basetemp.parent / "real-servers"


def _once(basetemp: Path, name: str, fill: Callable[[Path], str]) -> tuple[Path, str]:
    """A place of this name, filled by one process of the run, and what went wrong then."""
    folder = shared_folder(basetemp)
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    return _once_in(folder, name, fill)


def _once_in(folder: Path, name: str, fill: Callable[[Path], str]) -> tuple[Path, str]:
    place = folder / name
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        verdict = place.with_suffix(".verdict")
        if not verdict.exists():
            verdict.write_text(fill(place))
        return place, verdict.read_text()


def _install_npm(place: Path) -> str:
    failure = _run_npm(place, *NPM_SERVERS.values(), INSPECTOR)
    if failure:
        return failure
    # The Inspector's command line looks for its version in the package that it was cut from.
    (place / "node_modules" / INSPECTOR).with_name("package.json").write_text('{"name": "inspector", "version": "0"}')
    return ""


def _install_conformance(place: Path) -> str:
    node = place / "node_modules" / "node" / "bin" / "node"
    # A script of the package fetches the program, where npm lets it.
    return _run_npm(place, *CONFORMANCE) or ("" if node.exists() else "npm installs no newer Node")


def _run_npm(place: Path, *packages: str) -> str:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        return "node and npm are not installed"
    _, silence = _once_in(place.parent, "npm-registry", lambda _: _ask_npm(npm))
    if silence:
        return f"npm's registry does not answer: {silence}"
    place.mkdir()
    failure = _run([npm, "install", "--no-audit", "--no-fund", "--prefix", str(place), *packages])
    return f"npm cannot install {packages[0]}: {failure}" if failure else ""


def _ask_npm(npm: str) -> str:
    """Ask the registry for one version; return what went wrong, empty when nothing did."""
    once = ["--fetch-retries=0", f"--fetch-timeout={REGISTRY_S * 1000:.0f}"]
    return _run([npm, "view", *once, NPM_SERVERS["memory"], "version"], REGISTRY_S)


def _npm_command(name: str, place: Path) -> Installed:
    package = place / "node_modules" / NPM_SERVERS[name]
    binaries = json.loads((package / "package.json").read_text())["bin"]
    script = binaries if isinstance(binaries, str) else next(iter(binaries.values()))
    return Installed((shutil.which("node") or "node", str(package / script)))


def _install_tools(place: Path) -> str:
    # pip works on the other environment from ours: giving it a pip of its own takes longer than the packages.
    pip = _pip(place)
    failure = _run([sys.executable, "-m", "venv", "--without-pip", str(place)]) or _run([*pip, "uv"])
    # What uv cannot reach, pip may be configured for.
    failure = failure or (_run_uv(place / "bin", place, "pipx") and _run([*pip, "pipx"]))
    return f"pip cannot install uv and pipx: {failure}" if failure else ""


def _install_python(place: Path, uv: str, package: str, imported: str = "") -> str:
    # uv takes a tenth of what pip does.
    pip = _pip(place)
    failure = _run([sys.executable, "-m", "venv", "--without-pip", str(place)])
    failure = failure or (_run_uv(Path(uv), place, package) and _run([*pip, package]))
    if failure:
        return f"pip cannot install {package}: {failure}"
    # Of all that was installed, only what it imports is worth compiling.
    return _run([str(place / "bin" / "python"), "-c", f"import {imported or package.replace('-', '_')}"])


def _pip(place: Path) -> list[str]:
    once = ("--retries=0", f"--timeout={REGISTRY_S:.0f}")
    return [sys.executable, "-m", "pip", "--python", str(place / "bin/python"), "install", "-q", "--no-compile", *once]


def _run_uv(programs: Path, place: Path, package: str) -> str:
    """Install a package into an environment; with no cache of a user's, and what two of them need fetched once."""
    cache = place.with_name("uv.cache")
    return _run(
        [str(programs / "uv"), "pip", "install", "-q", "--cache-dir", str(cache), "--python", str(place), package]
    )


def _run(argv: list[str], timeout_s: float = INSTALL_S) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHONDONTWRITE"))}
    try:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return f"no end within {timeout_s:.0f} s"
    return "" if done.returncode == 0 else (done.stderr or done.stdout).strip()[-300:]
