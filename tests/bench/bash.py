"""What the `bash` tool costs: a call of `true` in a session's context against a bare shell, as an ordinary user."""

from typing import Final

from .finding import Finding, NotMeasuredError, Target
from .rounds import Effort
from .user_child import over_bare, told_by

OVERHEAD: Final = Target(required=40.0, goal=25.0)

CALLS_A_ROUND: Final = 5


async def measure(effort: Effort) -> list[Finding]:
    """Medians of the same number of calls each way, taken by turns; of the session's policy, and of it offline."""
    found = told_by("bash_child.py", effort.rounds * CALLS_A_ROUND)
    if not all(how.startswith("bubblewrap") for how in found["told"].values()):
        raise NotMeasuredError(f"an ordinary user gets {found['told']} here")
    note = "bare {bare:.1f} ms, called {taken:.1f} ms; {how}"
    return over_bare(
        found["times"], OVERHEAD, "a bash call of true over a bare shell, policy {name}", note, found["told"]
    )
