"""Requests that ring once, and stay until they are answered."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_protocol.link.credit import Deadlines


def test_what_is_due_rings_once_and_stays() -> None:
    """Its late reply must still find it."""
    deadlines = Deadlines()
    for key, at in ((1, 3.0), (2, 1.0), (3, 2.0)):
        deadlines.add(key, at)
    assert deadlines.soonest == 1.0
    assert deadlines.due(0.5) == []
    assert deadlines.due(2.0) == [2, 3]
    assert deadlines.due(2.5) == []
    assert deadlines.soonest == 3.0
    assert (len(deadlines), 2 in deadlines) == (3, True)
    assert deadlines.due(9.0) == [1]
    assert deadlines.soonest == inf


def test_what_was_removed_does_not_ring() -> None:
    """A reply ends the wait, once."""
    deadlines = Deadlines()
    deadlines.add(1, 1.0)
    assert deadlines.left_s(1, 0.25) == 0.75
    assert deadlines.remove(1)
    assert not deadlines.remove(1)
    assert 1 not in deadlines
    assert deadlines.due(2.0) == []


@given(
    st.lists(st.tuples(st.sampled_from(["add", "remove", "due"]), st.integers(0, 5), st.integers(0, 20)), max_size=40)
)
def test_no_deadline_is_missed_and_none_rings_early(steps: list[tuple[str, int, int]]) -> None:
    """However requests come and go, `soonest` is never later than the next one that rings."""
    deadlines, model, now = Deadlines(), dict[int, float](), 0.0
    for what, key, number in steps:
        if what == "add" and key not in model:
            model[key] = now + number
            deadlines.add(key, now + number)
        elif what == "remove":
            assert deadlines.remove(key) is (model.pop(key, None) is not None)
        elif what == "due":
            now += number
            expected = [key for key, at in model.items() if at <= now]
            assert deadlines.due(now) == expected
            model.update(dict.fromkeys(expected, inf))
        assert deadlines.soonest <= min(model.values(), default=inf)
        assert len(deadlines) == len(model)
