"""Run a short program of a trial: deadline, no environment, no terminal."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

DEADLINE_S: Final = 5.0
"""A hundred times what any of them takes; one that hangs is as good as one that fails."""

TOLD_CHARS: Final = 300
"""Of what a program complained."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended.

    Attributes:
        why: empty when it succeeded, else what it said, on one line.
        stdout: what it wrote.
    """

    why: str
    stdout: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether it exited with status 0, in time."""
        return not self.why


def run(argv: Sequence[str], *, uid: int, pass_fds: Sequence[int] = ()) -> Outcome:
    """Run `argv` to its end, as `uid`: ourselves, or anybody if we are root."""
    identity = uid if uid != os.geteuid() else None
    try:
        ended = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
            env={},
            cwd="/",
            pass_fds=pass_fds,
            user=identity,
            group=identity,
            extra_groups=None if identity is None else (),
        )
    except subprocess.TimeoutExpired:
        return Outcome(f"{argv[0]} did not end within {DEADLINE_S:.0f} s")
    except (OSError, subprocess.SubprocessError) as error:
        return Outcome(f"{argv[0]} could not be run: {error}")
    stdout = ended.stdout.decode(errors="replace")
    if ended.returncode == 0:
        return Outcome("", stdout)
    said = " ".join(ended.stderr.decode(errors="replace").split())[-TOLD_CHARS:]
    return Outcome(said or f"{argv[0]} ended with status {ended.returncode}", stdout)
