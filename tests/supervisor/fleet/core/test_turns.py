"""Whose call one server is given next: by tables, and walked at random beside a model that checks every promise."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from quarterdeck.fleet.core import turns as module
from quarterdeck.fleet.core.turns import SHARED_FOR, WIDTH, Place, Turns


def asked(width: int, **calls: int) -> Turns[str]:
    """Clients that have asked so many calls, one after the other: `a1` is the first of `a`."""
    made: Turns[str] = Turns(width)
    for client, count in calls.items():
        for number in range(1, count + 1):
            made.ask(client, f"{client}{number}")
    return made


def drained(made: Turns[str], *given: str) -> list[str]:
    """The order in which all that waits is given when what the server has ends one after the other."""
    running, order = list(given), []
    while running:
        made.end(running.pop(0))
        new = made.give()
        order += new
        running += new
    return order


def answered_in_turn(every_s: float, *clients: str) -> Turns[int]:
    """A server that has answered 40 calls of these clients, one each `every_s` seconds, and still has the last."""
    made: Turns[int] = Turns()
    made.ask(clients[0], 0)
    for number in range(1, 41):
        assert made.ask(clients[number % len(clients)], number) is Place.GIVEN
        made.end(number - 1, number * every_s)
    return made


def test_a_client_alone_has_as_many_calls_with_the_server_as_it_takes() -> None:
    """A server that can do many things at once would do one."""
    made = asked(3, a=5)
    assert (made.given, made.waiting) == (3, 2)
    assert drained(made, "a1", "a2", "a3") == ["a4", "a5"]


def test_a_client_s_first_call_is_given_at_once_beside_any_flood() -> None:
    """A calm client would wait until one of the flooding one's calls ends, which may take minutes."""
    made = asked(2, flood=100)
    assert made.ask("calm", "calm1") is Place.GIVEN
    assert made.ask("calm", "calm2") is Place.WAITS
    made.end("calm1")
    assert made.give() == ["calm2"]


def test_those_that_wait_are_served_in_turn_and_each_in_its_own_order() -> None:
    """A thousand calls of one would stand before the second one of another."""
    made = asked(1, a=5, b=3, c=2)
    assert drained(made, "a1", "b1", "c1") == ["a2", "b2", "c2", "a3", "b3", "a4", "a5"]


def test_a_new_call_does_not_overtake_those_that_wait() -> None:
    """Who asks often would be served before who asked first."""
    made = asked(1, a=2)
    made.end("a1")
    assert made.ask("a", "a3") is Place.WAITS
    assert made.give() == ["a2"]


def test_a_call_that_is_given_up_while_it_waits_is_never_given() -> None:
    """A server would be asked for what nobody wants any more."""
    made = asked(1, a=3)
    made.end("a2")
    assert drained(made, "a1") == ["a3"]
    assert (made.given, made.waiting) == (0, 0)


def test_an_end_that_is_told_twice_frees_one_place() -> None:
    """The server would have more than it is given at a time."""
    made = asked(1, a=3)
    made.end("a1")
    made.end("a1")
    assert made.give() == ["a2"]
    assert made.give() == []


@pytest.mark.parametrize(("now", "late", "left"), [(0.9, [], 3), (1.0, ["a2"], 2), (5.0, ["a2", "b2"], 1)])
def test_what_waits_for_too_long_is_given_back(now: float, late: list[str], left: int) -> None:
    """Callers would hang on a server that answers nobody."""
    made: Turns[str] = Turns(1)
    for call, until in (("a1", 0.0), ("a2", 1.0), ("b1", 0.0), ("b2", 2.0), ("b3", inf)):
        made.ask(call[0], call, 0, until)
    assert made.expires_at == 1.0
    assert made.expire(now) == late
    assert made.waiting == left


def test_a_client_s_line_is_bounded_and_no_other_client_meets_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client's calls would fill our memory."""
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    made = asked(1, a=3)
    assert made.ask("a", "a4") is Place.TOO_MANY
    assert [made.ask("b", f"b{number}") for number in range(3)] == [Place.GIVEN, Place.WAITS, Place.WAITS]
    made.end("a4")
    assert drained(made, "a1", "b0") == ["a2", "b1", "a3", "b2"]


