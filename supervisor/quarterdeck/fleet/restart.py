"""Decide when a dead server is started again.  Pure: times and chance are arguments, the answer is a value.

The fleet's core asks at each death and remembers each restart that it made.  Nothing here knows what a server is.

Source: Erlang/OTP sup_princ, "Maximum Restart Intensity" (MaxR restarts in MaxT seconds).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quarterdeck_protocol.configs import RestartPolicy

LONGEST_STREAK: Final = 64
"""Restarts in a row that are told apart: so many doublings take any first delay to any longest one."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Start it again, `delay_s` seconds from now."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class CrashLoop:
    """Leave it alone: it died although it was restarted `restarts` times, all that its policy allows."""

    restarts: int


Verdict = Restart | CrashLoop


def decide(
    policy: RestartPolicy, history: Sequence[float], now: float, fraction: float, *, has_served: bool = True
) -> Verdict:
    """What becomes of a server that died at `now`.

    Args:
        policy: the server's own.
        history: monotonic times of its restarts since its past was last forgotten, seconds, ascending.
        now: the time of the death, on the same clock.
        fraction: chance, in [0, 1), evenly spread; it places the delay within its jitter.
        has_served: whether it was ever ready.  One that never was gets `max_restarts` in all, however far apart:
            whoever waits for its first connect is answered in the end.
    """
    counted = sum(at >= now - policy.window_s for at in history) if has_served else len(history)
    if counted >= policy.max_restarts:
        return CrashLoop(counted)
    return Restart(_delay_s(policy, len(history), fraction))


def remember(policy: RestartPolicy, history: Sequence[float], at: float) -> tuple[float, ...]:
    """The history after a restart that was made `at` that time, cut to what `decide` can tell apart."""
    return (*history, at)[-max(policy.max_restarts, LONGEST_STREAK) :]


def is_forgotten(policy: RestartPolicy, alive_s: float) -> bool:
    """Whether a life of `alive_s` seconds, counted from ready, wipes out what came before it."""
    return alive_s >= policy.stable_s


def _delay_s(policy: RestartPolicy, streak: int, fraction: float) -> float:
    """The delay after `streak` restarts in a row.

    The longest delay is spread too: servers that died together and fail together must not all come back together.
    """
    delay_s = min(policy.backoff_s * 2.0 ** min(streak, LONGEST_STREAK), policy.backoff_max_s)
    return delay_s * (1 + policy.jitter * (2 * fraction - 1))
