"""Pretend HTTP servers for the tests of a module: each is a process of its own, and costs a fork instead of a start."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import psutil

from .leftovers import eventually, is_running

TESTS: Final = Path(__file__).resolve().parent.parent


class HttpServers:
    """What starts them; a context manager, at whose end all are gone.  For one thread."""

    def __init__(self) -> None:
        """Start the process that forks."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.http_fork_server"],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    @contextmanager
    def running(self, *arguments: str) -> Iterator[str]:
        """Run `http_server.py` as `programs.running_http_server` does, and yield its URL; it is gone at the end.

        Raises:
            json.JSONDecodeError: the server ended before it listened; stderr, which is ours, says why.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments).encode() + b"\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        try:
            yield told["url"]
        finally:
            if is_running(told["pid"]):
                os.kill(told["pid"], signal.SIGKILL)
            # Not `is_running`: its first thread may be dead while another one still holds its port.
            eventually(lambda: not psutil.pid_exists(told["pid"]), what="the end of the HTTP server")
