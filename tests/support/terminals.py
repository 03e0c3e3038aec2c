"""Where a person gives commands beside what a test is about: each is a process of its own, at the price of a fork."""

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


class Terminal:
    """Runs commands as whoever runs the tests.  A thread may call it while another waits for it."""

    def __init__(self, forks: Forks) -> None:
        """Use these forks; their server is there from now on, so that no test takes it for something that it left."""
        self.forks: Final = forks
        self._identity: Final = Identity.ROOT if os.geteuid() == 0 else Identity.USER
        self.fork_server()

    def fork_server(self) -> socket.socket:
        """Where more forks can be asked for."""
        return self.forks.server(self._identity)

    def run(self, *arguments: str, stdin: str = "", cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Run `quarterdeck …` to its end, in this process' environment as it is now.

        Raises:
            subprocess.TimeoutExpired: it did not end in time, and is dead now.
        """
        ended = self.forks.run(self._identity, arguments, os.environ, cwd=cwd or Path.cwd(), given=stdin.encode())
        return subprocess.CompletedProcess(arguments, ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    def popen(self, words: Sequence[str], *, cwd: Path | None, stderr: IO[bytes], **_: object) -> Any:
        """Start `quarterdeck WORDS` where `subprocess.Popen` would start a command line, for a `LineChild`."""
        return self.forks.start(
            self._identity,
            words,
            os.environ,
            cwd=cwd or Path.cwd(),
            gives_input=True,
            stderr_fd=stderr.fileno(),
        )

    def http_server(self, *arguments: str) -> Fork:
        """Start the pretend HTTP server; it ends with its stdin."""
        return self.forks.start(
            self._identity, arguments, os.environ, program="http_server", gives_input=True, stderr_fd=2
        )

    def document(self, *arguments: str, cwd: Path | None = None) -> object:
        """The document that a successful command prints with `--json`."""
        ended = self.run(*arguments, "--json", cwd=cwd)
        assert ended.returncode == 0, (arguments, ended.returncode, ended.stdout, ended.stderr)
        return json.loads(ended.stdout)


@cache
def terminal() -> Terminal:
    """The one of this process, until its end."""
    forks = Forks()
    atexit.register(forks.close)
    return Terminal(forks)


def quarterdeck_forked(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end; for those around what a test is about.

    Of each kind that a module's tests are about, one at least is run as a user does.
    """
    return terminal().run(*arguments)


def quarterdeck_json_forked(*arguments: str) -> Any:
    """The document that a successful command prints with `--json`."""
    return terminal().document(*arguments)
