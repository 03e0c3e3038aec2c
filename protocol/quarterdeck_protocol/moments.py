"""When a process at rest wakes: what can wait happens at the same moments, a fixed time apart.  Pure.

Each wake of a process that does nothing costs the same however little is done, so a worker's heartbeat and its looks at
its server share one.  The moments of different processes lie in `PHASES` groups: in one they follow one another while
what they share is still in the processor's caches, and none keeps a machine busy for long.
"""

from typing import Final

REST_S: Final = 5.0
"""Between two moments: how often a worker that owes nothing sends a heartbeat."""

PHASES: Final = 5


def last_moment(not_after: float, pid: int, step_s: float = REST_S) -> float:
    """The last moment of a process that is not after this time, monotonic seconds; its moments are `step_s` apart."""
    phase_s = pid % PHASES * step_s / PHASES
    return (not_after - phase_s) // step_s * step_s + phase_s
