"""Real MCP servers from the registries, installed once for the whole run and shared by its test processes.

The npm ones share a folder, each Python one has an environment of its own.  Where a registry cannot be reached, the
reason is what comes back.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NPM_SERVERS: Final = {
    "everything": "@modelcontextprotocol/server-everything",
    "filesystem": "@modelcontextprotocol/server-filesystem",
    "memory": "@modelcontextprotocol/server-memory",
    "sequential-thinking": "@modelcontextprotocol/server-sequential-thinking",
}

PYTHON_SERVERS: Final = {"time": "mcp-server-time", "git": "mcp-server-git"}

INSTALL_S: Final = 240.0
"""One package with what it needs, from an empty cache on a slow line."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A server's command line, or why there is none."""

    argv: tuple[str, ...] = ()
    missing: str = ""


def install(name: str, folder: Path) -> Installed:
    """The command line of a real server, installed in `folder` unless another process has done it."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    place = folder / ("npm" if name in NPM_SERVERS else name)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        verdict = place.with_suffix(".verdict")
        if not verdict.exists():
            verdict.write_text(_install_npm(place) if name in NPM_SERVERS else _install_python(name, place))
        if missing := verdict.read_text():
            return Installed(missing=missing)
    return _npm_command(name, place) if name in NPM_SERVERS else Installed((str(place / "bin" / PYTHON_SERVERS[name]),))


def _install_npm(place: Path) -> str:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        return "node and npm are not installed"
    place.mkdir()
    failure = _run([npm, "install", "--no-audit", "--no-fund", "--prefix", str(place), *NPM_SERVERS.values()])
    return f"npm cannot install the servers: {failure}" if failure else ""


def _npm_command(name: str, place: Path) -> Installed:
    package = place / "node_modules" / NPM_SERVERS[name]
    binaries = json.loads((package / "package.json").read_text())["bin"]
    script = binaries if isinstance(binaries, str) else next(iter(binaries.values()))
    return Installed((shutil.which("node") or "node", str(package / script)))


def _install_python(name: str, place: Path) -> str:
    # pip works on the other environment from ours: giving each a pip of its own takes longer than the server.
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "-q"]
    failure = _run([sys.executable, "-m", "venv", "--without-pip", str(place)]) or _run([*pip, PYTHON_SERVERS[name]])
    return f"pip cannot install {PYTHON_SERVERS[name]}: {failure}" if failure else ""


def _run(argv: list[str]) -> str:
    """What went wrong, empty when nothing did."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    try:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no end within {INSTALL_S:.0f} s"
    return "" if done.returncode == 0 else (done.stderr or done.stdout).strip()[-300:]
