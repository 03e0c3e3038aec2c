"""When a process at rest wakes."""

from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_protocol.moments import PHASES, REST_S, last_moment

TIMES = st.floats(min_value=0.0, max_value=1e7)
PIDS = st.integers(min_value=0, max_value=2**22)


@given(TIMES, PIDS)
def test_the_last_moment_is_less_than_a_rest_ago(not_after: float, pid: int) -> None:
    """A heartbeat would come later than agreed, or a process hardly rest."""
    assert not_after - REST_S < last_moment(not_after, pid) <= not_after


@given(TIMES, PIDS)
def test_a_moment_is_its_own_last_one(not_after: float, pid: int) -> None:
    """A heartbeat that is sent at one would be due again at once."""
    moment = last_moment(not_after, pid)
    assert last_moment(moment, pid) == moment
    assert last_moment(moment + REST_S, pid) == moment + REST_S


def test_processes_of_different_phases_wake_apart() -> None:
    """Hundreds of workers would keep a machine busy together."""
    assert {last_moment(100.0, pid) % REST_S for pid in range(PHASES)} == {float(phase) for phase in range(PHASES)}
    assert last_moment(100.0, 0, 20.0) == 100.0
    assert last_moment(100.0, 1, 20.0) == 84.0
