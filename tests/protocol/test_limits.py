"""The bookkeeping of what waits for credit, of rates and of deadlines."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_protocol import limits
from quarterdeck_protocol.limits import (
    BEATS_AHEAD,
    MAX_PAUSE_S,
    UNIT_BYTES,
    Backlog,
    BeatRate,
    Deadlines,
    TokenBucket,
    Wait,
    units,
)
from quarterdeck_protocol.link.frames import Call, Cancel, Condemn, Frame, List, ListChanged, Log, Lost, Started

from .link.link_ends import FAULT


@pytest.mark.parametrize(
    ("size", "cost"),
    [(0, 1), (1, 1), (UNIT_BYTES - 1, 1), (UNIT_BYTES, 2), (UNIT_BYTES * 10 + 1, 11), (1 << 30, 16_385)],
)
def test_a_frame_costs_one_unit_and_one_for_each_block_of_its_body(size: int, cost: int) -> None:
    """Both ends must count alike, or honest ends would accuse each other."""
    assert units(size) == cost


def test_a_withdrawn_request_leaves_the_queue_and_nothing_else_does() -> None:
    """A cancel for the same id is not the request."""
    backlog = Backlog()
    waiting: list[Frame] = [List(1, 1.0), Cancel(2), List(2, 1.0), Call(3, 1.0, "t")]
    for frame in waiting:
        backlog.put(frame, b"")
    assert [backlog.withdraw(key) for key in (0, 2, 2, 9)] == [False, True, False, False]
    assert [backlog.take()[0] for _ in range(3)] == [List(1, 1.0), Cancel(2), Call(3, 1.0, "t")]
    assert not backlog


@pytest.mark.parametrize(
    ("waiting", "frame", "room"),
    [
        ([], Log("", ""), True),
        ([Cancel(1)], Log("", ""), False),
        ([Cancel(1)], List(2, 1.0), False),
        ([Cancel(1)], Lost(FAULT), True),
        ([Cancel(1)], Started(), True),
        ([Cancel(1)], Condemn("cpu_s", "too much"), True),
        ([Cancel(1)], ListChanged(), True),
        ([ListChanged()], ListChanged(), False),
        ([ListChanged()], Lost(FAULT), True),
    ],
)
def test_a_full_queue_has_room_for_what_must_be_told(waiting: list[Frame], frame: Frame, room: bool) -> None:
    """What decides over a server's life always, a change once, anything else not."""
    backlog = Backlog()
    for other in waiting:
        backlog.put(other, b"")
    assert backlog.has_room(frame, 1) is room


def test_a_queue_of_large_bodies_is_full_before_it_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients with large arguments would fill our memory through one worker that hangs."""
    monkeypatch.setattr(limits, "MAX_WAITING_BYTES", 100)
    backlog = Backlog()
    for key in (1, 2, 3):
        assert backlog.has_room(Call(key, 1.0, "t"), 100)
        backlog.put(Call(key, 1.0, "t"), bytes(40))
    assert not backlog.has_room(Call(4, 1.0, "t"), 100)
    assert backlog.has_room(Lost(FAULT), 100)
    assert backlog.withdraw(2)
    assert backlog.has_room(Call(4, 1.0, "t"), 100)
    backlog.put(Call(4, 1.0, "t"), bytes(40))
    assert not backlog.has_room(Call(5, 1.0, "t"), 100)
    assert backlog.take() == (Call(1, 1.0, "t"), bytes(40))
    assert backlog.has_room(Call(5, 1.0, "t"), 100)


def test_beats_that_piled_up_are_allowed() -> None:
    """A loop that was stopped in a debugger would call its peer hostile, for the beats that it did not read."""
    rhythm = BeatRate(beat_s=2.0, now=100.0)
    assert all(rhythm.allows(700.0) for _ in range(300))
    assert all(rhythm.allows(700.0 + 2.0 * beat) for beat in range(10_000))


def test_beats_without_a_pause_are_too_many() -> None:
    """A worker that was taken over would hold up all others with them, for ever."""
    rhythm = BeatRate(beat_s=2.0, now=100.0)
    allowed = [rhythm.allows(110.0) for _ in range(100)]
    assert allowed == [True] * (BEATS_AHEAD + 10) + [False] * (90 - BEATS_AHEAD)


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


@pytest.mark.parametrize(
    ("burst", "rate", "moments", "taken"),
    [
        (2, 1.0, [0.0, 0.0, 0.0], [True, True, False]),
        (2, 1.0, [0.0, 0.0, 0.5, 1.0], [True, True, False, True]),
        (2, 1.0, [0.0, 0.0, 100.0, 100.0, 100.0], [True, True, True, True, False]),
        (1, 0.5, [0.0, 1.0, 2.0], [True, False, True]),
        (1, 4.0, [0.0, 0.25, 0.5], [True, True, True]),
    ],
)
def test_a_budget_allows_a_burst_then_a_rate(burst: int, rate: float, moments: list[float], taken: list[bool]) -> None:
    """A flood would pass, or an honest server's burst would not."""
    budget = TokenBucket(burst, rate, 0.0)
    assert [not budget.take(1, now) for now in moments] == taken


def test_a_deadline_is_put_off_for_as_long_as_a_person_is_asked() -> None:
    """A call would end while its user types, or a late one go on without end."""
    first, second = Wait(10.0), Wait(210.0)
    first.pause(4.0)
    first.pause(5.0)
    assert first.at > 200.0
    for wait in (first, second):
        wait.resume(204.0)
    assert (first.at, second.at) == (210.0, 210.0), "one that began meanwhile is as it was"
    first.pause(205.0)
    assert first.at == 210.0 + MAX_PAUSE_S - 200.0
    first.resume(900.0)
    assert first.at == 10.0 + MAX_PAUSE_S, "all in all"
    first.pause(900.0)
    assert first.at == 10.0 + MAX_PAUSE_S
    first.resume(901.0)
    first.at = inf
    first.pause(1_000.0)
    first.resume(1_001.0)
    assert first.at == inf, "what has passed has passed"


@given(st.lists(st.tuples(st.sampled_from(["add", "remove", "begin", "end"]), st.integers(1, 4), st.floats(0, 500))))
def test_no_deadline_is_put_off_by_more_than_it_was_paused(steps: list[tuple[str, int, float]]) -> None:
    """Some order would let a call run for ever, or end it early."""
    waits: dict[int, Wait] = {}
    first: dict[int, float] = {}
    now = 0.0
    for what, key, number in steps:
        now += number
        match what:
            case "add" if key not in first:
                first[key] = now + 10.0
                waits[key] = Wait(first[key])
            case "remove":
                waits.pop(key, None)
            case "begin":
                for wait in waits.values():
                    wait.pause(now)
            case "end":
                for wait in waits.values():
                    wait.resume(now)
        for each, wait in waits.items():
            assert first[each] - 1e-6 <= wait.at <= first[each] + MAX_PAUSE_S + 1e-6
