"""What a sandbox costs at a start: `true` under bubblewrap against a bare spawn, as an ordinary user."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import Final

from support.processes.identities import Identity
from support.sandbox.machine_facts import bubblewrap_missing

from .finding import Finding, NotMeasuredError, Target
from .rounds import Effort

OVERHEAD: Final = Target(required=25.0, goal=10.0)

STARTS_A_ROUND: Final = 5

CHILD: Final = Path(__file__).with_name("spawn_child.py")

DEADLINE_S: Final = 300.0


async def measure(effort: Effort) -> list[Finding]:
    """Medians of the same number of starts each way, taken by turns."""
    user = Identity.USER
    if missing := user.missing or bubblewrap_missing():
        raise NotMeasuredError(missing)
    command = user.quarterdeck
    with tempfile.TemporaryDirectory(prefix="qd-", dir="/tmp") as folder:
        user.own(Path(folder))
        done = subprocess.run(  # noqa: ASYNC221 - nothing else runs meanwhile, or it would be measured too
            [command.argv[0], str(CHILD), str(effort.rounds * STARTS_A_ROUND)],
            env={"PATH": os.environ["PATH"], **command.env},
            cwd=folder,
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
            **user.popen,
        )
    if done.returncode != 0:
        raise NotMeasuredError(done.stderr.decode(errors="replace")[-300:])
    found = json.loads(done.stdout)
    if found["tier"] != "bubblewrap":
        raise NotMeasuredError(f"an ordinary user gets the tier {found['tier']} here")
    times = {name: median(each) for name, each in found["times"].items()}
    bare = times.pop("bare")
    return [
        Finding(
            f"a sandbox's start over a bare spawn, network {name}",
            "ms",
            OVERHEAD,
            taken - bare,
            note=f"bare {bare:.1f} ms, confined {taken:.1f} ms, from spawn to exit",
        )
        for name, taken in times.items()
    ]
