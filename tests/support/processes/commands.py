"""The command line in a process of its own: started as a user does, or forked where that is not what a test is about.

`quarterdeck_forked` and its kind cost a fork and not a start.  Of each kind of command that a test is about, one at
least is run as a user does.  A thread may give one while another waits for its own.
"""

import atexit
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

from support.clients.raw_client import RawStdioClient
from support.processes.forks import Fork, Forks
from support.processes.identities import Identity
from support.processes.running import DEADLINE_S, output, run
from support.waiting import eventually

PATIENT: Final = ("--settle", str(DEADLINE_S))
"""Options of a `serve` whose client lists once, and means to see every server."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "quarterdeck.cli", *arguments]


def quarterdeck(*arguments: str, stdin: str = "", **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, as `run` does."""
    return run(*command(*arguments), given=stdin, **options)


def quarterdeck_json(*arguments: str) -> Any:
    return json.loads(output(*command(*arguments, "--json")))


@contextmanager
def serving(config: Path, *arguments: str, is_forked: bool = False) -> Iterator[RawStdioClient]:
    """A `serve` on stdio that other commands can find; its client has not said anything yet.

    Started as a user does, or forked where that is not what a test is about.
    """
    words = ("serve", "--config", str(config), *PATIENT, *arguments)
    argv, popen = (words, popen_forked) if is_forked else (command(*words), subprocess.Popen)
    with RawStdioClient(argv, deadline_s=DEADLINE_S, popen=popen) as client:
        eventually(lambda: is_found(client.process.pid), DEADLINE_S, "a serve that can be found")
        yield client


def is_found(pid: int) -> bool:
    """Whether the serve of this process has announced itself."""
    from quarterdeck.config.places.paths import runtime_dir
    from quarterdeck.config.places.runtime_directory import read_serving

    root = runtime_dir()
    if not root.is_dir():
        return False
    found = [read_serving(path) for path in root.iterdir()]
    return any(serving is not None and serving.pid == pid for serving in found)


OURSELVES: Final = Identity.ROOT if os.geteuid() == 0 else Identity.USER
"""Whoever runs the tests."""


@cache
def forks() -> Forks:
    """Those of this process, until its end."""
    made = Forks()
    atexit.register(made.close)
    return made


def fork_server() -> socket.socket:
    """Where forks of our own can be asked for; once called, no test takes it for something that it left."""
    return forks().server(OURSELVES)


def quarterdeck_forked(*arguments: str, stdin: str = "", cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run `quarterdeck …` to its end, in this process' environment as it is now.

    For commands around what a test is about: of each kind that it is about, one at least is run as a user does.

    Raises:
        subprocess.TimeoutExpired: it did not end in time, and is dead now.
    """
    ended = forks().run(OURSELVES, arguments, os.environ, cwd=cwd or Path.cwd(), given=stdin.encode())
    return subprocess.CompletedProcess(arguments, ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def quarterdeck_json_forked(*arguments: str, cwd: Path | None = None) -> Any:
    ended = quarterdeck_forked(*arguments, "--json", cwd=cwd)
    assert ended.returncode == 0, (arguments, ended.returncode, ended.stdout, ended.stderr)
    return json.loads(ended.stdout)


def popen_forked(
    words: Sequence[str],
    *,
    cwd: Path | None = None,
    stderr: IO[bytes],
    program: str = "quarterdeck",
    open_files: tuple[int, int] | None = None,
    **_: object,
) -> Fork:
    """Start `PROGRAM WORDS` where `subprocess.Popen` would start a command line."""
    return forks().start(
        OURSELVES,
        words,
        os.environ,
        cwd=cwd or Path.cwd(),
        gives_input=True,
        stderr_fd=stderr.fileno(),
        program=program,
        open_files=open_files,
    )
