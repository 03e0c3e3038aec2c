"""Other programs that offer a stdio server over HTTP: fetched from their registries, and run over the echo server."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from support.processes.programs import server_argv
from support.waiting import eventually

from .finding import NotMeasuredError
from .peers import ECHO

FETCH_S: Final = 300.0
"""For a registry to give a peer and all that it needs."""

START_S: Final = 60.0
"""For a peer to listen."""

END_S: Final = 10.0

KEPT: Final = ("HOME", "PATH", "LANG", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE", "npm_config_registry")


def fetch_mcp_proxy(folder: Path) -> list[str]:
    """Npm's `mcp-proxy` over the echo server; `{port}` stands for where it is to listen.

    Raises:
        NotMeasuredError: it cannot be had here.
    """
    if (npm := shutil.which("npm")) is None:
        raise NotMeasuredError("npm is not there")
    _fetch([npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), "mcp-proxy"], "mcp-proxy")
    program = folder / "node_modules" / ".bin" / "mcp-proxy"
    return [str(program), "--host", "127.0.0.1", "--port", "{port}", "--server", "stream", "--", *server_argv(ECHO)]


def fetch_fastmcp(folder: Path) -> list[str]:
    """FastMCP's proxy over the echo server; `{port}` stands for where it is to listen.

    Raises:
        NotMeasuredError: it cannot be had here.
    """
    _fetch([sys.executable, "-m", "venv", str(folder / "venv")], "a venv")
    _fetch([str(folder / "venv" / "bin" / "pip"), "install", "--quiet", "fastmcp"], "FastMCP")
    command, *arguments = server_argv(ECHO)
    config = folder / "peer.json"
    config.write_text(json.dumps({"mcpServers": {ECHO: {"command": command, "args": arguments}}}), encoding="utf-8")
    program = str(folder / "venv" / "bin" / "fastmcp")
    return [
        program,
        "run",
        str(config),
        "--transport",
        "http",
        "--host",
        "127.0.0.1",
        "--port",
        "{port}",
        "--no-banner",
    ]


@contextmanager
def running_peer(argv: list[str], folder: Path) -> Iterator[str]:
    """The URL of a peer that listens; it has ended afterwards, and what it started."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [word.replace("{port}", str(port)) for word in argv]
    with subprocess.Popen(
        words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            eventually(lambda: process.poll() is not None or _listens(port), START_S, f"{words[0]} to listen")
            if process.poll() is not None:
                raise NotMeasuredError(f"{words[0]} ended with {process.returncode}")
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _fetch(argv: list[str], what: str) -> None:
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    try:
        done = subprocess.run(argv, capture_output=True, timeout=FETCH_S, check=False, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotMeasuredError(f"{what} cannot be had: {error}") from None
    if done.returncode:
        raise NotMeasuredError(f"{what} cannot be had: {done.stderr.decode(errors='replace').strip()[-200:]}")


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
