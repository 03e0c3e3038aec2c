"""Requests on the link, from asking to their one end; `test_session_machine.py` walks the session at random."""

from math import inf, nan

import pytest

from quarterdeck_protocol.link import events, frames

from .link_ends import FAULT, LIMITS, SMALL, carry, fill, make_link, make_pair

# Requests


@pytest.mark.parametrize(
    ("frame", "body"),
    [
        (frames.Open(1, 60.0), b"{}"),
        (frames.List(1, 30.0), b""),
        (frames.Call(1, 300.0, "echo", meta=b"{}"), b'{"a":1}'),
        (frames.Close(1, 6.0), b""),
    ],
)
def test_a_request_arrives_whole_and_its_reply_settles_it(frame: frames.Request, body: bytes) -> None:
    """The main road."""
    supervisor, worker = make_pair()
    assert supervisor.request(frame, body, 0.0) is None
    assert supervisor.in_flight == 1
    assert carry(supervisor, worker) == [events.Arrived(frame, body)]
    assert worker.serves(1)
    worker.reply(frames.Answer(1, "2025-11-25"), b'{"content":[]}')
    assert not worker.serves(1)
    assert carry(worker, supervisor) == [events.Replied(frames.Answer(1, "2025-11-25"), b'{"content":[]}')]
    assert supervisor.in_flight == 0


def test_a_requester_is_handed_back_with_all_that_comes_of_its_request() -> None:
    """A reply would reach another caller, or nobody."""
    supervisor, worker = make_pair()
    requesters: list[events.Requester] = [(lambda _, __: None, key) for key in range(3)]
    for key, requester in enumerate(requesters):
        assert supervisor.request(frames.Call(key, 1.0, "t"), b"{}", 0.0, requester) is None
    assert supervisor.awaited() == dict(enumerate(requesters))
    carry(supervisor, worker)
    worker.post(frames.Progress(1, 0.5))
    worker.reply(frames.Answer(1))
    supervisor.cancel(0)
    assert carry(worker, supervisor) == [
        events.Arrived(frames.Progress(1, 0.5), b"", requesters[1]),
        events.Replied(frames.Answer(1), b"", requesters[1]),
    ]
    assert supervisor.awaited() == {2: requesters[2]}
    assert supervisor.tick(3.0) == [events.Overdue(0), events.Overdue(2, requester=requesters[2])]
    assert supervisor.awaited() == {}


@pytest.mark.parametrize(
    "note",
    [frames.Progress(1, nan), frames.Progress(1, inf), frames.Progress(1, 1.0, -inf), frames.Progress(9, 1.0)],
    ids=repr,
)
def test_progress_that_nobody_can_be_told_is_dropped(note: frames.Progress) -> None:
    """JSON has no such numbers, and nobody waits for another one's progress."""
    supervisor, worker = make_pair()
    supervisor.request(frames.Call(1, 1.0, "t"), b"{}", 0.0)
    carry(supervisor, worker)
    worker.post(note)
    assert carry(worker, supervisor) == []
    assert supervisor.is_open


def test_a_link_refuses_more_requests_than_its_terms_allow() -> None:
    """Memory is bounded at both ends; the caller hears `busy` at once."""
    supervisor, worker = make_pair(events.LinkTerms(max_requests=2))
    assert [supervisor.request(frames.List(key, 1.0), b"", 0.0) for key in (1, 2, 3)] == [
        None,
        None,
        events.Refusal.BUSY,
    ]
    carry(supervisor, worker)
    worker.reply(frames.Answer(1), b"[]")
    carry(worker, supervisor)
    assert supervisor.request(frames.List(3, 1.0), b"", 0.0) is None
    assert supervisor.in_flight == 2


def test_a_closed_link_takes_no_request() -> None:
    """Before the handshake and after the end nothing is queued that nobody would answer."""
    assert make_link(events.Side.SUPERVISOR).request(frames.List(1, 1.0), b"", 0.0) is events.Refusal.DEAD


@pytest.mark.parametrize(
    ("frame", "body"),
    [
        (frames.Call(1, 1.0, "t", meta=b"x" * LIMITS.header_bytes), b"{}"),
        (frames.Call(1, 1.0, "\ud800"), b"{}"),
        (frames.Call(1 << 64, 1.0, "t"), b"{}"),
    ],
)
def test_a_request_that_no_message_can_carry_is_refused(frame: frames.Request, body: bytes) -> None:
    """A client's huge `_meta` is that client's error; the worker must not die of it."""
    supervisor, worker = make_pair()
    assert supervisor.request(frame, body, 0.0) is events.Refusal.UNSENDABLE
    assert supervisor.in_flight == 0
    assert carry(supervisor, worker) == []
    assert supervisor.request(frames.List(1, 1.0), b"", 0.0) is None


