"""How much a server may have written down."""

from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.trust.list_review import CAPACITY_BYTES, REFILL_BYTES_PER_S, RecordLimit

STEPS = st.lists(st.tuples(st.integers(0, CAPACITY_BYTES), st.floats(0, 7200)), max_size=50)


def test_two_long_lists_are_taken_and_a_third_has_to_wait() -> None:
    """An honest server with many tools would not be recorded, or a hostile one without end."""
    allowance = RecordLimit(0)
    assert allowance.take(CAPACITY_BYTES // 2, 0) == 0
    assert allowance.take(CAPACITY_BYTES // 2, 1) == 0
    wait = allowance.take(CAPACITY_BYTES // 2, 2)
    assert wait > 0
    assert allowance.take(CAPACITY_BYTES // 2, 2 + wait + 1) == 0


@given(STEPS)
def test_never_more_is_taken_than_there_was_and_came(steps: list[tuple[int, float]]) -> None:
    """One server would fill the disk that all share."""
    allowance, taken, now = RecordLimit(0), 0, 0.0
    for cost, passed in steps:
        now += passed
        taken += cost if allowance.take(cost, now) == 0 else 0
        assert taken <= CAPACITY_BYTES + now * REFILL_BYTES_PER_S + 1
