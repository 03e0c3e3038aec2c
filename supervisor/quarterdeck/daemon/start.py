"""Start the daemon, detached: its own session, no terminal, no working directory, no parent of ours.

The starting process listens in its place first, so that doors can queue before its first instruction.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final

from quarterdeck.config.places.paths import (
    STATE_DIR_VARIABLE,
    UnusableDirectoryError,
    knows_servers,
    make_private_dir,
    state_dir,
    writing_below,
)

from .place import NoDaemonError, check_no_other, listen, reach, remove, start_lock

LOG_NAME: Final = "daemon.log"
PROBE_S: Final = 5.0

_FIND: Final = """\
import os, sys
sys.path += [each for each in sys.argv.pop(1).split(os.pathsep) if each not in sys.path]
"""

_BOOT: Final = """\
import gc
gc.disable()
if os.fork():
    os._exit(0)
os.setsid()
from resource import RLIMIT_CORE, getrlimit, setrlimit
setrlimit(RLIMIT_CORE, (0, getrlimit(RLIMIT_CORE)[1]))
"""
"""Forks before it imports anything of ours, so that no process waits for the daemon's end. For the collector see
`collect_rarely`.
"""

_ZYGOTE: Final = """\
from quarterdeck.fleet.workers.interpreters import start_zygote_early
start_zygote_early()
"""
"""It may leave no core either."""

_SERVE: Final = """\
from quarterdeck.cli.run.daemon import main
main()
"""


def program(code: str) -> list[str]:
    """Return arguments with which an isolated interpreter runs `code`, with our import path: an ordinary installation
    needs none, but `PYTHONPATH`, a zip or a test does.
    """
    return ["-c", _FIND + code, os.pathsep.join(folder for folder in sys.path if os.path.isabs(folder))]


def log_path() -> Path:
    """The daemon's log."""
    return state_dir() / LOG_NAME


def start_daemon(directory: Path, environ: Mapping[str, str]) -> Path:
    """Have a daemon listen in `directory`, made if missing, unless one can be reached by now. Return where it listens:
    there, or where a service manager holds the socket. Blocking.

    Raise StartTimeoutError if another process has been starting or ending it for too long, OtherDaemonError if an
    unreachable one has the ledger, UnsafePathError if a directory is not ours alone, OSError if it cannot be started.
    """
    with start_lock(directory):
        try:
            connection, reached = reach(PROBE_S)
        except NoDaemonError:
            pass
        else:
            connection.close()
            return reached
        try:
            check_no_other()
            _start(directory, environ)
        except BaseException:
            remove(directory)  # nobody listens there
            raise
        return directory


def _start(directory: Path, environ: Mapping[str, str]) -> None:
    with _open_log() as log, listen(directory) as listener:
        fd = os.dup(listener.fileno())
        try:
            boot(fd, log, environ)
        finally:
            os.close(fd)


def boot(listener: int, log: BinaryIO, environ: Mapping[str, str]) -> None:
    """Start an interpreter that becomes the daemon and listens there; return once it is detached. May raise OSError.

    Where nothing was ever approved, its first servers run at once: their zygote starts before the long imports.
    """
    zygote = _ZYGOTE if not knows_servers() else ""
    subprocess.run(
        [sys.executable, "-I", *program(_BOOT + zygote + _SERVE), "--listener", str(listener)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        pass_fds=[listener],
        env=dict(environ),
        cwd="/",
        umask=0o077,
        start_new_session=True,
        check=True,
    )


def _open_log() -> BinaryIO:
    state = state_dir()
    try:
        with writing_below(state, STATE_DIR_VARIABLE):
            return open(make_private_dir(state) / LOG_NAME, "ab", opener=_private)
    except FileNotFoundError as error:
        raise UnusableDirectoryError(state, STATE_DIR_VARIABLE, error) from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