@pytest.mark.parametrize("frame", [frames.Log("info", "\ud800"), frames.Log("info", "x" * LIMITS.header_bytes)])
def test_news_that_no_message_can_carry_is_dropped(frame: frames.Log) -> None:
    """A log line of a megabyte is not worth a worker."""
    supervisor, worker = make_pair()
    assert not worker.post(frame)
    assert worker.post(frames.ListChanged())
    assert carry(worker, supervisor) == [events.Arrived(frames.ListChanged(), b"")]


# Cancelling


def test_a_cancelled_request_is_told_and_its_reply_swallowed() -> None:
    """The worker still answers once; nobody waits for it any more."""
    supervisor, worker = make_pair()
    supervisor.request(frames.Call(1, 1.0, "t"), b"{}", 0.0)
    carry(supervisor, worker)
    assert supervisor.cancel(1, "enough") is False
    assert carry(supervisor, worker) == [events.Arrived(frames.Cancel(1, "enough"), b"")]
    worker.reply(frames.Answer(1), b"{}")
    assert carry(worker, supervisor) == []
    assert supervisor.in_flight == 0


@pytest.mark.parametrize("request_id", [1, 2, -1])
def test_cancelling_what_is_not_under_way_does_nothing(request_id: int) -> None:
    """A reply and a cancel may cross."""
    supervisor, worker = make_pair()
    supervisor.request(frames.List(1, 1.0), b"", 0.0)
    carry(supervisor, worker)
    worker.reply(frames.Answer(1))
    carry(worker, supervisor)
    assert supervisor.cancel(request_id) is False
    assert carry(supervisor, worker) == []


def test_a_request_that_never_left_is_withdrawn() -> None:
    """`cancel` says so: the call is safe to repeat."""
    supervisor, worker = make_pair(SMALL)
    fill(supervisor)
    waiting = supervisor.next_id()
    supervisor.request(frames.Call(waiting, 1.0, "t"), b"{}", 0.0)
    assert supervisor.cancel(waiting) is True
    assert supervisor.cancel(waiting) is False
    arrived = carry(supervisor, worker)
    carry(worker, supervisor)
    arrived += carry(supervisor, worker)
    assert len(arrived) == 4
    assert not worker.serves(waiting)


@pytest.mark.parametrize("reason", ["x" * 1_000_000, "\ud800" * 1_000])
def test_a_reason_is_cut_and_cleaned(reason: str) -> None:
    """A client writes it; it must not make the frame unsendable."""
    supervisor, worker = make_pair()
    supervisor.request(frames.List(1, 1.0), b"", 0.0)
    carry(supervisor, worker)
    supervisor.cancel(1, reason)
    (event,) = carry(supervisor, worker)
    assert isinstance(event, events.Arrived)
    assert isinstance(event.frame, frames.Cancel)
    assert len(event.frame.reason) <= events.MAX_REASON_CHARS


# Our own mistakes


@pytest.mark.parametrize("timeout_s", [0, -1, nan, inf, -inf])
def test_asking_without_a_sensible_deadline_is_misuse(timeout_s: float) -> None:
    """The peer would call it a violation, and die of it."""
    supervisor, worker = make_pair()
    with pytest.raises(events.LinkMisuseError, match="a timeout of"):
        supervisor.request(frames.List(1, timeout_s), b"", 0.0)
    assert supervisor.in_flight == 0
    assert carry(supervisor, worker) == []


def test_what_a_peer_would_call_a_violation_is_misuse_and_leaves_the_link_as_it_is() -> None:
    """An end with a mistake of its own would be killed by its peer, or settle two requests by one reply."""
    supervisor, worker = make_pair()
    with pytest.raises(events.LinkMisuseError, match="no request 1 awaits"):
        worker.reply(frames.Answer(1))
    with pytest.raises(events.LinkMisuseError, match="not for the supervisor"):
        worker.request(frames.List(1, 1.0), b"", 0.0)
    with pytest.raises(events.LinkMisuseError, match="not for the worker"):
        supervisor.post(frames.ListChanged())
    with pytest.raises(events.LinkMisuseError, match="List has a body"):
        supervisor.request(frames.List(1, 1.0), b"x", 0.0)
    supervisor.request(frames.List(1, 1.0), b"", 0.0)
    with pytest.raises(events.LinkMisuseError, match="under way already"):
        supervisor.request(frames.List(1, 1.0), b"", 0.0)
    carry(supervisor, worker)
    with pytest.raises(events.LinkMisuseError, match="Failed has a body"):
        worker.reply(frames.Failed(1, FAULT), b"x")
    assert worker.serves(1)
    worker.reply(frames.Answer(1))
    with pytest.raises(events.LinkMisuseError, match="no request 1 awaits"):
        worker.reply(frames.Failed(1, FAULT))
