"""The command line as a user runs it: in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from .leftovers import eventually
from .programs import SERVERS, server_argv
from .raw_client import RawStdioClient
from .terminals import popen_forked

DEADLINE_S: Final = 60.0
"""For a command that imports the SDK twice on a busy machine."""


PATIENT: Final = ("--settle", str(DEADLINE_S))
"""Options of a `serve` whose client lists once, and means to see every server."""


def command(*arguments: str) -> list[str]:
    """The command line of `quarterdeck …`."""
    return [sys.executable, "-m", "quarterdeck.cli", *arguments]


def quarterdeck(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    return subprocess.run(
        command(*arguments), input=stdin, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def quarterdeck_json(*arguments: str) -> Any:
    """The document that a successful command prints with `--json`."""
    ended = quarterdeck(*arguments, "--json")
    assert ended.returncode == 0, (ended.returncode, ended.stdout, ended.stderr)
    return json.loads(ended.stdout)


def row(name: str, *arguments: str, **fields: object) -> dict[str, object]:
    """A pretend server as a row of a configuration."""
    program, *args = server_argv(name, *arguments)
    return {"command": program, "args": args, "sandbox": {"read": [str(SERVERS)]}, **fields}


def write_config(path: Path, **servers: object) -> Path:
    """A configuration file with these rows."""
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


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
