"""The bookkeeping of credit, both directions of it."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_protocol import limits
from quarterdeck_protocol.limits import (
    BEATS_AHEAD,
    MAX_PAUSE_S,
    UNIT_BYTES,
    BeatRate,
    Deadlines,
    Outbox,
    Pause,
    PeerCredit,
    TokenBucket,
    units,
)
from quarterdeck_protocol.link.frame_bytes import WireLimits
from quarterdeck_protocol.link.frames import Beat, Call, Cancel, Condemn, Frame, List, ListChanged, Log, Lost, Started

from .link.link_ends import FAULT, LIMITS, frames_of


@pytest.mark.parametrize(
    ("size", "cost"),
    [(0, 1), (1, 1), (UNIT_BYTES - 1, 1), (UNIT_BYTES, 2), (UNIT_BYTES * 10 + 1, 11), (1 << 30, 16_385)],
)
def test_a_frame_costs_one_unit_and_one_for_each_block_of_its_body(size: int, cost: int) -> None:
    """Both ends must count alike, or honest ends would accuse each other."""
    assert units(size) == cost


def _outbox(window_units: int = 2) -> Outbox:
    return Outbox(window_units, LIMITS)


def test_what_is_free_overtakes_what_waits() -> None:
    """A beat must not wait for credit: the peer would take us for dead."""
    outbox = _outbox(1)
    for key in (1, 2):
        assert outbox.send(Cancel(key), b"")
    outbox.put(Beat())
    assert frames_of(outbox.take()) == [Cancel(1), Beat()]
    assert outbox.take() == []


def test_credit_lets_go_what_waited_in_order() -> None:
    """And nothing that comes later passes it."""
    outbox = _outbox(1)
    for key in (1, 2, 3):
        outbox.send(Cancel(key), b"")
    assert outbox.pop() is None
    assert outbox.earn(1)
    assert outbox.send(Cancel(4), b"")
    popped = outbox.pop()
    assert popped == (Cancel(2), b"")
    outbox.resend(*popped)
    assert outbox.pop() is None
    assert frames_of(outbox.take()) == [Cancel(1), Cancel(2)]


@pytest.mark.parametrize(
    ("amount", "taken"), [(0, False), (-1, False), (1, True), (2, True), (3, False), (1 << 63, False)]
)
def test_only_credit_that_was_used_is_taken(amount: int, taken: bool) -> None:
    """A peer cannot widen its window."""
    outbox = _outbox(2)
    for key in (1, 2):
        outbox.send(Cancel(key), b"")
    assert outbox.earn(amount) is taken


def test_a_withdrawn_request_leaves_the_queue_and_nothing_else_does() -> None:
    """A cancel for the same id is not the request."""
    outbox = _outbox(1)
    waiting: list[Frame] = [List(1, 1.0), Cancel(2), List(2, 1.0), Call(3, 1.0, "t")]
    for frame in (List(0, 1.0), *waiting):
        outbox.send(frame, b"")
    assert [outbox.withdraw(key) for key in (0, 2, 2, 9)] == [False, True, False, False]
    left = []
    while outbox.earn(1) and (entry := outbox.pop()) is not None:
        outbox.resend(*entry)
        left.append(entry[0])
    assert left == [List(1, 1.0), Cancel(2), Call(3, 1.0, "t")]


def test_what_cannot_be_carried_leaves_no_trace() -> None:
    """Neither in the queue nor in the credit."""
    outbox = Outbox(1, WireLimits(header_bytes=20))
    assert not outbox.send(Log("info", "x" * 20), b"")
    assert outbox.send(Cancel(1), b"")
    assert not outbox.send(Log("info", "x" * 20), b"")
    assert len(outbox.take()) == 1
    assert outbox.earn(1)
    assert outbox.pop() is None


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
    outbox = _outbox(1)
    outbox.send(Cancel(0), b"")
    for other in waiting:
        outbox.send(other, b"")
    assert outbox.has_room(frame, 1) is room


def test_a_queue_of_large_bodies_is_full_before_it_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients with large arguments would fill our memory through one worker that hangs."""
    monkeypatch.setattr(limits, "MAX_WAITING_BYTES", 100)
    outbox = _outbox(1)
    outbox.send(Cancel(0), b"")
    for key in (1, 2, 3):
        assert outbox.has_room(Call(key, 1.0, "t"), 100)
        outbox.send(Call(key, 1.0, "t"), bytes(40))
    assert not outbox.has_room(Call(4, 1.0, "t"), 100)
    assert outbox.has_room(Lost(FAULT), 100)
    assert outbox.withdraw(2)
    assert outbox.has_room(Call(4, 1.0, "t"), 100)
    outbox.send(Call(4, 1.0, "t"), bytes(40))
    assert not outbox.has_room(Call(5, 1.0, "t"), 100)
    assert outbox.earn(1)
    assert outbox.pop() == (Call(1, 1.0, "t"), bytes(40))
    assert outbox.has_room(Call(5, 1.0, "t"), 100)


