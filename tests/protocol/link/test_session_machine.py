"""Two honest ends of a link, walked at random.

The honest ends do their duties and nothing else: they send what `take` gives, tick when `wake_at` says so, and
drain before they tick.  Between them are queues that lose and reorder nothing; one end may be held up for a while,
and neither hears, says nor ticks meanwhile.
"""

from collections import Counter, deque
from collections.abc import Iterable
from math import inf
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quarterdeck_protocol.faults import FaultKind, FaultRecord
from quarterdeck_protocol.limits import UNIT_BYTES, units
from quarterdeck_protocol.link import frames
from quarterdeck_protocol.link.events import (
    Arrived,
    Expired,
    Greeted,
    Late,
    LinkEvent,
    LinkTerms,
    Overdue,
    Refusal,
    Replied,
    Side,
    Silent,
    Violated,
)
from quarterdeck_protocol.link.frame_bytes import decode
from quarterdeck_protocol.link.session import Link

from .link_ends import LIMITS, make_link

TERMS = LinkTerms(window_units=3, max_waiting=4, max_requests=8)
FAULT = FaultRecord(FaultKind.TOOL_ERROR, "refused")
FREE = (frames.Hello, frames.Welcome, frames.Beat, frames.Credit)

SHORT_S = 0.875
"""Less than half the backstop: what delays an arrival and an expiry together must not outlast it."""

LONG_S = 3.5
"""Longer than the backstop, but with the beat before it still within the peer's patience."""

TIMES = st.sampled_from([0.0, 0.125, 0.5, 1.0, 1.875, 2.0, 3.0, 7.5])
SIZES = st.sampled_from([0, 0, 2, UNIT_BYTES, UNIT_BYTES * 6])


class _Purse:
    """The credit of one direction as the wire shows it: kept by neither end."""

    def __init__(self) -> None:
        self.left = TERMS.window_units

    def see(self, parts: list[bytes]) -> None:
        frame, body = decode(parts, LIMITS)
        if not isinstance(frame, FREE):
            assert self.left > 0, "sent without credit"
            self.left -= units(len(body))

    def earn(self, amount: int) -> None:
        self.left += amount
        assert self.left <= TERMS.window_units