def test_what_waits_is_bounded_by_its_size_but_one_of_any_size_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few large calls would fill our memory; or the largest that a client may send never be made."""
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 10)
    made = asked(1, a=1)
    places = [made.ask("a", f"a{size}", size) for size in (20, 1)]
    assert places == [Place.WAITS, Place.TOO_LARGE]
    made.end("a20")
    assert [made.ask("a", f"a{size}", size) for size in (6, 4, 2)] == [Place.WAITS, Place.WAITS, Place.TOO_LARGE]


@dataclass
class PlayedServer:
    """A server in a clock of its own, flooded by one client and called by a calm one, one call after the other.

    Attributes:
        waits: how long each of the calm one's calls took.
        ended: how many calls of the flooding one had their answer.
    """

    hands: int
    seconds: Callable[[], float]
    waits: list[float] = field(default_factory=list)
    ended: int = 0

    def play(self, flood: int, calm: int, every_s: float) -> None:
        made: Turns[tuple[str, int]] = Turns()
        queue: list[tuple[str, int]] = []  # the server's own line
        working: list[tuple[float, int, tuple[str, int]]] = []
        now, number, asked_at, next_at = 0.0, 0, 0.0, every_s

        def give(calls: Iterable[tuple[str, int]]) -> None:
            queue.extend(calls)

        give(("flood", n) for n in range(flood) if made.ask("flood", ("flood", n)) is Place.GIVEN)
        while len(self.waits) < calm:
            while queue and len(working) < self.hands:
                number += 1
                heappush(working, (now + self.seconds(), number, queue.pop(0)))
            if next_at <= (working[0][0] if working else inf):
                now = asked_at = next_at
                next_at = inf
                give([("calm", 0)] if made.ask("calm", ("calm", 0)) is Place.GIVEN else [])
                continue
            now, _, call = heappop(working)
            made.end(call, now)
            if call[0] == "calm":
                self.waits.append(now - asked_at)
                next_at = now + every_s
            else:
                self.ended += 1
            give(made.give())


def test_a_calm_client_of_a_server_that_works_on_one_call_at_a_time_waits_for_one_other() -> None:
    """Each of its calls would wait behind all that the server has of a flood: a second, for calls of 20 ms."""
    server = PlayedServer(1, lambda: 0.02)
    server.play(flood=3000, calm=200, every_s=0.05)
    assert sorted(server.waits)[-4] <= 0.04 + 1e-6  # but for the first ones, before the server's pace is known


def test_a_server_that_works_on_many_calls_at_once_is_given_many_by_several_clients() -> None:
    """Its calls would be made one after the other, for fear of a line that it does not have."""
    chance = Random(1)
    server = PlayedServer(1000, lambda: chance.uniform(0.5, 1.5))
    server.play(flood=3000, calm=10, every_s=0.1)
    assert max(server.waits) <= 1.5 + 1e-6
    assert server.ended > 40 * sum(server.waits)  # a second; one at a time would be one


def test_a_quick_server_is_given_many_calls_though_it_answers_in_turn() -> None:
    """Each call would wait for the way to the server and back, which takes longer than the call."""
    server = PlayedServer(1, lambda: 0.0001)
    server.play(flood=4000, calm=10, every_s=0.01)
    assert max(server.waits) <= 0.0001 * (WIDTH + 2)
    assert answered_in_turn(0.0001, "a", "b").width == WIDTH


def test_a_server_that_has_one_client_is_given_all_that_it_takes() -> None:
    """Who shares with nobody would wait for places that nobody needs."""
    made = answered_in_turn(0.02, "alone")
    assert made.width == WIDTH
    made.ask("other", 100)
    assert made.width == 1
    for number in range(101, 102 + SHARED_FOR):
        made.end(number - 1)
        assert made.ask("other", number) is Place.GIVEN
    assert made.width == WIDTH


def test_one_answer_before_an_older_call_s_tells_that_a_server_works_on_several() -> None:
    """A server that was slow once would be given one call at a time for ever."""
    made = answered_in_turn(0.02, "a", "b")
    assert made.width == 1
    assert made.ask("b", 41) is Place.GIVEN
    made.end(41, 1.0)
    assert made.width == WIDTH


class Walk(RuleBasedStateMachine):
    """Clients that ask, give up and hang in any order, beside a model that knows who asked what when."""

    @initialize(width=st.integers(1, 4))
    def begin(self, width: int) -> None:
        self.width = width
        self.turns: Turns[tuple[str, int]] = Turns(width)
        self.given: dict[tuple[str, int], None] = {}
        self.lines: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self.passed: dict[str, int] = defaultdict(int)
        self.until: dict[tuple[str, int], float] = {}
        self.number = 0
        self.now = 0.0

    @rule(client=st.sampled_from("abcd"), wait_s=st.integers(1, 20))
    def ask(self, client: str, wait_s: int) -> None:
        self.number += 1
        call = (client, self.number)
        place = self.turns.ask(client, call, 1, self.now + wait_s)
        is_first = not self.lines[client] and all(one[0] != client for one in self.given)
        if is_first:
            assert place is Place.GIVEN
        if place is Place.GIVEN:
            assert not self.lines[client]
            self.given[call] = None
        else:
            assert place is Place.WAITS
            assert len(self.given) >= self.width or any(self.lines.values()) or self.lines[client]
            self.lines[client].append(call)
            self.until[call] = self.now + wait_s

    @precondition(lambda self: self.given)
    @rule(index=st.integers(0, 100))
    def end(self, index: int) -> None:
        call = list(self.given)[index % len(self.given)]
        del self.given[call]
        self.turns.end(call)
        self._give()

    @precondition(lambda self: any(self.lines.values()))
    @rule(index=st.integers(0, 100))
    def give_up(self, index: int) -> None:
        waiting = [call for line in self.lines.values() for call in line]
        call = waiting[index % len(waiting)]
        self.lines[call[0]].remove(call)
        self.turns.end(call)

    @rule(seconds=st.integers(1, 10))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds
        late = self.turns.expire(self.now)
        waiting = {call for line in self.lines.values() for call in line}
        assert set(late) == {call for call in waiting if self.until[call] <= self.now}
        for call in late:
            self.lines[call[0]].remove(call)

    def _give(self) -> None:
        for call in self.turns.give():
            client = call[0]
            assert self.lines[client].pop(0) == call, "a client's calls lost their order"
            assert call not in self.given
            self.given[call] = None
            self.passed[client] = 0
            for other, line in self.lines.items():
                if line and other != client:
                    self.passed[other] += 1
        for client, line in self.lines.items():
            assert not line or len(self.given) >= self.width, "a place is free, and a call waits"
            assert not line or any(one[0] == client for one in self.given), "a client that waits has nothing there"

    @invariant()
    def nobody_is_passed_over(self) -> None:
        """Between two turns of a client that waits, each other has one: two, where it came between."""
        for client, line in self.lines.items():
            if not line:
                self.passed[client] = 0
            assert self.passed[client] <= 2 * 3

    @invariant()
    def all_that_was_asked_is_somewhere_once(self) -> None:
        waiting = [call for line in self.lines.values() for call in line]
        assert (self.turns.given, self.turns.waiting) == (len(self.given), len(waiting))
        assert len(self.given) <= self.width + len({client for client, _ in self.given})
        for client, line in self.lines.items():
            assert self.turns.waiting_of(client) == len(line)
        assert self.turns.expires_at == min((self.until[call] for call in waiting), default=inf)


def test_no_order_of_events_breaks_a_promise_of_the_turns() -> None:
    """Some rare order would lose a call, or let one client starve."""
    run_state_machine_as_test(Walk, settings=settings(stateful_step_count=30))


def test_the_clients_that_called_are_known_until_they_leave() -> None:
    """A server would be stopped below a client that called it, or run on for those that have left."""
    turns = Turns[str]()
    for number in range(100):
        turns.ask(f"client {number}", f"call {number}")
        turns.end(f"call {number}")
    assert len(turns.clients) == 100
    turns.forget_client("client 7")
    turns.forget_client("a stranger")
    assert "client 7" not in turns.clients
    turns.ask("client 7", "again")
    assert "client 7" in turns.clients
    turns.forget_clients()
    assert turns.clients == ("client 7",), "its call is in progress"
    turns.end("again")
    turns.forget_clients()
    assert turns.clients == ()
    turns.ask("client 7", "once more")
    assert turns.clients == ("client 7",)
