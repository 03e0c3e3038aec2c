"""A relay walked at random: its caller asks, cancels and waits; its server answers in any order, twice, forges, breaks.

The model knows what is under way from the lines alone, as a server does.  What must hold: each request ends once, only
while it is under way, and by what was said about it; a question of the server's is answered once, under its own id.
"""

import json
from math import inf
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule
from support.servers.greetings import LEGACY, MODERN, JsonObject

from quarterdeck_protocol.faults import FaultKind, FaultRecord
from quarterdeck_protocol.mcp.client import FIRST_ID, events
from quarterdeck_protocol.mcp.client.asks import ASK_S, MAX_ASKS

from .relays import talk

OFFERED = "elicitation/create"
LOST = FaultRecord(FaultKind.TOOL_ERROR, "it broke off", "server_lost")

ENDS = events.Answered | events.Refused | events.Spoiled | events.Listed | events.ListingFailed

REPLIES: list[JsonObject] = [
    *({"result": {}}, {"result": {"content": []}}, {"result": {"tools": [{"name": "a"}]}}),
    *({"result": {"tools": [], "nextCursor": "x"}}, {"result": []}, {"error": {"code": 1, "message": "no"}}),
    *({"error": 7}, {}),
]


class RelayMachine(RuleBasedStateMachine):
    """See the module."""

    questions: Bundle[int] = Bundle("questions")

    def __init__(self) -> None:
        super().__init__()
        self.last = 0
        self.ids = 0
        self.calls: set[int] = set()
        self.pages: dict[int, int] = {}
        self.done: list[int] = []
        self.asked: dict[int, tuple[object, float]] = {}

    @initialize(era=st.sampled_from([LEGACY, MODERN]))
    def greet(self, era: str) -> None:
        self.era = era
        self.talked = talk(era, offers=frozenset({OFFERED}))
        self.relay = self.talked.relay

    # What the caller does

    @rule(progress=st.booleans())
    def call(self, progress: bool) -> None:
        self.last += 1
        assert self.relay.call(self.last, "echo", b"{}", progress=progress) is None
        [line] = self.written()
        assert line["id"] == FIRST_ID + self.last
        assert ("_meta" in line["params"]) is (progress or self.era == MODERN)
        self.calls.add(self.last)

    @rule()
    def list_tools(self) -> None:
        self.last += 1
        assert self.relay.list_all(self.last, "tools/list", self.talked.now) is None
        [line] = self.written()
        self.pages[line["id"]] = self.last

    @rule(data=st.data())
    @precondition(lambda self: self.last)
    def cancel(self, data: st.DataObject) -> None:
        request_id = data.draw(st.integers(1, self.last))
        wire_ids = [FIRST_ID + request_id] if request_id in self.calls else []
        wire_ids += [wire_id for wire_id, owner in self.pages.items() if owner == request_id]
        assert self.relay.cancel(request_id) is bool(wire_ids)
        told = [line["params"]["requestId"] for line in self.written()]
        assert told == wire_ids
        self.forget(request_id)

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, ASK_S / 2]))
    def wait(self, seconds: float) -> None:
        self.talked.now = now = self.talked.now + seconds
        happened = self.relay.advance(now)
        overdue = {ask_id for ask_id, (_, until) in self.asked.items() if until <= now}
        assert {event.ask_id for event in happened if isinstance(event, events.AskEnded)} == overdue
        assert len(happened) == len(overdue)
        assert [line["error"]["code"] for line in self.written()] == [-32600] * len(overdue)
        for ask_id in overdue:
            del self.asked[ask_id]

    @rule(ask_id=consumes(questions), refused=st.booleans())
    def answer(self, ask_id: int, refused: bool) -> None:
        is_open = ask_id in self.asked
        answered = self.relay.refuse(ask_id, 1, "no") if refused else self.relay.answer(ask_id, b"{}")
        assert answered is is_open
        assert [line["id"] for line in self.written()] == [self.asked.pop(ask_id)[0]][:is_open] if is_open else True

    # What the server says

    @rule(data=st.data(), reply=st.sampled_from(REPLIES), as_text=st.booleans(), times=st.integers(1, 2))
    @precondition(lambda self: self.calls or self.pages)
    def reply(self, data: st.DataObject, reply: JsonObject, as_text: bool, times: int) -> None:
        wire_ids = [FIRST_ID + request_id for request_id in self.calls] + list(self.pages)
        wire_id = data.draw(st.sampled_from(wire_ids))
        owner = self.pages.pop(wire_id, wire_id - FIRST_ID)
        said = {"id": str(wire_id) if as_text else wire_id, **reply}
        happened = self.talked.say(*[said] * times)
        if happened:
            [event] = happened
            assert isinstance(event, ENDS)
            assert event.request_id == owner
            self.forget(owner)
            assert self.written() == []
        else:  # a page that has another behind it
            [line] = self.written()
            assert line["params"]["cursor"] == "x"
            self.pages[line["id"]] = owner

    @rule(data=st.data())
    @precondition(lambda self: self.calls or self.pages)
    def fail(self, data: st.DataObject) -> None:
        wire_ids = [FIRST_ID + request_id for request_id in self.calls] + list(self.pages)
        wire_id = data.draw(st.sampled_from(wire_ids))
        owner = self.pages.pop(wire_id, wire_id - FIRST_ID)
        assert self.relay.fail(wire_id, LOST, self.talked.now) == (events.Failed(owner, LOST),)
        assert self.relay.fail(wire_id, LOST, self.talked.now) == ()
        self.forget(owner)

    @rule(data=st.data())
    @precondition(lambda self: self.calls)
    def spoil(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.calls)))
        line = b'{"id":%d,"result":{' % (FIRST_ID + request_id)
        junk, end = self.talked.say(line)
        assert junk == events.Junk(line)
        assert isinstance(end, events.Spoiled)
        assert end.request_id == request_id
        self.forget(request_id)

    @rule(number=st.integers(-3, 40), reply=st.sampled_from(REPLIES), ours=st.booleans())
    def forge(self, number: int, reply: JsonObject, ours: bool) -> None:
        wire_id = FIRST_ID + number if ours else number
        if wire_id not in self.pages and wire_id - FIRST_ID not in self.calls:
            assert self.talked.say({"id": wire_id, **reply}) == []
            assert self.written() == []

    @rule(line=st.sampled_from([b"x", b"[]", b'{"method":7}', b"{" * 5_000]))
    def babble(self, line: bytes) -> None:
        assert self.talked.say(line) == [events.Junk(line)]

    @rule(data=st.data())
    def report(self, data: st.DataObject) -> None:
        token = data.draw(st.integers(0, self.last + 1)) + FIRST_ID
        note = {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}
        known = token - FIRST_ID in self.calls
        assert self.talked.say(note) == [events.Progressed(token - FIRST_ID, 1.0)][: int(known)]

    @rule(target=questions, again=st.booleans())
    def ask(self, again: bool) -> int:
        self.ids += not again
        happened = self.talked.say({"id": self.ids, "method": OFFERED, "params": {}})
        in_use = {server_id for server_id, _ in self.asked.values()}
        if self.era == MODERN or self.ids in in_use or len(self.asked) >= MAX_ASKS:
            assert happened == []
            [line] = self.written()
            assert (line["id"], "error" in line) == (self.ids, True)
            return 0
        [event] = happened
        assert isinstance(event, events.Asked)
        self.asked[event.ask_id] = (self.ids, self.talked.now + ASK_S)
        return event.ask_id

    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        server_id = data.draw(st.integers(0, self.ids + 1))
        ours = [ask_id for ask_id, (theirs, _) in self.asked.items() if theirs == server_id]
        happened = self.talked.say({"method": "notifications/cancelled", "params": {"requestId": server_id}})
        assert happened == [events.AskEnded(ask_id, events.EndOfAsk.CANCELLED) for ask_id in ours]
        for ask_id in ours:
            del self.asked[ask_id]

    # What must hold

    @invariant()
    def under_way(self) -> None:
        """The relay waits for exactly what the server has not answered."""
        if self.last:
            waiting = {FIRST_ID + number for number in self.calls} | set(self.pages)
            every = [*range(1, self.ids + 200), *(FIRST_ID + number for number in range(self.last + 2))]
            assert {wire_id for wire_id in every if self.relay.awaits(wire_id)} == waiting
            assert self.relay.is_idle is (not waiting)

    @invariant()
    def timed(self) -> None:
        if self.last or self.ids:
            soonest = min((until for _, until in self.asked.values()), default=inf)
            assert self.relay.wake_at <= soonest

    def written(self) -> list[JsonObject]:
        lines: list[Any] = [json.loads(line) for line in self.relay.take().splitlines()]
        assert all(line["jsonrpc"] == "2.0" for line in lines)
        return lines

    def forget(self, request_id: int) -> None:
        self.calls.discard(request_id)
        self.pages = {wire_id: owner for wire_id, owner in self.pages.items() if owner != request_id}


RelayMachine.TestCase.settings = settings(stateful_step_count=30)
TestRelayMachine = RelayMachine.TestCase
