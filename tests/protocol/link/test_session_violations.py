"""Broken rules, one by one: each ends the link as a value; `test_session_hostile.py` looks for more of them."""

from math import inf, nan

import msgpack
import pytest

from quarterdeck_protocol.limits import UNIT_BYTES
from quarterdeck_protocol.link.events import MAX_REASON_CHARS, Arrived, LinkTerms, Violated
from quarterdeck_protocol.link.frame_bytes import encode
from quarterdeck_protocol.link.frames import Answer, Beat, Call, Cancel, Credit, Failed, List, ListChanged, Welcome

from .link_ends import FAULT, SMALL, VERSION, carry, fill, frames_of, hello, is_dead, make_pair

HOSTILE_TO_SUPERVISOR: dict[str, list[bytes]] = {
    "no parts": [],
    "three parts": [b"", b"", b""],
    "random": [b"\x00\x00\x00\x05hello"],
    "ZMTP greeting": [b"\xff\0\0\0\0\0\0\0\x01\x7f"],
    "extension": [b"\x00\x00\x00\x03" + msgpack.packb(msgpack.ExtType(1, b"x"))],
    "a supervisor's frame": encode(Call(1, 1.0, "t"), b"{}"),
    "a welcome": encode(Welcome(VERSION)),
    "a reply to nothing": encode(Answer(77), b"{}"),
    "a fault to nothing": encode(Failed(-1, FAULT)),
    "a beat with a body": encode(Beat(), b"x"),
    "a credit with a body": encode(Credit(1), b"x" * UNIT_BYTES),
    "news with a body": encode(ListChanged(), b"x"),
    "a fault with a body": encode(Failed(1, FAULT), b"x"),
}

HOSTILE_TO_WORKER: dict[str, list[bytes]] = {
    "a worker's frame": encode(Answer(1), b"{}"),
    "a hello": encode(hello()),
    "a timeout of nothing": encode(List(1, 0.0)),
    "a negative timeout": encode(List(1, -1.0)),
    "a timeout that is no number": encode(List(1, nan)),
    "an endless timeout": encode(List(1, inf)),
    "a cancel with a body": encode(Cancel(1), b"x"),
    "a list with a body": encode(List(1, 1.0), b"x"),
}


@pytest.mark.parametrize("parts", HOSTILE_TO_SUPERVISOR.values(), ids=HOSTILE_TO_SUPERVISOR)
def test_a_hostile_worker_ends_its_own_link_and_nothing_else(parts: list[bytes]) -> None:
    """A violation is a value; nothing raises, and nothing is said to the offender."""
    supervisor, worker = make_pair()
    supervisor.request(List(1, 1.0), b"", 0.0)
    carry(supervisor, worker)
    (event,) = supervisor.receive(parts, 1.0)
    assert isinstance(event, Violated)
    assert 0 < len(event.reason) <= MAX_REASON_CHARS
    assert is_dead(supervisor)


@pytest.mark.parametrize("parts", HOSTILE_TO_WORKER.values(), ids=HOSTILE_TO_WORKER)
def test_a_worker_holds_its_supervisor_to_the_rules_too(parts: list[bytes]) -> None:
    """The same code at both ends."""
    _, worker = make_pair()
    (event,) = worker.receive(parts, 1.0)
    assert isinstance(event, Violated)
    assert is_dead(worker)


def test_who_beats_without_a_pause_ends_its_link() -> None:
    """It would hold up the others' calls, and look alive all the while."""
    supervisor, _ = make_pair()
    events = [event for _ in range(1_000) for event in supervisor.receive(encode(Beat()), 1.0)]
    assert events == [Violated("it sends heartbeats without a pause")]
    assert is_dead(supervisor)


@pytest.mark.parametrize(("asked", "one_more"), [((1,), 1), ((1, 2), 3)])
def test_a_request_twice_or_beyond_the_terms_is_a_violation(asked: tuple[int, ...], one_more: int) -> None:
    _, worker = make_pair(LinkTerms(max_requests=2))
    for key in asked:
        assert worker.receive(encode(List(key, 1.0)), 0.0) == [Arrived(List(key, 1.0), b"")]
    assert worker.receive(encode(List(one_more, 1.0)), 0.0) == [Violated(f"request {one_more} is one too many")]


@pytest.mark.parametrize("request_id", [0, -1, 2**63, 2**64 - 1])
def test_any_integer_may_be_an_id(request_id: int) -> None:
    """Ids are compared, never counted with."""
    _, worker = make_pair()
    frame = List(request_id, 1e308)
    assert worker.receive(encode(frame), 0.0) == [Arrived(frame, b"")]
    worker.reply(Answer(request_id))
    assert frames_of(worker.take(0.0)) == [Answer(request_id)]


def test_a_dead_link_sends_nothing_and_still_tells_what_was_never_sent() -> None:
    """Arguments of calls are not handed to a peer that just broke the rules."""
    supervisor, _ = make_pair(SMALL)
    asked = fill(supervisor)
    waiting = supervisor.next_id()
    supervisor.request(List(waiting, 1.0), b"", 0.0)
    supervisor.receive([b"junk"], 0.0)
    assert supervisor.in_flight == 5
    assert [supervisor.cancel(key) for key in (*asked, waiting)] == [False] * 4 + [True]
    assert supervisor.take(0.0) == []


def test_a_reply_on_a_dead_link_is_dropped() -> None:
    """A call may end just after its link; that is nobody's bug."""
    supervisor, worker = make_pair()
    supervisor.request(List(1, 1.0), b"", 0.0)
    carry(supervisor, worker)
    worker.receive([b"junk"], 0.0)
    worker.reply(Answer(1), b"x")
    assert not worker.serves(1)
    assert worker.take(0.0) == []
