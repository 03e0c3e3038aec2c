"""Pretend HTTP servers for tests that need one of their own: processes, at the price of a fork."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

from support.processes.commands import OURSELVES, forks


@contextmanager
def forked_http_server(*arguments: str, name: str = "http_server") -> Iterator[str]:
    """Run a server that listens on a free port of 127.0.0.1 and yield its URL; it is gone at the end.

    Raises:
        json.JSONDecodeError: the server ended before it listened; stderr, which is ours, says why.
    """
    words = (name, *arguments)
    with forks().start(OURSELVES, words, os.environ, program="server", gives_input=True, stderr_fd=2) as server:
        url: str = json.loads(server.stdout.readline())["url"]
        try:
            yield url
        finally:
            server.kill()
