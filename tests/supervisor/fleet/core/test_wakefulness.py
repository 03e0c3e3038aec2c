"""What keeps a running server awake, and when it is looked at again: the table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.fleet.core.wakefulness import GRACE_S, GUEST_S, POLL_S, Use, wakefulness

IDLE_S = 5.0


@pytest.mark.parametrize(
    ("use", "idle_stop_s", "reasons", "again_s"),
    [
        (Use(unused_s=GRACE_S), None, (), None),
        (Use(unused_s=4.0), None, ("used a moment ago",), GRACE_S - 4.0),
        (Use(unused_s=4.0), 1.0, (), None),
        (Use(sessions=1, unused_s=9999.0), None, ("1 client session",), None),
        (Use(sessions=2, unused_s=IDLE_S), IDLE_S, (), None),
        (Use(sessions=2, guests=1, unused_s=2.0), IDLE_S, ("2 client sessions",), 3.0),
        (Use(guests=1, unused_s=100.0), None, (f"used within {GUEST_S:g} s",), GUEST_S - 100.0),
        (Use(guests=1, unused_s=GUEST_S), None, (), None),
        (Use(guests=1, unused_s=IDLE_S), IDLE_S, (), None),
        (Use(calls=1, unused_s=9999.0), IDLE_S, ("1 call",), IDLE_S),
        (Use(calls=1), 0.1, ("1 call",), 1.0),
        (Use(questions=2, subscriptions=1, unused_s=9999.0), IDLE_S, ("2 open questions", "1 subscription"), IDLE_S),
        (Use(tasks=1, by_hand_s=7.0), IDLE_S, ("1 task",), IDLE_S),
        (Use(processes=2, unused_s=9999.0), POLL_S + 1, ("2 processes of sessions",), POLL_S),
        (Use(processes=1, unused_s=9999.0), None, ("1 process of a session",), POLL_S),
        (Use(by_hand_s=7.0, sessions=1, unused_s=9999.0), IDLE_S, ("started by hand",), 7.0),
    ],
)
def test_a_server_is_kept_awake_by_what_refers_to_it(
    use: Use, idle_stop_s: float | None, reasons: tuple[str, ...], again_s: float | None
) -> None:
    """A server would be stopped below a client that needs it, or run on for nobody."""
    found = wakefulness(use, "", idle_stop_s)
    assert (found.reasons, found.again_s) == (reasons, again_s)


USES = st.builds(
    Use,
    **{name: st.integers(0, 3) for name in ("calls", "questions", "subscriptions", "tasks", "sessions", "guests")},
    by_hand_s=st.floats(0, 20),
    unused_s=st.floats(0, 1000),
)
LIMITS = st.none() | st.floats(0.1, 1000)


@given(use=USES, idle_stop_s=LIMITS)
def test_a_server_that_never_sleeps_says_why_alone(use: Use, idle_stop_s: float | None) -> None:
    """`status` would name clients as the reason, and the server run on after they have left."""
    found = wakefulness(use, "at once", idle_stop_s)
    assert (found.reasons, found.again_s) == (("at once",), None)


@given(use=USES, idle_stop_s=LIMITS)
def test_a_server_that_only_time_keeps_awake_is_looked_at_when_that_is_over(
    use: Use, idle_stop_s: float | None
) -> None:
    """It would run on for ever, or a timer tick without end."""
    found = wakefulness(use, "", idle_stop_s)
    if not found.reasons:
        assert found.again_s is None
        assert not any((use.calls, use.questions, use.subscriptions, use.tasks, use.by_hand_s))
    elif found.again_s is None:
        assert use.sessions
        assert idle_stop_s is None
    else:
        assert 0 < found.again_s <= max(POLL_S, GUEST_S, idle_stop_s or 0.0)
