"""Where a person gives commands beside what a test is about: each is a process of its own, at the price of a fork.

A thread may give one while another waits for its own.
"""

import atexit
import json
import os
import socket
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

from .forks import Fork, Forks
from .identities import Identity

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
    """The document that a successful command prints with `--json`."""
    ended = quarterdeck_forked(*arguments, "--json", cwd=cwd)
    assert ended.returncode == 0, (arguments, ended.returncode, ended.stdout, ended.stderr)
    return json.loads(ended.stdout)


def popen_forked(words: Sequence[str], *, cwd: Path | None, stderr: IO[bytes], **_: object) -> Fork:
    """Start `quarterdeck WORDS` where `subprocess.Popen` would start a command line."""
    return forks().start(
        OURSELVES, words, os.environ, cwd=cwd or Path.cwd(), gives_input=True, stderr_fd=stderr.fileno()
    )
