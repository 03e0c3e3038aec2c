"""The restart policy by tables and by generated histories."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.fleet.core.member import CrashLoop, Restart, decide, is_forgotten, remember
from quarterdeck_protocol.backoff import LONGEST_STREAK
from quarterdeck_protocol.configs import RestartPolicy

DEFAULT = RestartPolicy()
MIDDLE = 0.5
"""The fraction that leaves a delay as it is."""

PATIENT = RestartPolicy(max_restarts=1000)
"""Never a crash loop in these tables, so that only the delay shows."""


@pytest.mark.parametrize(
    ("streak", "delay_s"), [(0, 0.5), (1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 16.0), (6, 30.0), (7, 30.0)]
)
def test_each_restart_in_a_row_waits_twice_as_long_up_to_thirty_seconds(streak: int, delay_s: float) -> None:
    """A server that keeps dying would burn the machine, or a healthy one would wait for minutes."""
    assert decide(PATIENT, [0.0] * streak, 1.0, MIDDLE) == Restart(delay_s)


@pytest.mark.parametrize(("fraction", "delay_s"), [(0.0, 0.375), (0.25, 0.4375), (0.5, 0.5), (0.75, 0.5625)])
def test_chance_spreads_a_delay_by_a_quarter_up_and_down(fraction: float, delay_s: float) -> None:
    assert decide(DEFAULT, [], 0.0, fraction) == Restart(pytest.approx(delay_s))


def test_the_longest_delay_is_spread_too() -> None:
    assert decide(PATIENT, [0.0] * 20, 1.0, 0.75) == Restart(pytest.approx(33.75))


@pytest.mark.parametrize(
    ("history", "verdict"),
    [
        pytest.param([41, 42, 43, 44], Restart(8.0), id="four in the window"),
        pytest.param([40, 41, 42, 43, 44], CrashLoop(5), id="five, the oldest on the window's edge"),
        pytest.param([39.9, 41, 42, 43, 44], Restart(16.0), id="the oldest just outside"),
        pytest.param([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], Restart(30.0), id="all outside, still a streak"),
        pytest.param([95, 96, 97, 98, 99], CrashLoop(5), id="five in a moment"),
    ],
)
def test_a_sixth_restart_within_the_window_is_a_crash_loop(history: list[float], verdict: Restart | CrashLoop) -> None:
    assert decide(DEFAULT, history, 100.0, MIDDLE) == verdict


def test_a_policy_of_no_restarts_allows_none() -> None:
    assert decide(RestartPolicy(max_restarts=0), [], 0.0, MIDDLE) == CrashLoop(0)


def test_a_server_that_never_served_gets_its_restarts_once_however_slowly_it_fails() -> None:
    history = [0.0, 1000.0, 2000.0, 3000.0, 4000.0]
    assert decide(DEFAULT, history, 5000.0, MIDDLE, has_served=False) == CrashLoop(5)
    assert decide(DEFAULT, history[1:], 5000.0, MIDDLE, has_served=False) == Restart(8.0)


@pytest.mark.parametrize(("alive_s", "forgotten"), [(0.0, False), (299.9, False), (300.0, True), (1e6, True)])
def test_five_stable_minutes_wipe_out_the_past(alive_s: float, forgotten: bool) -> None:
    assert is_forgotten(DEFAULT, alive_s) is forgotten


def test_memory_is_bounded_and_keeps_all_that_the_policy_counts() -> None:
    history: tuple[float, ...] = ()
    for at in range(200):
        history = remember(DEFAULT, history, float(at))
    assert history == tuple(map(float, range(200 - LONGEST_STREAK, 200)))
    assert len(remember(PATIENT, [0.0] * 999, 1.0)) == 1000


@given(
    first_s=st.floats(1e-3, 1e3),
    longest_s=st.floats(1e-3, 1e3),
    jitter=st.floats(0, 0.99),
    streak=st.integers(0, 2000),
    fraction=st.floats(0, 1, exclude_max=True),
)
def test_every_delay_stays_within_its_jitter_of_the_longest_one(
    first_s: float, longest_s: float, jitter: float, streak: int, fraction: float
) -> None:
    policy = RestartPolicy(max_restarts=5000, backoff_s=first_s, backoff_max_s=longest_s, jitter=jitter)
    verdict = decide(policy, [0.0] * streak, 0.0, fraction)
    assert isinstance(verdict, Restart)
    least_s = min(first_s, longest_s)
    assert least_s * (1 - jitter) * 0.999 <= verdict.delay_s <= longest_s * (1 + jitter) * 1.001


@given(
    policy=st.builds(RestartPolicy, max_restarts=st.integers(0, 6), window_s=st.floats(1, 100)),
    lives_s=st.lists(st.floats(0, 60), max_size=40),
    fractions=st.lists(st.floats(0, 1, exclude_max=True), min_size=40, max_size=40),
)
def test_restarts_within_any_window_never_exceed_the_intensity(
    policy: RestartPolicy, lives_s: list[float], fractions: list[float]
) -> None:
    now, restarts, history = 0.0, list[float](), tuple[float, ...]()
    for life_s, fraction in zip(lives_s, fractions, strict=False):
        now += life_s
        verdict = decide(policy, history, now, fraction)
        if isinstance(verdict, CrashLoop):
            break
        now += verdict.delay_s
        restarts.append(now)
        history = remember(policy, history, now)
    for end in restarts:
        assert sum(end - policy.window_s <= at <= end for at in restarts) <= policy.max_restarts
