"""The pretend HTTP server for tests that need one of their own: a process, at the price of a fork."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

from support.processes.commands import OURSELVES, forks


@contextmanager
def forked_http_server(*arguments: str) -> Iterator[str]:
    """Run `http_server.py` as `programs.running_http_server` does, and yield its URL; it is gone at the end.

    Raises:
        json.JSONDecodeError: the server ended before it listened; stderr, which is ours, says why.
    """
    with forks().start(
        OURSELVES, arguments, os.environ, program="http_server", gives_input=True, stderr_fd=2
    ) as server:
        url: str = json.loads(server.stdout.readline())["url"]
        try:
            yield url
        finally:
            server.kill()
