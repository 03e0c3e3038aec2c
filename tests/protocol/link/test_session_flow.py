"""What the link owes to time and to its peer's pace: credit, deadlines, heartbeats."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_protocol.limits import UNIT_BYTES
from quarterdeck_protocol.link.events import Arrived, Expired, Late, LinkTerms, Overdue, Side, Silent, Violated
from quarterdeck_protocol.link.frame_bytes import encode
from quarterdeck_protocol.link.frames import Answer, Beat, Call, Credit, List, ListChanged, Log
from quarterdeck_protocol.link.session import PAUSE_S

from .link_ends import SMALL, carry, fill, frames_of, is_dead, make_link, make_pair

# Credit


def test_sending_without_credit_is_a_violation() -> None:
    """An end that floods before it was given credit is cut off."""
    supervisor, _ = make_pair(SMALL)
    line = encode(Log("info", ""))
    assert [supervisor.receive(line, 0.0) for _ in range(4)] == [[Arrived(Log("info", ""), b"")]] * 4
    assert supervisor.receive(line, 0.0) == [Violated("it sent more than its credit")]
    assert is_dead(supervisor)


@pytest.mark.parametrize("amount", [1, 0, -1, -(2**63), 2**64 - 1])
def test_a_credit_that_is_not_owed_is_a_violation(amount: int) -> None:
    """Else a peer could lift every bound."""
    supervisor, _ = make_pair()
    assert supervisor.receive(encode(Credit(amount)), 0.0) == [Violated(f"a credit of {amount} that is not owed")]
    assert is_dead(supervisor)


def test_what_is_free_overtakes_what_waits() -> None:
    """A beat must not wait for credit: the peer would take us for dead."""
    _, worker = make_pair(SMALL)
    for _ in range(SMALL.window_units + 1):
        worker.post(Log("info", ""))
    worker.tick(5.0)
    assert frames_of(worker.take(5.0)) == [Log("info", "")] * SMALL.window_units + [Beat()]


def test_credit_lets_go_what_waited_in_order() -> None:
    """And nothing that comes later passes it."""
    _, worker = make_pair(SMALL)
    for number in range(6):
        worker.post(Log("info", str(number)))
    assert len(worker.take(0.0)) == SMALL.window_units
    worker.receive(encode(Credit(1)), 0.0)
    worker.post(Log("info", "late"))
    assert frames_of(worker.take(0.0)) == [Log("info", "4")]
    worker.receive(encode(Credit(3)), 0.0)
    assert frames_of(worker.take(0.0)) == [Log("info", "5"), Log("info", "late")]


@pytest.mark.parametrize(
    ("amount", "is_taken"), [(0, False), (-1, False), (1, True), (2, True), (3, False), (1 << 63, False)]
)
def test_only_credit_that_was_used_is_taken(amount: int, is_taken: bool) -> None:
    """A peer cannot widen its window."""
    _, worker = make_pair(SMALL)
    for _ in range(2):
        worker.post(Log("info", ""))
    worker.receive(encode(Credit(amount)), 0.0)
    assert worker.is_open is is_taken


def test_what_cannot_be_carried_costs_no_credit() -> None:
    """A log line that is too long would take the place of those that are not."""
    _, worker = make_pair(SMALL)
    for _ in range(SMALL.window_units):
        assert not worker.post(Log("info", "x" * SMALL.wire.header_bytes))
        assert worker.post(Log("info", ""))
    assert len(worker.take(0.0)) == SMALL.window_units


def test_credit_ends_where_the_window_does() -> None:
    """With any credit left one frame of any size may come; all of it is given back."""
    supervisor, _ = make_pair(SMALL)
    for body in (b"", bytes(100 * UNIT_BYTES)):
        supervisor.receive(encode(Log("info", ""), body), 0.0)
    assert frames_of(supervisor.take(0.0)) == [Credit(102)]
    supervisor.receive(encode(Log("info", "")), 0.0)
    assert supervisor.is_open


def test_small_debts_are_not_paid_at_once() -> None:
    """Credit for each frame would double the traffic."""
    supervisor, _ = make_pair(SMALL)
    line = encode(Log("info", ""))
    supervisor.receive(line, 0.0)
    assert supervisor.take(0.0) == []
    supervisor.receive(line, 0.0)
    assert frames_of(supervisor.take(0.0)) == [Credit(2)]
    assert supervisor.take(0.0) == []


@given(window=st.integers(1, 6), sizes=st.lists(st.integers(0, 9), max_size=20))
def test_two_ends_that_keep_the_books_never_run_dry_or_over(window: int, sizes: list[int]) -> None:
    """Whatever is sent arrives in the end: the last debt is always large enough to be paid."""
    supervisor, worker = make_pair(LinkTerms(window_units=window))
    for size in sizes:
        worker.post(Log("info", ""), bytes(size * UNIT_BYTES))
    arrived = []
    while events := carry(worker, supervisor):
        arrived += events
        assert carry(supervisor, worker) == []
    assert [event.body for event in arrived if isinstance(event, Arrived)] == [
        bytes(size * UNIT_BYTES) for size in sizes
    ]


def test_deadlines_are_put_off_at_both_ends_while_a_person_is_asked() -> None:
    """A call would end while its user types."""
    supervisor, worker = make_pair()
    supervisor.request(Call(1, 3.0, "t"), b"{}", 0.0)
    carry(supervisor, worker)
    for link in (supervisor, worker):
        link.pause(1.0)
    assert worker.tick(4.0) == []
    carry(worker, supervisor, 4.0)
    for link in (supervisor, worker):
        link.resume(5.0)
    assert worker.tick(6.9) == []
    assert worker.tick(7.0) == [Expired(1)]
    carry(worker, supervisor, 7.0)
    assert supervisor.tick(8.9) == []
    assert supervisor.tick(9.0) == [Overdue(1)]


# Deadlines


def test_a_request_expires_at_the_worker_and_then_at_the_supervisor() -> None:
    """The worker is the authority; the supervisor's own clock is the backstop two seconds later."""
    supervisor, worker = make_pair()
    supervisor.request(Call(1, 3.0, "t"), b"{}", 0.0)
    carry(supervisor, worker, 0.5)
    for now in (1.0, 2.0, 3.0):
        carry(worker, supervisor, now)
        carry(supervisor, worker, now)
        assert worker.tick(now) == []
        assert supervisor.tick(now) == []
    assert worker.tick(3.5) == [Expired(1)]
    assert worker.tick(3.6) == []
    assert worker.serves(1)
    carry(worker, supervisor, 4.0)
    assert supervisor.tick(4.9) == []
    assert supervisor.tick(5.0) == [Overdue(1, was_sent=True)]
    assert supervisor.tick(5.1) == []


