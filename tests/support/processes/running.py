"""Start a process: `run` it to its end, take the `output` of one that succeeds, or talk with a child for a block.

A command of ours that a test is not about costs a fork instead: see `commands`.
"""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from support.processes.line_child import LineChild

DEADLINE_S: Final = 60.0
"""For a command that imports the SDK twice on a busy machine."""


def run(
    *argv: str | Path, given: str | bytes | None = "", within_s: float = DEADLINE_S, **options: Any
) -> "subprocess.CompletedProcess[Any]":
    """Run a program to its end, whichever that is.

    Args:
        argv: its command line.
        given: its standard input, and by its type what the outputs are; None where `options` name one.
        within_s: how long it may take, in seconds.
        options: what else `subprocess` is told.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it did not end in time, and is dead now.
    """
    told = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": not isinstance(given, bytes), **options}
    return subprocess.run(argv, input=given, timeout=within_s, check=False, **told)


def output(*argv: str | Path, **options: Any) -> Any:
    """What a program writes to stdout that must succeed; as `run`."""
    ended = run(*argv, **options)
    assert ended.returncode == 0, (ended.returncode, ended.stdout, ended.stderr)
    return ended.stdout


def python_output(code: str, *arguments: str | Path, **options: Any) -> Any:
    return output(sys.executable, "-c", code, *arguments, **options)


def loaded_by(code: str, *options: str) -> set[str]:
    """The modules that an interpreter with these options has loaded once it has run `code`."""
    told = output(sys.executable, *options, "-c", f"{code}\nimport sys; print(); print(*sys.modules)")
    return set(told.splitlines()[-1].split())


def python_child(code: str, *arguments: str | Path, **options: Any) -> LineChild:
    return LineChild([sys.executable, "-c", code, *map(str, arguments)], **options)


def pid_of_nobody() -> int:
    with subprocess.Popen(["/bin/true"]) as gone:
        return gone.pid


async def a_process() -> "asyncio.subprocess.Process":
    """One that waits until its standard input closes."""
    return await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", "input()", stdin=subprocess.PIPE)
