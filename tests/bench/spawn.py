"""What a sandbox costs at a start: `true` under bubblewrap against a bare spawn, as an ordinary user."""

from typing import Final

from .finding import Finding, NotMeasuredError, Target
from .rounds import Effort
from .user_child import over_bare, told_by

OVERHEAD: Final = Target(required=25.0, goal=10.0)

STARTS_A_ROUND: Final = 5


async def measure(effort: Effort) -> list[Finding]:
    found = told_by("spawn_child.py", effort.rounds * STARTS_A_ROUND)
    if found["tier"] != "bubblewrap":
        raise NotMeasuredError(f"an ordinary user gets the tier {found['tier']} here")
    note = "bare {bare:.1f} ms, confined {taken:.1f} ms, from spawn to exit"
    return over_bare(found["times"], OVERHEAD, "a sandbox's start over a bare spawn, network {name}", note)