def test_a_peer_that_lets_a_deadline_pass_and_beats_is_busy_before_it_is_hung() -> None:
    """A worker on a busy machine would be killed, and all its other calls with it, for one late answer."""
    supervisor, worker = make_pair()
    supervisor.request(List(1, 1.0), b"", 0.0)
    carry(supervisor, worker)
    for now in (2.0, 4.0, 6.0, 8.0):
        worker.tick(now)
        carry(worker, supervisor, now)
        assert supervisor.tick(now + 1.0) == ([Late(1)] if now == 2.0 else [Overdue(1)] if now == 8.0 else [])
        carry(supervisor, worker, now + 1.0)
    worker.reply(Answer(1), b"[]")
    assert carry(worker, supervisor, 9.0) == []
    assert supervisor.in_flight == 0


def test_a_late_peer_that_gets_no_processor_is_given_as_much_longer() -> None:
    """A machine that is busy for a quarter of a minute would kill every worker that has a call."""
    supervisor, worker = make_pair()
    supervisor.request(List(1, 1.0), b"", 0.0)
    carry(supervisor, worker)
    told = []
    for now in range(2, 20, 2):
        worker.tick(now)
        carry(worker, supervisor, now)
        told += [(now + 1, event) for event in supervisor.tick(now + 1, min(float(now), 8.0) - 2.0)]
        carry(supervisor, worker, now + 1)
    assert told == [(3, Late(1)), (15, Overdue(1))]


def test_a_cancelled_request_is_overdue_as_well() -> None:
    """A worker that answers not even a cancelled call is hung."""
    supervisor, worker = make_pair()
    supervisor.request(List(1, 1.0), b"", 0.0)
    carry(supervisor, worker)
    supervisor.cancel(1)
    assert supervisor.tick(3.0) == [Overdue(1)]


def test_a_request_that_waited_too_long_was_never_sent() -> None:
    """Its caller may repeat it, and it does not reach the worker after all."""
    supervisor, worker = make_pair(SMALL)
    fill(supervisor)
    waiting = supervisor.next_id()
    supervisor.request(List(waiting, 1.0), b"", 0.0)
    sent = supervisor.take(0.0)
    assert supervisor.tick(3.0) == [Overdue(waiting, was_sent=False)]
    for parts in sent:
        worker.receive(parts, 3.0)
    carry(worker, supervisor, 3.0)
    assert supervisor.take(3.0) == []
    assert not worker.serves(waiting)
    assert supervisor.in_flight == 4


def test_credit_that_comes_too_late_sends_nothing_stale() -> None:
    """A call whose caller has given up must not run."""
    supervisor, worker = make_pair(SMALL)
    fill(supervisor)
    waiting = supervisor.next_id()
    supervisor.request(List(waiting, 1.0), b"", 0.0)
    carry(supervisor, worker, 0.0)
    assert carry(worker, supervisor, 1.5) == [Overdue(waiting, was_sent=False)]
    assert carry(supervisor, worker, 1.5) == []


