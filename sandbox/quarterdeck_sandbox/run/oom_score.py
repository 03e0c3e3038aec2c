"""Who is killed first when a machine's memory runs out (Linux): servers, then workers, the zygote, and us last.

A process without rights may only raise its score, so ours stays what it was given, and theirs are raised, each from its
parent's.  What is confined raises its own before its program begins (`inside/gate.py`, or whatever is started before
that): it may lower it again, but not below ours.
"""

from pathlib import Path
from typing import Final

ZYGOTE: Final = 150
WORKER: Final = 300
CONFINED: Final = 600
"""Points above the supervisor's; a thousand is the whole memory of the machine."""

MOST: Final = 1000

_SCORE: Final = Path("/proc/self/oom_score_adj")

_raised = 0
"""By how much this process's score is above the supervisor's; a fork goes on from it."""


def raise_to(points: int) -> None:
    """Raise this process's score to `points` above the supervisor's, where the system has one."""
    global _raised
    if (present := _present()) is None or points <= _raised:
        return
    try:
        _SCORE.write_text(str(min(MOST, present + points - _raised)))
    except OSError:
        return  # a container that forbids it
    _raised = points


def score_of_confined() -> int | None:
    """What a program that this process confines should have; None where the system has no scores."""
    present = _present()
    return None if present is None else min(MOST, present + CONFINED - _raised)


def _present() -> int | None:
    try:
        return int(_SCORE.read_text())
    except (OSError, ValueError):
        return None
