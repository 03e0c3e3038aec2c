"""The pauses between attempts that fail in a row."""

from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_protocol.backoff import Backoff, Pace, pause_s

PACE = Pace(first_s=1.0, longest_s=60.0, steady_s=60.0)


def test_what_fails_again_and_again_is_tried_ever_more_seldom() -> None:
    """A server that ends each stream at once would be asked every second for ever."""
    pauses = Backoff(PACE)
    assert [pauses.after(0.1) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert [pauses.after(PACE.steady_s), pauses.after(0.1)] == [1, 2], "one that held was none of the row"


def test_what_the_other_side_asks_for_is_the_least() -> None:
    """A server could have us come back at once, or would be overrun although it asked for time."""
    pauses = Backoff(PACE)
    assert [pauses.after(0.0, asked_s=asked_s) for asked_s in (0.0, 0.0, 5.0, 5.0)] == [1, 2, 5, 8]


@given(st.integers(0, 10**9), st.floats(0, 1, exclude_max=True), st.floats(0, 0.99))
def test_every_pause_stays_within_its_jitter(streak: int, fraction: float, jitter: float) -> None:
    """A row of any length must neither come to no pause nor to an endless one."""
    pace = Pace(0.5, 30.0, 60.0, jitter)
    assert 0.5 * (1 - jitter) <= pause_s(pace, streak, fraction) <= 30.0 * (1 + jitter)
