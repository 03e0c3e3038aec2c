"""What the `bash` tool costs: a call of `true` in a session's context against a bare shell, as an ordinary user."""

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

OVERHEAD: Final = Target(required=40.0, goal=25.0)

CALLS_A_ROUND: Final = 5

CHILD: Final = Path(__file__).with_name("bash_child.py")

DEADLINE_S: Final = 300.0


async def measure(effort: Effort) -> list[Finding]:
    """Medians of the same number of calls each way, taken by turns; of the session's policy, and of it offline."""
    user = Identity.USER
    if missing := user.missing or bubblewrap_missing():
        raise NotMeasuredError(missing)
    command = user.quarterdeck
    with tempfile.TemporaryDirectory(prefix="qd-", dir="/tmp") as folder:
        user.own(Path(folder))
        done = subprocess.run(  # noqa: ASYNC221 - nothing else runs meanwhile, or it would be measured too
            [command.argv[0], str(CHILD), str(effort.rounds * CALLS_A_ROUND)],
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
    if not all(how.startswith("bubblewrap") for how in found["told"].values()):
        raise NotMeasuredError(f"an ordinary user gets {found['told']} here")
    times = {name: median(each) for name, each in found["times"].items()}
    bare = times.pop("bare")
    return [
        Finding(
            f"a bash call of true over a bare shell, policy {name}",
            "ms",
            OVERHEAD,
            taken - bare,
            note=f"bare {bare:.1f} ms, called {taken:.1f} ms; {found['told'][name]}",
        )
        for name, taken in times.items()
    ]
