"""Other programs that offer a stdio server over HTTP: fetched from their registries, and run over the echo server."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from support.config.places import row, write_config
from support.processes.programs import server_argv
from support.waiting import eventually

from .finding import NotMeasuredError
from .peers import ECHO
from .start_peer import fetch_fastmcp
from .started import Rows, bare

FETCH_S: Final = 180.0
"""For a registry to give a peer and all that it needs."""

START_S: Final = 60.0
"""For a peer to listen."""

END_S: Final = 10.0

SHOWN_BYTES: Final = 300
"""Of what a program said that failed."""

FASTMCP_OVER_HTTP: Final = """\
import json, sys
from fastmcp.server import create_proxy
proxy = create_proxy(json.load(open(sys.argv[1])))
proxy.run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
"""

PORT: Final = "{port}"
"""Stands in a command line for where to listen."""


def mcp_proxy(folder: Path) -> list[str]:
    """Npm's `mcp-proxy` over the echo server.

    Raises:
        NotMeasuredError: it cannot be had here.
    """
    program = _npm_program(folder, "mcp-proxy", "mcp-proxy")
    return [program, "--host", "127.0.0.1", "--port", PORT, "--server", "stream", "--", *server_argv(ECHO)]


def mcp_hub(folder: Path, rows: Rows | None = None) -> list[str]:
    """Npm's `mcp-hub` over these servers, or the echo server; it calls their tools as we do.

    Raises:
        NotMeasuredError: it cannot be had here.
    """
    program = _npm_program(folder, "mcp-hub@4.2", "mcp-hub")
    config = write_config(folder / "hub.json", **bare(rows or {ECHO: row(ECHO)}))
    return [program, "--port", PORT, "--config", str(config)]


def fastmcp(folder: Path) -> list[str]:
    """FastMCP's proxy over the echo server.

    Raises:
        NotMeasuredError: it cannot be had here.
    """
    python, *_ = fetch_fastmcp(folder / "venv")
    command, *arguments = server_argv(ECHO)
    config = write_config(folder / "peer.json", **{ECHO: {"command": command, "args": arguments}})
    return [python, "-c", FASTMCP_OVER_HTTP, str(config), PORT]


@contextmanager
def running_peer(argv: Sequence[str], folder: Path) -> Iterator[tuple[str, int]]:
    """The URL and process of a peer that listens; it has ended afterwards, with all that it started.

    Raises:
        NotMeasuredError: it ends instead.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [word.replace(PORT, str(port)) for word in argv]
    with _started(words, folder) as (process, said):
        eventually(lambda: process.poll() is not None or _listens(port), START_S, f"{words[0]} to listen")
        if process.poll() is not None:
            raise NotMeasuredError(f"{words[0]} ended with {process.returncode}: {said()}")
        yield f"http://127.0.0.1:{port}/mcp", process.pid


def _npm_program(folder: Path, package: str, name: str) -> str:
    if (npm := shutil.which("npm")) is None:
        raise NotMeasuredError("npm is not there")
    options = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-progress", "--fetch-retries=1")
    _run_bounded([npm, "install", *options, "--prefix", str(folder), package], name)
    return str(folder / "node_modules" / ".bin" / name)


def _run_bounded(argv: Sequence[str], what: str) -> None:
    with _started(argv, Path("/")) as (process, said):
        try:
            status = process.wait(FETCH_S)
        except subprocess.TimeoutExpired:
            raise NotMeasuredError(f"{what} cannot be had: it did not come within {FETCH_S:g} s") from None
        if status:
            raise NotMeasuredError(f"{what} cannot be had: {said()}")


@contextmanager
def _started(argv: Sequence[str], folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str]]]:
    """A process in a session of its own, which ends with the block, and all that it started in it; and what it said."""
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(
                argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        except OSError as error:
            raise NotMeasuredError(f"{argv[0]} cannot be started: {error.strerror}") from error

        def said() -> str:
            size = os.fstat(log.fileno()).st_size
            data = os.pread(log.fileno(), SHOWN_BYTES, max(0, size - SHOWN_BYTES))
            return " ".join(data.decode(errors="replace").split())

        try:
            yield process, said
        finally:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                pass
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