def test_time_in_the_queue_counts_for_the_worker_too() -> None:
    """Else the backstop would ring before the worker's own deadline, and an honest worker be killed."""
    supervisor, worker = make_pair(SMALL)
    fill(supervisor)
    waiting = supervisor.next_id()
    supervisor.request(Call(waiting, 10.0, "t"), b"{}", 0.0)
    carry(supervisor, worker, 0.0)
    carry(worker, supervisor, 4.0)
    assert carry(supervisor, worker, 4.0) == [Arrived(Call(waiting, 6.0, "t"), b"{}")]
    supervisor.tick(9.0)
    carry(supervisor, worker, 9.0)
    assert Expired(waiting) in worker.tick(10.0)


def test_wake_at_is_early_rather_than_late() -> None:
    """A timer armed for it misses no deadline."""
    supervisor, worker = make_pair()
    supervisor.request(List(1, 0.25), b"", 0.0)
    carry(supervisor, worker)
    assert worker.wake_at == 0.25
    assert supervisor.wake_at == 2.25
    worker.reply(Answer(1))
    carry(worker, supervisor, 0.125)
    assert worker.wake_at <= 0.25
    assert worker.tick(0.25) == []
    assert worker.wake_at == 5.0


# Beats


def test_a_worker_beats_faster_from_the_moment_that_it_owes_a_reply() -> None:
    """A call to one that hangs would be waited for as long as nobody waits for one that is idle."""
    supervisor, worker = make_pair()
    worker.tick(5.0)
    carry(worker, supervisor, 5.0)
    supervisor.request(List(1, 30.0), b"", 9.0)
    carry(supervisor, worker, 9.0)
    assert worker.wake_at == 7.0
    for now in (9.0, 11.0, 13.0):
        worker.tick(now)
        assert frames_of(worker.take(now)) == [Beat()]
        assert worker.wake_at == now + 2.0
    worker.reply(Answer(1), b"[]")
    worker.take(14.0)
    assert worker.wake_at == 15.0


def test_the_patience_with_a_worker_that_owes_a_reply_begins_with_the_request() -> None:
    """One that was quiet as it should be would be killed by the first call; or its silence be waited for too long."""
    supervisor, _ = make_pair()
    supervisor.request(List(1, 30.0), b"", 14.0)
    assert supervisor.tick(19.9) == []
    assert supervisor.wake_at == 20.0
    supervisor.request(List(2, 30.0), b"", 19.9)
    assert supervisor.tick(20.0) == [Silent(20.0)]


def test_a_supervisor_beats_rarely() -> None:
    """Each of its beats wakes a process: forty idle servers would cost a third more."""
    supervisor, worker = make_pair()
    told = []
    for now in map(float, range(1, 601)):
        for link in (supervisor, worker):
            link.tick(now)
        carry(worker, supervisor, now)
        said = supervisor.take(now)
        told += [(now, frame) for frame in frames_of(said)]
        for parts in said:
            assert worker.receive(parts, now) == []
    assert told == [(200.0, Beat()), (400.0, Beat()), (600.0, Beat())]


def test_who_talks_need_not_beat() -> None:
    """A busy link carries nothing extra."""
    supervisor, worker = make_pair()
    worker.post(ListChanged())
    carry(worker, supervisor, 5.0)
    worker.tick(9.5)
    assert worker.take(9.5) == []
    worker.tick(10.0)
    assert frames_of(worker.take(10.0)) == [Beat()]


@pytest.mark.parametrize(("pid", "beats_at"), [(0, 5.0), (1, 6.0), (4, 4.0), (9, 4.0)])
def test_workers_beat_at_moments_of_their_own(pid: int, beats_at: float) -> None:
    """Each would wake once more for every look at its server; or all of them keep the machine busy at once."""
    worker, supervisor = make_link(Side.WORKER, pid=pid), make_link(Side.SUPERVISOR)
    carry(worker, supervisor, 1.5)
    carry(supervisor, worker, 1.5)
    assert worker.wake_at == beats_at


@pytest.mark.parametrize(("side", "patience_s"), [(Side.SUPERVISOR, 15.0), (Side.WORKER, 600.0)])
def test_three_missed_beats_mean_the_peer_hangs(side: Side, patience_s: float) -> None:
    """Either end notices: a worker must not outlive its supervisor's loop either."""
    link = dict(zip((Side.SUPERVISOR, Side.WORKER), make_pair(), strict=True))[side]
    assert link.tick(patience_s - 0.1) == []
    assert link.tick(patience_s) == [Silent(patience_s)]
    assert is_dead(link, patience_s)


