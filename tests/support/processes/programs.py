"""Start the pretend servers of `tests/servers`: their command lines, and an HTTP one that runs while it is needed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SERVERS: Final = Path(__file__).resolve().parents[2] / "servers"

END_S: Final = 30.0
"""Patience with a server that was told to end before it is killed."""


def server_argv(name: str, *arguments: str) -> list[str]:
    """The command line of a pretend server: `server_argv("hostile", "half_line")`."""
    return [sys.executable, str(SERVERS / f"{name}.py"), *arguments]


@contextmanager
def running_http_server(*arguments: str, name: str = "http_server") -> Iterator[str]:
    """Run a server that listens on a free port of 127.0.0.1 and yield its URL; its process is gone at the end.

    Raises:
        json.JSONDecodeError: the server ended before it listened; stderr, which is ours, says why.
    """
    with subprocess.Popen(server_argv(name, *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            url: str = json.loads(process.stdout.readline())["url"]
            yield url
        finally:
            process.stdin.close()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
