"""Start interpreters of ours that trust neither our directory nor our variables: the zygote, and fresh workers.

Imports little, so that the zygote can be the first thing that a `serve` starts: both import at once then.
"""

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

from quarterdeck_sandbox import open_files_of_children

NEEDED: Final = ("quarterdeck_worker", "quarterdeck_sandbox", "quarterdeck_protocol", "httpx2", "msgspec", "psutil")
"""Packages whose folders an isolated interpreter is told, wherever they are installed."""

INHERITED: Final = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG"),
)
"""All variables that a zygote's environment may hold; a server's own come with its `Open` order."""

SPAWN_VARIABLE: Final = "QUARTERDECK_SPAWN"
"""`fresh` starts each worker in an interpreter of its own."""

Zygote = tuple["subprocess.Popen[bytes]", socket.socket]
"""The process, and our end of its control socket, which does not block."""


def forks_workers() -> bool:
    """Whether workers are forks of a zygote here; Apple's frameworks do not survive a fork without exec."""
    return os.environ.get(SPAWN_VARIABLE) != "fresh" and sys.platform != "darwin"


def start_zygote_early() -> None:
    """Start the zygote before there is a loop, for the first that takes one. It ends with us, also if none does."""
    if forks_workers() and not _early:
        _early.append(_start_zygote())


def has_early_zygote() -> bool:
    """Whether one was started early that nothing has taken yet."""
    return bool(_early)


def take_zygote() -> Zygote:
    """Return the zygote that was started early, or another one."""
    return _early.pop() if _early else _start_zygote()


def isolated(
    module: str, *args: str, pass_fds: list[int] | None = None, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start a module of ours in an interpreter that trusts neither our directory nor our variables. Call it from the
    loop's thread: the process is killed when the calling thread ends (Linux).
    """
    boot = _folder_of("quarterdeck_worker") / "quarterdeck_worker" / "boot.py"
    folders = dict.fromkeys(str(_folder_of(name)) for name in NEEDED)
    return subprocess.Popen(
        [
            sys.executable,
            "-I",
            str(boot),
            str(os.getpid()),
            str(open_files_of_children()),
            os.pathsep.join(folders),
            module,
            *args,
        ],
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        pass_fds=pass_fds or [],
        env={name: os.environ[name] for name in INHERITED if name in os.environ},
        cwd="/",
        start_new_session=True,
    )


_early: Final[list[Zygote]] = []


def _start_zygote() -> Zygote:
    ours, theirs = socket.socketpair()
    with theirs:
        process = isolated("quarterdeck_worker.zygote", str(theirs.fileno()), pass_fds=[theirs.fileno()])
    ours.setblocking(False)  # noqa: FBT003 - takes no keyword
    return process, ours


def _folder_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{package} is not installed")
    return Path(spec.submodule_search_locations[0]).parent