class HonestEnds(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.1
        self.links = {side: make_link(side, terms=TERMS, now=self.now) for side in Side}
        self.queues: dict[Side, deque[tuple[float, list[bytes]]]] = {side: deque() for side in Side}
        self.purses = {side: _Purse() for side in Side}
        self.held: Side | None = None
        self.held_until = inf
        self.excused: set[int] = set()
        self.late: set[int] = set()
        self.ends: dict[int, list[str]] = {}
        self.cancelled: set[int] = set()
        self.arrived: set[int] = set()
        self.expired: Counter[int] = Counter()
        self.replied: set[int] = set()
        self.changes_posted = self.changes_heard = 0
        self.news_posted: deque[object] = deque()
        self.condemned: deque[frames.Condemn] = deque()

    @property
    def supervisor(self) -> Link:
        return self.links[Side.SUPERVISOR]

    @property
    def worker(self) -> Link:
        return self.links[Side.WORKER]

    @property
    def open_requests(self) -> list[int]:
        return [key for key, ends in self.ends.items() if not ends]

    # What the world does

    def _flush(self, side: Side) -> None:
        for parts in self.links[side].take(self.now):
            self.purses[side].see(parts)
            self.queues[side.peer].append((self.now, parts))

    def _deliver_one(self, side: Side) -> None:
        sent_at, parts = self.queues[side].popleft()
        frame, _ = decode(parts, LIMITS)
        if isinstance(frame, frames.Request) and self.now - sent_at > SHORT_S:
            self.excused.add(frame.request_id)
        if isinstance(frame, frames.Credit):
            self.purses[side].earn(frame.units)
        if isinstance(frame, frames.Reply) and self.ends[frame.request_id] in (["cancelled"], ["overdue"]):
            self.ends[frame.request_id] = ["swallowed"]
        self._hear(side, self.links[side].receive(parts, self.now))
        self._flush(side)

    def _settle(self) -> None:
        """Deliver until nobody who is awake has anything to hear."""
        while any(self.queues[side] for side in Side if side is not self.held):
            for side in Side:
                if side is not self.held and self.queues[side]:
                    self._deliver_one(side)

    def _release(self) -> None:
        """Who was held up hears what waits, and then ticks if it must."""
        self.held, self.held_until = None, inf
        self._pass_time(self.now)

    def _pass_time(self, until: float) -> None:
        while True:
            self._settle()
            awake = [side for side in Side if side is not self.held]
            at = min(self.links[side].wake_at for side in awake)
            if at > until:
                break
            self.now = max(self.now, at)
            for side in awake:
                if self.links[side].wake_at <= self.now:
                    self._hear(side, self.links[side].tick(self.now))
                    self._flush(side)
                    assert self.links[side].wake_at > self.now, "a timer would spin"
        self.now = until
        self._settle()

    # What the ends say

    def _hear(self, side: Side, events: Iterable[LinkEvent]) -> None:
        for event in events:
            assert not isinstance(event, Violated | Silent), event
            if side is Side.WORKER:
                self._worker_hears(event)
            else:
                self._supervisor_hears(event)

    def _worker_hears(self, event: LinkEvent) -> None:
        match event:
            case Greeted():
                pass
            case Arrived(frame=frames.Cancel() as frame):
                assert frame.request_id in self.cancelled
                assert self.worker.serves(frame.request_id)
            case Arrived(frame=frames.Condemn() as frame):
                assert self.condemned.popleft() == frame
            case Arrived(frame=frame):
                assert isinstance(frame, frames.Request)
                assert "never sent" not in self.ends[frame.request_id]
                assert frame.request_id not in self.arrived
                self.arrived.add(frame.request_id)
            case Expired(request_id=request_id):
                self.expired[request_id] += 1
                assert self.expired[request_id] == 1
                assert self.worker.serves(request_id)
            case _:
                raise AssertionError(event)

    def _supervisor_hears(self, event: LinkEvent) -> None:
        match event:
            case Greeted():
                pass
            case Arrived(frame=frames.ListChanged()):
                self.changes_heard += 1
            case Arrived(frame=frames.Progress() | frames.Log() | frames.Lost() | frames.Started() as frame):
                while self.news_posted[0] != frame:
                    # Progress of a request that has ended meanwhile is kept back.
                    assert isinstance(self.news_posted.popleft(), frames.Progress)
                self.news_posted.popleft()
                assert not isinstance(frame, frames.Progress) or frame.request_id in self.open_requests
            case Replied(reply=reply, body=body):
                assert body == str(reply.request_id).encode() * isinstance(reply, frames.Answer)
                self._end(reply.request_id, "settled")
            case Overdue(request_id=request_id, was_sent=False):
                self._end(request_id, "never sent")
            case Overdue(request_id=request_id) if self.ends[request_id] == ["overdue"]:
                assert request_id in self.late
                self.late.discard(request_id)
            case Overdue(request_id=request_id) | Late(request_id=request_id):
                if isinstance(event, Late):
                    self.late.add(request_id)
                if self.worker.serves(request_id) and request_id not in self.excused:
                    assert self.expired[request_id] == 1, "the backstop rang first"
                if request_id in self.cancelled:
                    assert self.ends[request_id] == ["cancelled"]
                    self.ends[request_id] = ["overdue"]
                else:
                    self._end(request_id, "overdue")
            case _:
                raise AssertionError(event)

    def _end(self, request_id: int, how: str) -> None:
        self.ends[request_id].append(how)
        assert len(self.ends[request_id]) == 1, self.ends[request_id]

    # Rules

    @initialize()
    def greet(self) -> None:
        self._flush(Side.WORKER)
        self._settle()
        assert self.supervisor.is_open
        assert self.worker.is_open

    @precondition(lambda self: self.held is not Side.SUPERVISOR)
    @rule(
        kinds=st.lists(st.sampled_from([frames.Open, frames.List, frames.Call, frames.Close]), min_size=1, max_size=6),
        timeout_s=st.sampled_from([0.25, 1.0, 4.0, 60.0]),
        size=SIZES,
    )
    def request(self, kinds: list[Any], timeout_s: float, size: int) -> None:
        """The supervisor asks, often more than credit allows at once."""
        for kind in kinds:
            key = self.supervisor.next_id()
            frame = frames.Call(key, timeout_s, "t", progress=True) if kind is frames.Call else kind(key, timeout_s)
            refusal = self.supervisor.request(
                frame, b"x" * size if kind in (frames.Open, frames.Call) else b"", self.now
            )
            self._flush(Side.SUPERVISOR)
            assert refusal in (None, Refusal.BUSY)
            if refusal is None:
                self.ends[key] = []

    @precondition(lambda self: self.open_requests and self.held is not Side.SUPERVISOR)
    @rule(data=st.data(), reason=st.text(max_size=5))
    def cancel(self, data: st.DataObject, reason: str) -> None:
        key = data.draw(st.sampled_from(self.open_requests))
        if self.supervisor.cancel(key, reason):
            self._end(key, "never sent")
        else:
            self.cancelled.add(key)
            self._end(key, "cancelled")
        self._flush(Side.SUPERVISOR)
        assert self.supervisor.cancel(key) is False
        assert self.supervisor.take(self.now) == []

    @precondition(lambda self: self.arrived - self.replied and self.held is not Side.WORKER)
    @rule(data=st.data(), good=st.booleans())
    def reply(self, data: st.DataObject, good: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.arrived - self.replied)))
        self._reply(key, good=good)

    def _reply(self, key: int, *, good: bool = True) -> None:
        if good:
            self.worker.reply(frames.Answer(key), str(key).encode())
        else:
            self.worker.reply(frames.Failed(key, FAULT))
        self.replied.add(key)
        self._flush(Side.WORKER)

    @precondition(lambda self: self.held is not Side.WORKER)
    @rule(data=st.data())
    def post(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([*sorted(self.arrived - self.replied), 999]))
        line = frames.Log("info", str(self.now))
        choices: list[frames.News] = [
            frames.Progress(key, 0.5),
            line,
            frames.ListChanged(),
            frames.Lost(FAULT),
            frames.Started(),
        ]
        frame = data.draw(st.sampled_from(choices))
        taken = self.worker.post(frame)
        self._flush(Side.WORKER)
        if isinstance(frame, frames.ListChanged):
            self.changes_posted += 1
        elif taken:
            self.news_posted.append(frame)
        assert taken or not isinstance(frame, frames.Lost | frames.Started)

    @precondition(lambda self: self.held is not Side.SUPERVISOR)
    @rule()
    def condemn(self) -> None:
        self.condemned.append(frames.Condemn("memory_bytes", str(self.now)))
        assert self.supervisor.post(self.condemned[-1])
        self._flush(Side.SUPERVISOR)

    @rule(side=st.sampled_from(Side), count=st.integers(1, 5))
    def deliver(self, side: Side, count: int) -> None:
        for _ in range(count):
            if side is not self.held and self.queues[side]:
                self._deliver_one(side)

    @rule(seconds=TIMES)
    def advance(self, seconds: float) -> None:
        self._pass_time(min(self.now + seconds, self.held_until))
        if self.now >= self.held_until:
            self._release()

    @precondition(lambda self: self.held is None)
    @rule(side=st.sampled_from(Side), seconds=st.sampled_from([SHORT_S, LONG_S]))
    def hold_up(self, side: Side, seconds: float) -> None:
        self._settle()
        self.held, self.held_until = side, self.now + seconds
        if seconds > SHORT_S:
            self.excused.update(self.arrived)

    # Invariants

    @invariant()
    def both_live(self) -> None:
        assert self.supervisor.wake_at != inf
        assert self.worker.wake_at != inf

    @invariant()
    def every_request_is_accounted_for(self) -> None:
        """What the link calls in flight is what has no reply yet, cancelled and overdue ones included."""
        unanswered = [ends for ends in self.ends.values() if not ends or ends[0] in ("cancelled", "overdue")]
        assert self.supervisor.in_flight == len(unanswered)

    @invariant()
    def the_worker_serves_what_arrived(self) -> None:
        """Until it replied."""
        assert all(self.worker.serves(key) is (key not in self.replied) for key in self.arrived)

    def teardown(self) -> None:
        """In the end each request has exactly one end, whether the worker answers at last or not."""
        self._release()
        silent = len(self.ends) % 2 == 1
        for _ in range(30):
            if not silent:
                for key in sorted(self.arrived - self.replied):
                    self._reply(key)
            self._pass_time(self.now + 5.0)
        assert all(len(ends) == 1 for ends in self.ends.values()), self.ends
        assert {ends[0] for ends in self.ends.values()} <= {"settled", "swallowed", "overdue", "never sent"}
        assert silent or self.supervisor.in_flight == 0
        assert self.arrived.isdisjoint(key for key, ends in self.ends.items() if ends == ["never sent"])
        assert (self.changes_heard > 0) == (self.changes_posted > 0)
        assert all(isinstance(left, frames.Progress) for left in self.news_posted), "news was lost"
        assert not self.condemned


HonestEnds.TestCase.settings = settings(stateful_step_count=50)
test_two_honest_ends_lose_nothing_and_never_accuse_each_other = HonestEnds.TestCase