def test_silence_is_excused_by_the_time_that_the_peer_got_no_processor() -> None:
    """A busy machine would look like a dead worker."""
    supervisor, _ = make_pair()
    supervisor.request(List(1, 30.0), b"", 0.0)
    assert supervisor.tick(2.0, 1.5) == []
    assert supervisor.tick(6.0, 4.0) == []
    assert supervisor.wake_at == 10.0
    assert supervisor.tick(9.9, 4.0) == []
    assert supervisor.tick(10.0, 4.0) == [Silent(10.0)]


def test_only_what_it_waited_in_silence_excuses_it() -> None:
    """A worker that hangs would be waited for as long as it had ever been kept waiting."""
    supervisor, worker = make_pair()
    worker.tick(100.0)
    carry(worker, supervisor, 100.0)
    assert supervisor.tick(104.0, 60.0) == []
    assert supervisor.wake_at == 119.0


def test_a_pause_of_our_own_is_no_silence_of_the_peer() -> None:
    """A laptop that wakes, or a stopped group that goes on, would find every server killed and its calls lost."""
    supervisor, _ = make_pair()
    supervisor.request(List(1, 300.0), b"", 0.0)
    assert supervisor.tick(62.0, 0.0, 62.0 - 6.0) == []
    assert supervisor.tick(67.9) == []
    assert supervisor.tick(68.0) == [Silent(68.0)]


def test_a_busy_moment_of_our_own_excuses_nothing() -> None:
    """A worker that hangs would be waited for as long as its supervisor has much to do."""
    supervisor, _ = make_pair()
    supervisor.request(List(1, 300.0), b"", 0.0)
    assert supervisor.tick(6.0 + PAUSE_S / 2, 0.0, PAUSE_S / 2) == [Silent(6.0 + PAUSE_S / 2)]


def test_a_call_whose_deadline_passed_in_a_pause_of_our_own_is_waited_for() -> None:
    """The answer that the worker gives when it goes on would find it killed."""
    supervisor, _ = make_pair()
    supervisor.request(Call(1, 5.0, "t"), b"{}", 0.0)
    supervisor.take(0.0)
    assert supervisor.tick(62.0, 0.0, 55.0) == [Late(1)]
    assert supervisor.tick(67.9) == []


def test_the_excuse_ends_with_the_silence() -> None:
    """A worker that hangs after a busy hour would be waited for as long."""
    supervisor, worker = make_pair()
    supervisor.request(List(1, 30.0), b"", 0.0)
    assert supervisor.tick(5.0, 5.0) == []
    worker.tick(5.5)
    carry(worker, supervisor, 5.5)
    assert supervisor.tick(11.5, 5.0) == [Silent(6.0)]


def test_a_peer_is_expected_from_the_moment_that_it_exists() -> None:
    """Where the machine took half a minute to start a worker, it was killed for not greeting before."""
    link = make_link(Side.SUPERVISOR)
    link.expect(25.0, 3.0)
    assert link.tick(54.0, 3.0) == []
    assert link.tick(56.0, 4.5) == []
    assert link.wake_at == 56.5
    assert link.tick(56.5, 4.5) == [Silent(31.5)]


def test_a_peer_that_does_not_exist_yet_is_not_judged() -> None:
    """A worker was called silent before it was born, while a busy machine still started the zygote."""
    link = make_link(Side.SUPERVISOR, now=inf)
    assert link.wake_at == inf
    assert link.tick(1_000.0) == []
    link.expect(1_000.0)
    assert link.wake_at == 1_030.0
    assert link.tick(1_030.0) == [Silent(30.0)]


def test_a_peer_that_greets_before_it_is_expected_may_beat() -> None:
    """The worker's greeting can be read before the zygote's word of its birth."""
    link = make_link(Side.SUPERVISOR, now=inf)
    worker = make_link(Side.WORKER)
    carry(worker, link, 5.0)
    link.expect(6.0)
    for now in (7.0, 9.0, 11.0):
        worker.tick(now)
        assert carry(worker, link, now) == []
    assert link.is_open


@pytest.mark.parametrize("start", [0.1, 0.7, 1e6 + 0.1, 12345.678901])
def test_a_timer_that_rings_exactly_on_time_is_not_rung_for_nothing(start: float) -> None:
    """Sums and differences round differently; a loop that trusts `wake_at` must not spin."""
    supervisor, worker = make_pair(now=start)
    supervisor.request(List(1, 0.3), b"", start)
    carry(supervisor, worker, start)
    while worker.wake_at < inf:
        at = worker.wake_at
        worker.tick(at)
        worker.take(at)
        assert worker.wake_at > at


def test_any_message_is_a_sign_of_life() -> None:
    """Not only beats."""
    supervisor, worker = make_pair()
    worker.post(ListChanged())
    carry(worker, supervisor, 5.0)
    assert supervisor.tick(19.9) == []
    assert supervisor.tick(20.0) == [Silent(15.0)]
