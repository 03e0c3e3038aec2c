"""Decide whether a running server may fall asleep now, and if not, what keeps it awake.  Pure."""

from typing import Final

import msgspec

GRACE_S: Final = 10.0
"""Seconds without a request before a server that nothing refers to falls asleep: the next command may need it."""

GUEST_S: Final = 600.0
"""Seconds that a client without a session that could end counts as one that may call again."""

SHORTEST_POLL_S: Final = 1.0

POLL_S: Final = 30.0
"""Seconds between two looks at a server that is kept awake by something that does not report its end.  A row with a
shorter `idle_stop_s` has its server looked at as often."""


class Use(msgspec.Struct, frozen=True):
    """What refers to a running server, each as a number.

    Attributes:
        calls: requests that it has or that wait for it.
        processes: the servers that sessions have of its row for themselves, which are compared with it.
        sessions: open client sessions that called it.
        guests: clients that called it without a session that could end.
        by_hand_s: seconds for which a person has started it; 0 once they are over.
        unused_s: seconds since its last request, or since it was ready.
    """

    calls: int = 0
    questions: int = 0
    subscriptions: int = 0
    tasks: int = 0
    processes: int = 0
    sessions: int = 0
    guests: int = 0
    by_hand_s: float = 0.0
    unused_s: float = 0.0


class Wakefulness(msgspec.Struct, frozen=True):
    """What keeps a server awake, in words for people; without any `reasons` it may fall asleep. `again_s` is when to
    look again, in seconds; None for when something about it changes.
    """

    reasons: tuple[str, ...]
    again_s: float | None = None


def wakefulness(use: Use, why_always: str, idle_stop_s: float | None) -> Wakefulness:
    """Decide about a server; `why_always` says why it never sleeps, `idle_stop_s` is its row's."""
    if why_always:
        return Wakefulness((why_always,))
    held = tuple(
        f"{count} {word}" + ("" if count == 1 else "s")
        for count, word in (
            (use.calls, "call"),
            (use.questions, "open question"),
            (use.subscriptions, "subscription"),
            (use.tasks, "task"),
            (use.processes, "process of a session" if use.processes == 1 else "processes of session"),
        )
        if count
    )
    if held:
        return Wakefulness(held, min(POLL_S, max(SHORTEST_POLL_S, idle_stop_s or POLL_S)))
    if use.by_hand_s > 0:
        return Wakefulness(("started by hand",), use.by_hand_s)
    if use.sessions and idle_stop_s is None:
        return Wakefulness((_sessions(use.sessions),))
    limit_s, reason = min(GRACE_S, idle_stop_s or GRACE_S), "used a moment ago"
    if use.sessions:
        limit_s, reason = idle_stop_s or 0.0, _sessions(use.sessions)
    elif use.guests:
        limit_s, reason = idle_stop_s or GUEST_S, f"used within {idle_stop_s or GUEST_S:g} s"
    left_s = limit_s - use.unused_s
    return Wakefulness((reason,), left_s) if left_s > 0 else Wakefulness(())


def _sessions(count: int) -> str:
    return f"{count} client session" + ("" if count == 1 else "s")