def test_an_allowance_ends_where_the_window_does() -> None:
    """With any credit left one frame of any size may come; without, none."""
    allowance = PeerCredit(4)
    assert [allowance.charge(cost) for cost in (1, 100, 1)] == [True, True, False]
    assert allowance.refund() == 101
    assert allowance.charge(1)


def test_small_debts_are_not_paid_at_once() -> None:
    """Credit for each frame would double the traffic."""
    allowance = PeerCredit(4)
    allowance.charge(1)
    assert allowance.refund() == 0
    allowance.charge(1)
    assert allowance.refund() == 2
    assert allowance.refund() == 0


@given(window=st.integers(1, 6), sizes=st.lists(st.integers(0, 9), max_size=20))
def test_two_ends_that_keep_the_books_never_run_dry_or_over(window: int, sizes: list[int]) -> None:
    """Whatever is sent arrives in the end: the last debt is always large enough to be paid."""
    outbox, allowance = _outbox(window), PeerCredit(window)
    for size in sizes:
        outbox.send(Call(size, 1.0, "t"), bytes(size * UNIT_BYTES))
    arrived = 0
    while messages := outbox.take():
        for parts in messages:
            assert allowance.charge(units(sum(map(len, parts[1:]))))
            arrived += 1
        if refund := allowance.refund():
            assert outbox.earn(refund)
        while (entry := outbox.pop()) is not None:
            outbox.resend(*entry)
    assert arrived == len(sizes)


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
    deadlines, pause = Deadlines(), Pause()
    deadlines.add(1, 10.0)
    pause.begin(deadlines, 4.0)
    pause.begin(deadlines, 5.0)
    assert deadlines.due(200.0) == []
    deadlines.add(2, 210.0)
    pause.end(deadlines, 204.0)
    assert dict(deadlines) == {1: 210.0, 2: 210.0}, "one that began meanwhile is as it was"
    assert deadlines.soonest <= 210.0
    pause.begin(deadlines, 205.0)
    assert deadlines[1] == 210.0 + MAX_PAUSE_S - 200.0
    pause.end(deadlines, 900.0)
    assert deadlines[1] == 10.0 + MAX_PAUSE_S, "all in all"
    pause.begin(deadlines, 900.0)
    assert deadlines[1] == 10.0 + MAX_PAUSE_S
    pause.end(deadlines, 901.0)
    assert deadlines.due(1_000.0) == [1, 2]
    pause.begin(deadlines, 1_000.0)
    assert deadlines.due(9_000.0) == [], "what has passed has passed"


@given(st.lists(st.tuples(st.sampled_from(["add", "remove", "begin", "end"]), st.integers(1, 4), st.floats(0, 500))))
def test_no_deadline_is_put_off_by_more_than_it_was_paused(steps: list[tuple[str, int, float]]) -> None:
    """Some order would let a call run for ever, or end it early."""
    deadlines, pause, now = Deadlines(), Pause(), 0.0
    first: dict[int, float] = {}
    for what, key, number in steps:
        now += number
        match what:
            case "add" if key not in first:
                first[key] = now + 10.0
                deadlines.add(key, first[key])
            case "remove":
                deadlines.remove(key)
            case "begin":
                pause.begin(deadlines, now)
            case "end":
                pause.end(deadlines, now)
        for each, at in deadlines.items():
            assert first[each] - 1e-6 <= at <= first[each] + MAX_PAUSE_S + 1e-6
